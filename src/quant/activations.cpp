#include "quant/activations.h"

#include <cstring>

#include "quant/half.h"

namespace strata {
namespace {

/// The largest magnitude of 32 values. Compared as integers, so the order does not matter and NaN is the largest of
/// all.
float largest_magnitude(const float* x) {
    uint32_t largest = 0;
    for (int i = 0; i < 32; ++i) {
        const uint32_t magnitude = float_bits(x[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return float_from_bits(largest);
}

/// 32 values as integers -127..127 times the scale that is returned.
float quantise_block(const float* x, int8_t* values) {
    const float largest = largest_magnitude(x);
    if (largest < 1e-30f || !(largest <= 0x1.fffffep127f)) {
        std::memset(values, 0, 32);
        return largest < 1e-30f ? 0.0f : float_from_bits(0x7fc00000);
    }
    const float inverse = 127.0f / largest;
    for (int i = 0; i < 32; ++i) values[i] = static_cast<int8_t>(round_even(x[i] * inverse));
    return largest / 127.0f;
}

int16_t sum16(const int8_t* values) {
    int sum = 0;
    for (int i = 0; i < 16; ++i) sum += values[i];
    return static_cast<int16_t>(sum);
}

}  // namespace

void quantise_a8(const float* x, int width, int8_t* values, float* scales, int16_t* half_sums) {
    for (int b = 0; b < width / 32; ++b) {
        scales[b] = quantise_block(x + 32 * b, values + 32 * b);
        half_sums[2 * b] = sum16(values + 32 * b);
        half_sums[2 * b + 1] = sum16(values + 32 * b + 16);
    }
}

A8Rows::A8Rows(int rows, int width)
    : rows_(rows),
      width_(width),
      values_(static_cast<size_t>(rows) * width),
      scales_(static_cast<size_t>(rows) * (width / 32)),
      half_sums_(static_cast<size_t>(rows) * (width / 16)) {}

A8Rows::A8Rows(const float* x, int rows, int width) : A8Rows(rows, width) {
    for (int row = 0; row < rows; ++row) set_row(row, x + static_cast<int64_t>(row) * width);
}

void A8Rows::set_row(int row, const float* x) {
    const auto r = static_cast<size_t>(row);
    quantise_a8(x, width_, values_.data() + r * width_, scales_.data() + r * (width_ / 32),
                half_sums_.data() + r * (width_ / 16));
}

void quantise_q8_0_row(const float* x, int width, uint8_t* out) {
    for (int b = 0; b < width / 32; ++b, x += 32, out += kQ8_0Bytes) {
        int8_t values[32];
        const uint16_t scale = f16_from_float(quantise_block(x, values));
        out[0] = static_cast<uint8_t>(scale);
        out[1] = static_cast<uint8_t>(scale >> 8);
        std::memcpy(out + 2, values, 32);
    }
}

void dequantise_q8_0_row(const uint8_t* row, int width, float* out) {
    for (int b = 0; b < width / 32; ++b, row += kQ8_0Bytes, out += 32) {
        const float scale = float_from_f16(static_cast<uint16_t>(row[0] | row[1] << 8));
        for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(row[2 + i]));
    }
}

}  // namespace strata
