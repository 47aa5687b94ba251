// Quantisers of the types with blocks of 32, 64 and 128 values.
#include <cstring>

#include "quant/grids.h"
#include "quant/quantise_search.h"

namespace strata::quantise {
namespace {

/// Q4_0 (m = 8) and Q5_0 (m = 16): d, the fifth bits, nibbles.
void symmetric_blocks(const Row& row, int m, uint8_t* out) {
    const float square = mean_square(row.x, row.width);
    for (int64_t at = 0; at < row.width; at += 32) {
        float w[32];
        int8_t codes[32];
        uint8_t nibbles[32];
        error_weights(row, at, 32, square, 1, w);
        put_half(out, search_symmetric(row.x + at, w, 32, m, codes));
        out += 2;
        uint32_t fifth = 0;
        for (int i = 0; i < 32; ++i) {
            const int code = codes[i] + m;
            nibbles[i] = code & 15;
            fifth |= static_cast<uint32_t>(code >> 4) << i;
        }
        if (m == 16) put32(out, fifth), out += 4;
        pack_split32(nibbles, out);
        out += 16;
    }
}

/// Q4_1 (m = 15) and Q5_1 (m = 31): d, the minimum, the fifth bits, nibbles.
void affine_blocks(const Row& row, int m, uint8_t* out) {
    const float square = mean_square(row.x, row.width);
    for (int64_t at = 0; at < row.width; at += 32) {
        float w[32];
        uint8_t codes[32], nibbles[32];
        error_weights(row, at, 32, square, 1, w);
        const Affine fit = search_affine(row.x + at, w, 32, m, codes);
        put_half(out, fit.scale);
        put_half(out + 2, -fit.minimum);
        out += 4;
        uint32_t fifth = 0;
        for (int i = 0; i < 32; ++i) {
            nibbles[i] = codes[i] & 15;
            fifth |= static_cast<uint32_t>(codes[i] >> 4) << i;
        }
        if (m == 31) put32(out, fifth), out += 4;
        pack_split32(nibbles, out);
        out += 16;
    }
}

/// The code of the E2M1 value nearest to `value`, the first of equals.
uint8_t e2m1_code(float value) {
    int best = 0;
    for (int code = 1; code < 16; ++code)
        if (std::fabs(static_cast<float>(kValuesE2m1[static_cast<size_t>(code)]) - value) <
            std::fabs(static_cast<float>(kValuesE2m1[static_cast<size_t>(best)]) - value))
            best = code;
    return static_cast<uint8_t>(best);
}

/// `value` >= 0 as an E4M3 byte: nearest, ties up, at most 448.
uint8_t e4m3_byte(float value) {
    if (value >= 448) return 0x7e;
    if (value < 0x1p-6f) return static_cast<uint8_t>(value * 512 + 0.5f);
    return static_cast<uint8_t>(((float_bits(value) + 0x80000) >> 20) - ((127 - 7) << 3));
}

/// Nearest integer, ties away from zero.
int round_away(float value) {
    return static_cast<int>(std::round(value));
}

}  // namespace

void quantise_q4_0(const Row& row, uint8_t* out) {
    symmetric_blocks(row, 8, out);
}
void quantise_q5_0(const Row& row, uint8_t* out) {
    symmetric_blocks(row, 16, out);
}
void quantise_q4_1(const Row& row, uint8_t* out) {
    affine_blocks(row, 15, out);
}
void quantise_q5_1(const Row& row, uint8_t* out) {
    affine_blocks(row, 31, out);
}

void quantise_q8_0(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += 32, out += 34) {
        const float d = std::fabs(extreme(row.x + at, 32)) / 127;
        const float inverse = d > 0x1p-126f ? 1 / d : 0;
        put_half(out, d);
        for (int i = 0; i < 32; ++i) out[2 + i] = static_cast<uint8_t>(round_away(row.x[at + i] * inverse));
    }
}

void quantise_iq4_nl(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += 32, out += 18) {
        const float* v = row.x + at;
        float w[32];
        uint8_t codes[32];
        error_weights(row, at, 32, mean_square(v, 32), 2, w);
        const float scale = search_nl(v, w, 32);
        const float inverse = scale != 0 ? 1 / scale : 0;
        put_half(out, scale);
        for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(nl_code(v[i] * inverse));
        pack_split32(codes, out + 2);
    }
}

void quantise_mxfp4(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += 32, out += 17) {
        const float largest = std::fabs(extreme(row.x + at, 32));
        const int exponent = largest > 0 ? std::min(std::max(std::ilogb(largest) + 125, 0), 254) : 0;
        const float d = mxfp4_scale(static_cast<uint8_t>(exponent));
        uint8_t codes[32];
        for (int i = 0; i < 32; ++i) codes[i] = e2m1_code(row.x[at + i] / d);
        out[0] = static_cast<uint8_t>(exponent);
        pack_split32(codes, out + 1);
    }
}

void quantise_nvfp4(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += 64, out += 36)
        for (int group = 0; group < 4; ++group) {
            const float* v = row.x + at + 16 * group;
            out[group] = e4m3_byte(std::fabs(extreme(v, 16)) / 6);
            const float d = nvfp4_scale(out[group]);
            uint8_t codes[16];
            for (int i = 0; i < 16; ++i) codes[i] = d > 0 ? e2m1_code(v[i] / d) : 0;
            for (int r = 0; r < 8; ++r) out[4 + 8 * group + r] = static_cast<uint8_t>(codes[r] | codes[r + 8] << 4);
        }
}

void quantise_q1_0(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += 128, out += 18) {
        float sum = 0;
        for (int i = 0; i < 128; ++i) sum += std::fabs(row.x[at + i]);
        put_half(out, sum / 128);
        std::memset(out + 2, 0, 16);
        for (int i = 0; i < 128; ++i)
            if (row.x[at + i] >= 0) out[2 + i / 8] |= static_cast<uint8_t>(1 << i % 8);
    }
}

void quantise_q2_0(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += 64, out += 18) {
        const float d = std::fabs(extreme(row.x + at, 64));
        const float inverse = d > 0x1p-126f ? 1 / d : 0;
        put_half(out, d);
        std::memset(out + 2, 0, 16);
        for (int i = 0; i < 64; ++i)  // -1, 0, 1: the code 3 (twice d) is not reached from the largest magnitude
            out[2 + i / 4] |= static_cast<uint8_t>((round_away(row.x[at + i] * inverse) + 1) << 2 * (i % 4));
    }
}

}  // namespace strata::quantise
