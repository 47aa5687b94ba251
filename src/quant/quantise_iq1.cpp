// Quantisers of IQ1_S and IQ1_M: levels -1 + e, e, 1 + e, where the sign of e = 1/8 is chosen for 32 or 8 values.
#include <array>
#include <cstring>
#include <numeric>

#include "quant/grids.h"
#include "quant/quantise_grid.h"
#include "quant/quantise_search.h"

namespace strata::quantise {
namespace {

constexpr int kSuper = 256;
constexpr float kShift = 0.125f;

const Grid& grid_iq1() {
    static const Grid grid(kGridIq1, 8, 2, 3, -1, 1);
    return grid;
}

/// A group's scale and, for each part of it that chooses a sign, whether e is negative.
struct GroupScale {
    float scale = 0;
    bool minus[2] = {false, false};
};

/// The scale of `n` values whose `parts` equal parts choose their own sign of e. Sorted by value, the values that take
/// the levels -1, 0, 1 are three runs: every split is tried.
GroupScale search_scale(const float* v, const float* w, int n, int parts) {
    if (std::fabs(extreme(v, n)) < 1e-15f) return {};
    std::array<int, 32> order;
    std::iota(order.begin(), order.begin() + n, 0);
    std::stable_sort(order.begin(), order.begin() + n, [&](int a, int b) { return v[a] < v[b]; });
    float sum_x[2][33] = {},
          sum_w[2][33] = {};  // [part][count]: over the first `count` sorted values that are in the part
    for (int p = 0; p < parts; ++p)
        for (int k = 0; k < n; ++k) {
            const int i = order[static_cast<size_t>(k)];
            const bool here = i / (n / parts) == p;
            sum_x[p][k + 1] = sum_x[p][k] + (here ? w[i] * v[i] : 0);
            sum_w[p][k + 1] = sum_w[p][k] + (here ? w[i] : 0);
        }
    GroupScale out;
    Fit best;
    for (int first = 0; first <= n; ++first)
        for (int second = first; second <= n; ++second)
            for (int choice = 0; choice < 1 << parts; ++choice) {
                Fit fit;
                for (int p = 0; p < parts; ++p) {
                    const float e = choice >> p & 1 ? -kShift : kShift;
                    const float *x = sum_x[p], *u = sum_w[p];
                    fit.a += x[first] * (e - 1) + (x[second] - x[first]) * e + (x[n] - x[second]) * (e + 1);
                    fit.b += u[first] * (e - 1) * (e - 1) + (u[second] - u[first]) * e * e +
                             (u[n] - u[second]) * (e + 1) * (e + 1);
                }
                if (!fit.better_than(best)) continue;
                best = fit;
                const bool mirrored = fit.a < 0;  // a negative scale: levels and e change sign together
                for (int p = 0; p < parts; ++p) out.minus[p] = (choice >> p & 1) != mirrored;
            }
    out.scale = std::fabs(best.scale());
    return out;
}

/// The nearest vector of eight values.
int nearest_vector(const float* v, const float* w, float scale, bool minus) {
    const float shift = scale * (minus ? -kShift : kShift);
    float y[8];
    for (int j = 0; j < 8; ++j) y[j] = v[j] - shift;
    return grid_iq1().nearest(y, w, scale);
}

void add_vector(Fit& fit, const float* v, const float* w, int index, bool minus, float factor) {
    for (int j = 0; j < 8; ++j) fit.add(w[j], v[j], factor * (grid_iq1().value(index, j) + (minus ? -kShift : kShift)));
}

/// A super-block, quantised. Vector k holds the values 8k .. 8k+7.
struct Iq1Block {
    float d;  // of the scales 2n + 1
    uint8_t n[16];
    uint16_t indices[32];
    bool minus[32];
};

Iq1Block quantise_super(const Row& row, int64_t at, int group, int parts, bool refit, float stored_scale) {
    const float* v = row.x + at;
    const int groups = kSuper / group, vectors = group / 8;
    Iq1Block out;
    float w[kSuper], scales[16] = {};
    error_weights(row, at, kSuper, mean_square(v, kSuper), 2, w);
    for (int g = 0; g < groups; ++g) {
        const GroupScale found = search_scale(v + group * g, w + group * g, group, parts);
        Fit fit;
        for (int k = vectors * g; k < vectors * (g + 1); ++k) {
            out.minus[k] = found.minus[(k - vectors * g) * parts / vectors];
            out.indices[k] = 0;
            if (found.scale <= 0) continue;
            out.indices[k] = static_cast<uint16_t>(nearest_vector(v + 8 * k, w + 8 * k, found.scale, out.minus[k]));
            add_vector(fit, v + 8 * k, w + 8 * k, out.indices[k], out.minus[k], 1);
        }
        scales[g] = fit.a > 0 ? fit.scale() : found.scale;
    }
    float d = *std::max_element(scales, scales + groups) / 15;
    for (int g = 0; g < groups; ++g)
        out.n[g] = static_cast<uint8_t>(d > 0 ? nearest((scales[g] / d - 1) / 2, 0, 7) : 0);
    if (refit) {
        Fit fit;
        for (int k = 0; k < 32; ++k) {
            const auto scale = static_cast<float>(2 * out.n[k / vectors] + 1);
            add_vector(fit, v + 8 * k, w + 8 * k, out.indices[k], out.minus[k], scale);
        }
        if (fit.a > 0) d = fit.scale();
    }
    out.d = d * stored_scale;
    return out;
}

}  // namespace

void quantise_iq1_s(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 50) {
        const Iq1Block block = quantise_super(row, at, 32, 1, false, 1.125f);
        put_half(out, block.d);
        for (int g = 0; g < 8; ++g) {
            uint32_t word = static_cast<uint32_t>(block.n[g]) << 12 | (block.minus[4 * g] ? 0x8000u : 0u);
            for (int k = 0; k < 4; ++k) {
                out[2 + 4 * g + k] = static_cast<uint8_t>(block.indices[4 * g + k]);
                word |= static_cast<uint32_t>(block.indices[4 * g + k] >> 8) << 3 * k;
            }
            put16(out + 34 + 2 * g, word);
        }
    }
}

void quantise_iq1_m(const Row& row, uint8_t* out) {
    for (int64_t at = 0; at < row.width; at += kSuper, out += 56) {
        const Iq1Block block = quantise_super(row, at, 16, 2, true, 1.1125f);
        std::memset(out + 32, 0, 16);
        for (int k = 0; k < 32; ++k) {
            out[k] = static_cast<uint8_t>(block.indices[k]);
            const int nibble = block.indices[k] >> 8 | (block.minus[k] ? 8 : 0);
            out[32 + k / 2] |= static_cast<uint8_t>(nibble << 4 * (k % 2));
        }
        uint8_t half[2];
        put_half(half, block.d);
        for (int j = 0; j < 4; ++j) {
            uint32_t word = static_cast<uint32_t>(half[j / 2] >> 4 * (j % 2) & 15) << 12;
            for (int t = 0; t < 4; ++t) word |= static_cast<uint32_t>(block.n[4 * j + t]) << 3 * t;
            put16(out + 48 + 2 * j, word);
        }
    }
}

}  // namespace strata::quantise
