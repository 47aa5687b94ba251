// Inside of quantise_*.cpp: the weighted least-squares searches for scales and codes that the types share, and the ways
// in which blocks pack codes. All sums run in index order in float32. Source: specs page quants, section 7.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "quant/half.h"

namespace strata::quantise {

/// One row on its way into blocks.
struct Row {
    const float* x;           // [width]
    const float* importance;  // [width] or null
    int64_t width;

    float factor(int64_t i) const { return importance ? importance[i] : 1.0f; }
};

/// Nearest integer, ties to even, within low .. high.
inline int nearest(float value, int low, int high) {
    const float clamped = std::min(std::max(value, static_cast<float>(low)), static_cast<float>(high));
    return static_cast<int>(round_even(clamped));
}

/// The value of largest magnitude, the first of them, with its sign.
float extreme(const float* v, int n);

/// Writes a half, saturated instead of infinite, and returns the value that it stands for.
float put_half(uint8_t* out, float value);
void put16(uint8_t* out, uint32_t value);
void put32(uint8_t* out, uint32_t value);

/// w[i] = q * sqrt(emphasis * mean square + x^2) for the n values at `start`: large values and important columns count.
void error_weights(const Row& row, int64_t start, int n, float mean_square, float emphasis, float* w);
float mean_square(const float* v, int64_t n);

/// Sums of a weighted fit v ~ scale * code. The error falls as a^2 / b grows.
struct Fit {
    float a = 0, b = 0;

    void add(float weight, float value, float code) {
        a += weight * value * code;
        b += weight * code * code;
    }
    float scale() const { return b > 0 ? a / b : 0; }
    bool better_than(const Fit& other) const {
        return b > 0 && (other.b <= 0 || double{a} * a * other.b > double{other.a} * other.a * b);
    }
};

/// v ~ scale * code with codes -m .. m-1: the candidate scale with the least weighted error. Returns the scale.
float search_symmetric(const float* v, const float* w, int n, int m, int8_t* codes);

/// v ~ scale * code - minimum with codes 0 .. m and minimum >= 0.
struct Affine {
    float scale, minimum;
};
Affine search_affine(const float* v, const float* w, int n, int m, uint8_t* codes);

/// v ~ scale * code, v >= 0, codes 0 .. m: for the scales of groups. Returns the scale.
float search_positive(const float* v, const float* w, int n, int m, uint8_t* codes);

/// v ~ scale * kValuesNl[code]. Returns the scale; nl_code then gives codes.
float search_nl(const float* v, const float* w, int n);
/// The code of the nearest table value, a tie goes up.
int nl_code(float value);

/// 32 codes 0..15 to 16 bytes in the order SPLIT32: element r low, r + 16 high.
void pack_split32(const uint8_t* codes, uint8_t* out);
/// 256 codes 0..15 to 128 bytes in the order RUN64: of every 64 the first 32 low, the others high.
void pack_run64(const uint8_t* codes, uint8_t* out);
/// 256 codes 0..3 to 64 bytes in the order RUN128C: of every 128, runs of 32 in bit pairs 0, 2, 4, 6.
void pack_run128c(const uint8_t* codes, uint8_t* out);
/// 256 bits to 32 bytes in the order BITS256: bit p of byte r is element 32p + r.
void pack_bits256(const uint8_t* bits, uint8_t* out);

/// Rows of the types of one family (Row to bytes); quantise_row picks.
using RowQuantiser = void (*)(const Row& row, uint8_t* out);

void quantise_q4_0(const Row& row, uint8_t* out);  // quantise_small.cpp: blocks of 32 to 128
void quantise_q4_1(const Row& row, uint8_t* out);
void quantise_q5_0(const Row& row, uint8_t* out);
void quantise_q5_1(const Row& row, uint8_t* out);
void quantise_q8_0(const Row& row, uint8_t* out);
void quantise_iq4_nl(const Row& row, uint8_t* out);
void quantise_mxfp4(const Row& row, uint8_t* out);
void quantise_nvfp4(const Row& row, uint8_t* out);
void quantise_q1_0(const Row& row, uint8_t* out);
void quantise_q2_0(const Row& row, uint8_t* out);

void quantise_q2_k(const Row& row, uint8_t* out);  // quantise_super.cpp: super-blocks without grids
void quantise_q3_k(const Row& row, uint8_t* out);
void quantise_q4_k(const Row& row, uint8_t* out);
void quantise_q5_k(const Row& row, uint8_t* out);
void quantise_q6_k(const Row& row, uint8_t* out);
void quantise_iq4_xs(const Row& row, uint8_t* out);
void quantise_tq1_0(const Row& row, uint8_t* out);
void quantise_tq2_0(const Row& row, uint8_t* out);

void quantise_iq2_xxs(const Row& row, uint8_t* out);  // quantise_grid.cpp: super-blocks of grid vectors
void quantise_iq2_xs(const Row& row, uint8_t* out);
void quantise_iq2_s(const Row& row, uint8_t* out);
void quantise_iq3_xxs(const Row& row, uint8_t* out);
void quantise_iq3_s(const Row& row, uint8_t* out);
void quantise_iq1_s(const Row& row, uint8_t* out);  // quantise_iq1.cpp
void quantise_iq1_m(const Row& row, uint8_t* out);

}  // namespace strata::quantise
