// Activations as small integers: the form A8, the other operand of every product with quantised weights, and the Q8_0
// rows of a KV cache. docs/numerics.md gives the definitions; these functions are the scalar reference of both.
#pragma once

#include <cstdint>
#include <vector>

namespace strata {

/// Rows of activations as A8: per 32 inputs a float32 scale d and 32 codes, value = d * code, |code| <= 127. A view;
/// rows are contiguous. Loading a model refuses quantised matrices whose width is not a multiple of 32.
struct QuantisedRows {
    int rows = 0;                  // tokens
    int width = 0;                 // inputs of a row, a multiple of 32
    int8_t* values = nullptr;      // [rows, width]
    float* scales = nullptr;       // [rows, width / 32]
    int16_t* half_sums = nullptr;  // [rows, width / 16], the codes of 16 inputs added up

    int8_t* row_values(int row) const { return values + static_cast<int64_t>(row) * width; }
    float* row_scales(int row) const { return scales + static_cast<int64_t>(row) * (width / 32); }
    int16_t* row_half_sums(int row) const { return half_sums + static_cast<int64_t>(row) * (width / 16); }
};

/// One row to A8. values: [width], scales: [width / 32], half_sums: [width / 16]; width is a multiple of 32.
/// A block whose largest magnitude is below 1e-30 becomes zero; one with an infinity or NaN gets a NaN scale and zero
/// values, so that every product with it is NaN.
void quantise_a8(const float* x, int width, int8_t* values, float* scales, int16_t* half_sums);

/// Rows in A8 that own their memory, for callers off the hot path.
class A8Rows {
  public:
    A8Rows(int rows, int width);
    A8Rows(const float* x, int rows, int width);  // x: [rows, width]

    void set_row(int row, const float* x);
    QuantisedRows view() { return {rows_, width_, values_.data(), scales_.data(), half_sums_.data()}; }

  private:
    int rows_, width_;
    std::vector<int8_t> values_;
    std::vector<float> scales_;
    std::vector<int16_t> half_sums_;
};

/// Bytes of a block of 32 values in Q8_0: a half scale, then 32 signed bytes.
inline constexpr int kQ8_0Bytes = 34;

/// A row of a KV cache to Q8_0 by the even rule: scale = max|x| / 127 in float32, value = rne(x * (127 / max|x|)), the
/// scale stored as a half. out: width / 32 * 34 bytes; width is a multiple of 32. Magnitudes above 8.3e6 overflow the
/// half.
void quantise_q8_0_row(const float* x, int width, uint8_t* out);

/// The values of such a row: half scale times byte, exact in float32.
void dequantise_q8_0_row(const uint8_t* row, int width, float* out);

}  // namespace strata
