#include "quant/dequantise.h"

#include <cstring>

#include "quant/canonical.h"
#include "quant/half.h"

namespace strata {
namespace {

/// Plain values of type T, read at any alignment.
template <class T, class Convert>
void convert_row(const uint8_t* row, int64_t width, float* out, Convert convert) {
    for (int64_t i = 0; i < width; ++i) {
        T value;
        std::memcpy(&value, row + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
        out[i] = convert(value);
    }
}

void expand(const CanonicalBlock& b, float* out) {
    for (int half = 0; half < 2; ++half) {
        const float scale = b.d[half] * static_cast<float>(b.s[half]);
        const float minimum = b.e * static_cast<float>(b.mu[half]);
        for (int i = 16 * half; i < 16 * half + 16; ++i) out[i] = scale * static_cast<float>(b.q[i]) - minimum;
    }
}

}  // namespace

void dequantise_row(Type type, const void* row, int64_t width, float* out) {
    const auto* bytes = static_cast<const uint8_t*>(row);
    const auto to_float = [](auto value) { return static_cast<float>(value); };
    switch (type) {
        case Type::f32: return convert_row<float>(bytes, width, out, to_float);
        case Type::f16: return convert_row<uint16_t>(bytes, width, out, float_from_f16);
        case Type::bf16: return convert_row<uint16_t>(bytes, width, out, float_from_bf16);
        case Type::i8: return convert_row<int8_t>(bytes, width, out, to_float);
        case Type::i16: return convert_row<int16_t>(bytes, width, out, to_float);
        case Type::i32: return convert_row<int32_t>(bytes, width, out, to_float);
        case Type::i64: return convert_row<int64_t>(bytes, width, out, to_float);
        case Type::f64: return convert_row<double>(bytes, width, out, to_float);
        default: break;
    }
    const TypeInfo& info = type_info(type);
    const BlockDecoder decode = block_decoder(type);
    CanonicalBlock blocks[kMaxCanonicalBlocks];
    for (int64_t i = 0; i < width; i += info.block, bytes += info.bytes) {
        decode(bytes, blocks);
        for (uint32_t b = 0; b < info.block / 32; ++b) expand(blocks[b], out + i + 32 * b);
    }
}

}  // namespace strata
