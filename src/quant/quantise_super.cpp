// Quantisers of the super-blocks of 256 values that have no grid: Q2_K to Q6_K, IQ4_XS, TQ1_0, TQ2_0.
#include <cstring>

#include "quant/grids.h"
#include "quant/quantise_search.h"

namespace strata::quantise {
namespace {

constexpr int kSuper = 256;

float sum(const float* v, int n) {
    float total = 0;
    for (int i = 0; i < n; ++i) total += v[i];
    return total;
}

/// Scales and minima of the groups of a super-block, quantised against d and dmin (both already halves).
template <int kGroups>
struct AffineGroups {
    float d, dmin;
    uint8_t scales[kGroups], minima[kGroups], codes[kSuper];
};

/// v ~ d * s * code - dmin * mu in groups of 256 / kGroups, codes 0 .. m, s and mu 0 .. levels. Writes d and dmin.
template <int kGroups>
AffineGroups<kGroups> affine_groups(const Row& row, int64_t at, int m, int levels, float emphasis, uint8_t* d_out,
                                    uint8_t* dmin_out) {
    constexpr int kSize = kSuper / kGroups;
    const float* v = row.x + at;
    AffineGroups<kGroups> out;
    float w[kSuper], scales[kGroups], minima[kGroups], group_weights[kGroups];
    error_weights(row, at, kSuper, mean_square(v, kSuper), emphasis, w);
    for (int g = 0; g < kGroups; ++g) {
        const Affine fit = search_affine(v + kSize * g, w + kSize * g, kSize, m, out.codes + kSize * g);
        scales[g] = fit.scale;
        minima[g] = fit.minimum;
        group_weights[g] = sum(w + kSize * g, kSize);
    }
    out.d = put_half(d_out, search_positive(scales, group_weights, kGroups, levels, out.scales));
    out.dmin = put_half(dmin_out, search_positive(minima, group_weights, kGroups, levels, out.minima));
    for (int g = 0; g < kGroups; ++g) {  // the codes again, now for the scales as they are stored
        const float scale = out.d * static_cast<float>(out.scales[g]);
        const float minimum = out.dmin * static_cast<float>(out.minima[g]);
        if (scale == 0) continue;
        for (int i = kSize * g; i < kSize * (g + 1); ++i)
            out.codes[i] = static_cast<uint8_t>(nearest((v[i] + minimum) / scale, 0, m));
    }
    return out;
}

/// The twelve bytes of eight 6-bit scales and minima of Q4_K and Q5_K.
void pack_k_scales(const uint8_t* s, const uint8_t* mu, uint8_t* a) {
    for (int j = 0; j < 4; ++j) {
        a[j] = static_cast<uint8_t>(s[j] | s[j + 4] >> 4 << 6);
        a[j + 4] = static_cast<uint8_t>(mu[j] | mu[j + 4] >> 4 << 6);
        a[j + 8] = static_cast<uint8_t>((s[j + 4] & 15) | (mu[j + 4] & 15) << 4);
    }
}

/// Nearest integer, ties away from zero, of a value within -1 .. 1, as 0, 1, 2.
uint8_t ternary(float value) {
    return static_cast<uint8_t>(static_cast<int>(std::round(value)) + 1);
}

/// The scale of a ternary block and its digits.
void ternary_digits(const float* v, uint8_t* d_out, uint8_t* digits) {
    const float d = std::fabs(extreme(v, kSuper));
    const float inverse = d > 0x1p-126f ? 1 / d : 0;
    put_half(d_out, d);
    for (int i = 0; i < kSuper; ++i) digits[i] = ternary(v[i] * inverse);
}

}  // namespace

void quantise_q2_k(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 84) {
        const auto groups = affine_groups<16>(row, at, 3, 15, 1, out + 80, out + 82);
        for (int g = 0; g < 16; ++g) out[g] = static_cast<uint8_t>(groups.scales[g] | groups.minima[g] << 4);
        pack_run128c(groups.codes, out + 16);
    }
}

void quantise_q3_k(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 110) {
        const float* v = row.x + at;
        float w[kSuper], scales[16], group_weights[16];
        int8_t codes[kSuper], s[16];
        error_weights(row, at, kSuper, mean_square(v, kSuper), 2, w);
        for (int g = 0; g < 16; ++g) {
            scales[g] = search_symmetric(v + 16 * g, w + 16 * g, 16, 4, codes + 16 * g);
            group_weights[g] = sum(w + 16 * g, 16);
        }
        const float d = put_half(out + 108, search_symmetric(scales, group_weights, 16, 32, s));
        uint8_t low[kSuper], third[kSuper];
        for (int i = 0; i < kSuper; ++i) {
            const float scale = d * static_cast<float>(s[i / 16]);
            const int code = (scale != 0 ? nearest(v[i] / scale, -4, 3) : codes[i]) + 4;
            low[i] = code & 3;
            third[i] = static_cast<uint8_t>(code >> 2);
        }
        pack_bits256(third, out);
        pack_run128c(low, out + 32);
        uint8_t* a = out + 96;
        std::memset(a, 0, 12);
        for (int j = 0; j < 16; ++j) {
            const int code = s[j] + 32;
            a[j % 8] |= static_cast<uint8_t>((code & 15) << (j < 8 ? 0 : 4));
            a[8 + j % 4] |= static_cast<uint8_t>(code >> 4 << 2 * (j / 4));
        }
    }
}

void quantise_q4_k(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 144) {
        const auto groups = affine_groups<8>(row, at, 15, 63, 2, out, out + 2);
        pack_k_scales(groups.scales, groups.minima, out + 4);
        pack_run64(groups.codes, out + 16);
    }
}

void quantise_q5_k(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 176) {
        const auto groups = affine_groups<8>(row, at, 31, 63, 2, out, out + 2);
        uint8_t low[kSuper], fifth[kSuper];
        for (int i = 0; i < kSuper; ++i) {
            low[i] = groups.codes[i] & 15;
            fifth[i] = groups.codes[i] >> 4;
        }
        pack_k_scales(groups.scales, groups.minima, out + 4);
        pack_bits256(fifth, out + 16);
        pack_run64(low, out + 48);
    }
}

void quantise_q6_k(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 210) {
        const float* v = row.x + at;
        float w[kSuper], scales[16];
        int8_t codes[kSuper];
        for (int i = 0; i < kSuper; ++i) w[i] = row.factor(at + i);
        for (int g = 0; g < 16; ++g) scales[g] = search_symmetric(v + 16 * g, w + 16 * g, 16, 32, codes + 16 * g);
        const float largest = extreme(scales, 16);
        const float inverse = largest != 0 ? -128 / largest : 0;
        const float d = put_half(out + 208, inverse != 0 ? 1 / inverse : 0);
        uint8_t low[kSuper], high[kSuper];
        for (int g = 0; g < 16; ++g) {
            const int s = nearest(inverse * scales[g], -128, 127);
            out[192 + g] = static_cast<uint8_t>(s);
            const float scale = d * static_cast<float>(s);
            for (int i = 16 * g; i < 16 * (g + 1); ++i) {
                const int code = (scale != 0 ? nearest(v[i] / scale, -32, 31) : codes[i]) + 32;
                low[i] = code & 15;
                high[i] = static_cast<uint8_t>(code >> 4);
            }
        }
        for (int k = 0; k < 2; ++k)  // RUN128N
            for (int r = 0; r < 64; ++r)
                out[64 * k + r] = static_cast<uint8_t>(low[128 * k + r] | low[128 * k + 64 + r] << 4);
        pack_run128c(high, out + 128);
    }
}

void quantise_iq4_xs(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 136) {
        const float* v = row.x + at;
        float w[kSuper], scales[8];
        error_weights(row, at, kSuper, mean_square(v, kSuper), 2, w);
        for (int g = 0; g < 8; ++g) scales[g] = search_nl(v + 32 * g, w + 32 * g, 32);
        const float largest = extreme(scales, 8);
        const float inverse = largest != 0 ? -32 / largest : 0;
        const float d = inverse != 0 ? 1 / inverse : 0;
        put_half(out, d);
        std::memset(out + 2, 0, 6);
        uint32_t top = 0;
        for (int g = 0; g < 8; ++g) {
            const int s = nearest(inverse * scales[g], -32, 31);
            top |= static_cast<uint32_t>((s + 32) >> 4) << 2 * g;
            out[4 + g / 2] |= static_cast<uint8_t>(((s + 32) & 15) << 4 * (g % 2));
            const float scale = d * static_cast<float>(s);
            const float inverse_scale = scale != 0 ? 1 / scale : 0;
            uint8_t codes[32];
            for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(nl_code(v[32 * g + i] * inverse_scale));
            pack_split32(codes, out + 8 + 16 * g);
        }
        put16(out + 2, top);
    }
}

void quantise_tq1_0(const Row& row, uint8_t* out) {
    // Five digits of base 3 a byte, as a fraction of 256 rounded up; the last four bytes have four digits.
    const auto pack = [](const uint8_t* digits, int stride, int count) {
        int number = 0;
        for (int t = 0; t < 5; ++t) number = 3 * number + (t < count ? digits[stride * t] : 0);
        return static_cast<uint8_t>((number * 256 + 242) / 243);
    };
    for (int64_t at = 0; at < row.width; at += kSuper, out += 54) {
        uint8_t digits[kSuper];
        ternary_digits(row.x + at, out + 52, digits);
        for (int r = 0; r < 32; ++r) out[r] = pack(digits + r, 32, 5);
        for (int r = 0; r < 16; ++r) out[32 + r] = pack(digits + 160 + r, 16, 5);
        for (int r = 0; r < 4; ++r) out[48 + r] = pack(digits + 240 + r, 4, 4);
    }
}

void quantise_tq2_0(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 66) {
        uint8_t digits[kSuper];
        ternary_digits(row.x + at, out + 64, digits);
        pack_run128c(digits, out);
    }
}

}  // namespace strata::quantise
