// The table of an instruction set: products_avx2.cpp and products_avx512.cpp compile it.

#include <array>
#include <utility>

#include "cpu/lanes.h"
#include "cpu/products_generic.h"
#include "cpu/products_kernels.h"
#include "cpu/products_lanes.h"
#include "quant/grids.h"
#include "quant/half.h"

// The bodies, in this order.
#include "cpu/products_multiply.inc.h"
//
#include "cpu/products_decode.inc.h"
//
#include "cpu/products_grids.inc.h"
//
#include "cpu/products_decode_tile.inc.h"

namespace strata::cpu {
namespace {

void gated(Gate function, const float* gate, const float* up, float* h) {
    for (int i = 0; i < 32; i += kLanes) {
        const Lanes g = Lanes::load(gate + i);
        ((function == Gate::silu ? silu(g) : gelu(g)) * Lanes::load(up + i)).store(h + i);
    }
}

void add_weighted(float weight, const float* y, float* sum) {
    const Lanes w(weight);
    for (int i = 0; i < 32; i += kLanes) lane_fma(w, Lanes::load(y + i), Lanes::load(sum + i)).store(sum + i);
}

template <TermKind kind, CodeForm form>
constexpr std::array<MultiplyFunction, kGroupColumns> kMultiply = {
    multiply_panel<kind, form, 1>, multiply_panel<kind, form, 2>, multiply_panel<kind, form, 3>,
    multiply_panel<kind, form, 4>};

/// A type with a decoder of its own.
template <Type type>
void set_type(ProductKernels& table) {
    TypeKernels& its = table.types[static_cast<size_t>(type)];
    its.decode = decode_tile<type>;
    its.multiply = kMultiply<term_kind(type), code_form<type>()>;
    // Looking up the largest grid leaves no registers for sums.
    if constexpr (type != Type::iq1_s && type != Type::iq1_m) its.multiply_once = multiply_tile_once<type>;
    its.decode_float = decode_tile_float<type>;
}

/// A type without one.
template <Type type>
void set_generic_type(ProductKernels& table) {
    constexpr CodeForm kForm = kVector == 16 ? CodeForm{128, 255} : CodeForm{0, 128};
    TypeKernels& its = table.types[static_cast<size_t>(type)];
    its.decode = generic_decode(type, kForm.offset);
    its.multiply = kMultiply<term_kind(type), kForm>;
    its.decode_float = generic_decode_float(type);
}

template <Type... types>
void set_types(ProductKernels& table) {
    (set_type<types>(table), ...);
}
template <Type... types>
void set_generic_types(ProductKernels& table) {
    (set_generic_type<types>(table), ...);
}

ProductKernels make_table() {
    ProductKernels table{};
    set_types<Type::q4_0, Type::q4_1, Type::q5_0, Type::q5_1, Type::q8_0, Type::q2_k, Type::q3_k, Type::q4_k,
              Type::q5_k, Type::q6_k, Type::iq1_s, Type::iq1_m, Type::iq2_xxs, Type::iq2_xs, Type::iq2_s, Type::iq3_xxs,
              Type::iq3_s, Type::iq4_nl, Type::iq4_xs, Type::mxfp4>(table);
    set_generic_types<Type::tq1_0, Type::tq2_0, Type::nvfp4, Type::q1_0, Type::q2_0>(table);
    const auto plain = [&](Type type, DecodeFloatFunction decode) {
        table.types[static_cast<size_t>(type)].decode_float = decode;
    };
    plain(Type::f32, decode_tile_plain<Type::f32>);
    plain(Type::f16, decode_tile_plain<Type::f16>);
    plain(Type::bf16, decode_tile_plain<Type::bf16>);
    table.multiply_float = {multiply_float_panel<1>, multiply_float_panel<2>, multiply_float_panel<3>,
                            multiply_float_panel<4>};
    table.gated = gated;
    table.add_weighted = add_weighted;
    return table;
}

}  // namespace
}  // namespace strata::cpu
