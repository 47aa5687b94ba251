#include "quant/quantise.h"

#include <cstring>

#include "quant/half.h"
#include "quant/quantise_search.h"

namespace strata {
namespace {

using namespace quantise;

void copy_f32(const Row& row, uint8_t* out) {
    std::memcpy(out, row.x, static_cast<size_t>(row.width) * sizeof(float));
}

void convert_f16(const Row& row, uint8_t* out) {
    for (int64_t i = 0; i < row.width; ++i) put16(out + 2 * i, f16_from_float(row.x[i]));
}

void convert_bf16(const Row& row, uint8_t* out) {
    for (int64_t i = 0; i < row.width; ++i) put16(out + 2 * i, bf16_from_float(row.x[i]));
}

RowQuantiser row_quantiser(Type type) {
    switch (type) {
        case Type::f32: return copy_f32;
        case Type::f16: return convert_f16;
        case Type::bf16: return convert_bf16;
        case Type::q4_0: return quantise_q4_0;
        case Type::q4_1: return quantise_q4_1;
        case Type::q5_0: return quantise_q5_0;
        case Type::q5_1: return quantise_q5_1;
        case Type::q8_0: return quantise_q8_0;
        case Type::q2_k: return quantise_q2_k;
        case Type::q3_k: return quantise_q3_k;
        case Type::q4_k: return quantise_q4_k;
        case Type::q5_k: return quantise_q5_k;
        case Type::q6_k: return quantise_q6_k;
        case Type::iq2_xxs: return quantise_iq2_xxs;
        case Type::iq2_xs: return quantise_iq2_xs;
        case Type::iq3_xxs: return quantise_iq3_xxs;
        case Type::iq1_s: return quantise_iq1_s;
        case Type::iq4_nl: return quantise_iq4_nl;
        case Type::iq3_s: return quantise_iq3_s;
        case Type::iq2_s: return quantise_iq2_s;
        case Type::iq4_xs: return quantise_iq4_xs;
        case Type::iq1_m: return quantise_iq1_m;
        case Type::tq1_0: return quantise_tq1_0;
        case Type::tq2_0: return quantise_tq2_0;
        case Type::mxfp4: return quantise_mxfp4;
        case Type::nvfp4: return quantise_nvfp4;
        case Type::q1_0: return quantise_q1_0;
        case Type::q2_0: return quantise_q2_0;
        case Type::i8:
        case Type::i16:
        case Type::i32:
        case Type::i64:
        case Type::f64: return nullptr;
    }
    return nullptr;
}

}  // namespace

bool quantisable(Type type) {
    return row_quantiser(type) != nullptr;
}

void quantise_row(Type type, const float* x, int64_t width, const float* importance, void* out) {
    row_quantiser(type)({x, importance, width}, static_cast<uint8_t*>(out));
}

}  // namespace strata
