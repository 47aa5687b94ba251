// Small floating-point formats and their exact conversions: F16, BF16, and the scale bytes of MXFP4 and NVFP4. Portable
// (no F16C) and static, so that a copy compiled for a wider instruction set never replaces this room's own.
#pragma once

#include <cstdint>

namespace strata {

static constexpr uint32_t float_bits(float value) {
    return __builtin_bit_cast(uint32_t, value);
}
static constexpr float float_from_bits(uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}

/// The nearest integer, ties to even, of a value below 2^22 in magnitude: the sum's last bit is worth one.
static constexpr float round_even(float value) {
    return (value + 0x1.8p23f) - 0x1.8p23f;
}

/// IEEE half to float. Exact; subnormals, infinities and NaN are kept.
static constexpr float float_from_f16(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
    if (magnitude >= 0x0f800000) return float_from_bits(sign | magnitude | 0x7f800000);
    // Read as a float the half's bits are 2^112 times too small; the product is exact, for subnormals as well.
    return float_from_bits(sign | float_bits(float_from_bits(magnitude) * 0x1p112f));
}

/// Float to IEEE half: to nearest, ties to even; 65,520 and above become infinity.
static constexpr uint16_t f16_from_float(float value) {
    const uint32_t bits = float_bits(value);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000) return sign | 0x7c00;
    if (magnitude < 0x38800000)  // subnormal: beside 0.5 the last bit of a float is worth 2^-24, as in such a half
        return static_cast<uint16_t>(sign | (float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000));
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | (magnitude - 0x38000000) >> 13);
}

static constexpr float float_from_bf16(uint16_t value) {
    return float_from_bits(static_cast<uint32_t>(value) << 16);
}

/// Float to BF16: to nearest, ties to even; a NaN stays one.
static constexpr uint16_t bf16_from_float(float value) {
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// MXFP4's shared exponent, halved because its code table is doubled: 2^(exponent - 128). 0 and 1 give subnormals.
static constexpr float mxfp4_scale(uint8_t exponent) {
    return float_from_bits(exponent < 2 ? 0x00200000u << exponent : static_cast<uint32_t>(exponent - 1) << 23);
}

/// NVFP4's scale byte (unsigned E4M3), halved because its code table is doubled. 0x7f, the NaN of the format, is 0.
static constexpr float nvfp4_scale(uint8_t byte) {
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    if (byte == 0x7f) return 0;
    if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
    return float_from_bits(static_cast<uint32_t>(exponent + 127 - 8) << 23 | static_cast<uint32_t>(mantissa) << 20);
}

}  // namespace strata
