#include "quant/quantise_search.h"

#include <array>

#include "quant/grids.h"

namespace strata::quantise {
namespace {

constexpr float kNothing = 1e-15f;  // below it a group counts as zero: no half scale could hold it

}  // namespace

float extreme(const float* v, int n) {
    float value = 0;
    for (int i = 0; i < n; ++i)
        if (std::fabs(v[i]) > std::fabs(value)) value = v[i];
    return value;
}

float put_half(uint8_t* out, float value) {
    const uint16_t half = f16_from_float(std::min(std::max(value, -65504.0f), 65504.0f));
    put16(out, half);
    return float_from_f16(half);
}

void put16(uint8_t* out, uint32_t value) {
    out[0] = static_cast<uint8_t>(value);
    out[1] = static_cast<uint8_t>(value >> 8);
}

void put32(uint8_t* out, uint32_t value) {
    put16(out, value);
    put16(out + 2, value >> 16);
}

float mean_square(const float* v, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += v[i] * v[i];
    return sum / static_cast<float>(n);
}

void error_weights(const Row& row, int64_t start, int n, float mean_square, float emphasis, float* w) {
    for (int i = 0; i < n; ++i) {
        const float v = row.x[start + i];
        w[i] = row.factor(start + i) * std::sqrt(emphasis * mean_square + v * v);
    }
}

float search_symmetric(const float* v, const float* w, int n, int m, int8_t* codes) {
    const float largest = extreme(v, n);
    std::fill_n(codes, n, 0);
    if (std::fabs(largest) < kNothing) return 0;
    Fit best;
    for (const int k : {0, -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
        const float inverse = -(static_cast<float>(m) + 0.1f * static_cast<float>(k)) / largest;
        Fit fit;
        for (int i = 0; i < n; ++i) fit.add(w[i], v[i], static_cast<float>(nearest(inverse * v[i], -m, m - 1)));
        if (!fit.better_than(best)) continue;
        best = fit;
        for (int i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(nearest(inverse * v[i], -m, m - 1));
    }
    return best.scale();
}

Affine search_affine(const float* v, const float* w, int n, int m, uint8_t* codes) {
    float low = 0, high = v[0], sum_w = 0, sum_x = 0;
    for (int i = 0; i < n; ++i) {
        low = std::min(low, v[i]);
        high = std::max(high, v[i]);
        sum_w += w[i];
        sum_x += w[i] * v[i];
    }
    std::fill_n(codes, n, 0);
    if (high - low < kNothing) return {0, -low};

    const auto error = [&](float scale, float offset, const uint8_t* c) {
        float sum = 0;
        for (int i = 0; i < n; ++i) {
            const float off = scale * static_cast<float>(c[i]) + offset - v[i];
            sum += w[i] * off * off;
        }
        return sum;
    };
    float inverse = static_cast<float>(m) / (high - low);
    float scale = 1 / inverse, offset = low;
    for (int i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(nearest(inverse * (v[i] - low), 0, m));
    float best = error(scale, offset, codes);
    uint8_t trial[32];
    for (int k = 0; k <= 36; ++k) {
        inverse = (-0.9f + 0.05f * static_cast<float>(k) + static_cast<float>(m)) / (high - offset);
        float sum_c = 0, sum_c2 = 0, sum_xc = 0;
        for (int i = 0; i < n; ++i) {
            trial[i] = static_cast<uint8_t>(nearest(inverse * (v[i] - offset), 0, m));
            const auto c = static_cast<float>(trial[i]);
            sum_c += w[i] * c;
            sum_c2 += w[i] * c * c;
            sum_xc += w[i] * c * v[i];
        }
        const float determinant = sum_w * sum_c2 - sum_c * sum_c;
        if (!(determinant > 0)) continue;
        float fitted_scale = (sum_w * sum_xc - sum_x * sum_c) / determinant;
        float fitted_offset = (sum_c2 * sum_x - sum_c * sum_xc) / determinant;
        if (fitted_offset > 0) {
            fitted_offset = 0;
            fitted_scale = sum_xc / sum_c2;
        }
        const float fitted = error(fitted_scale, fitted_offset, trial);
        if (!(fitted < best)) continue;
        best = fitted;
        scale = fitted_scale;
        offset = fitted_offset;
        std::copy_n(trial, n, codes);
    }
    return {scale, -offset};
}

float search_positive(const float* v, const float* w, int n, int m, uint8_t* codes) {
    const float largest = *std::max_element(v, v + n);
    std::fill_n(codes, n, 0);
    if (largest < kNothing) return 0;

    float inverse = 0, best = 0;
    for (const int k : {0, -4, -3, -2, -1, 1, 2, 3, 4}) {
        const float trial = (static_cast<float>(m) + 0.1f * static_cast<float>(k)) / largest;
        float error = 0;
        for (int i = 0; i < n; ++i) {
            const float off = v[i] - static_cast<float>(nearest(trial * v[i], 0, m)) / trial;
            error += w[i] * off * off;
        }
        if (inverse == 0 || error < best) best = error, inverse = trial;
    }
    Fit fit;
    for (int i = 0; i < n; ++i) {
        codes[i] = static_cast<uint8_t>(nearest(inverse * v[i], 0, m));
        fit.add(w[i], v[i], codes[i]);
    }
    // Coordinate steps: each code moves to where the fit of the others would put it, as long as that helps.
    for (int pass = 0; pass < 5; ++pass) {
        bool changed = false;
        for (int i = 0; i < n; ++i) {
            Fit others = fit;
            others.add(-w[i], v[i], codes[i]);
            if (!(others.a > 0) || !(others.b > 0)) continue;
            const int code = nearest(v[i] * others.b / others.a, 0, m);
            if (code == codes[i]) continue;
            others.add(w[i], v[i], static_cast<float>(code));
            if (!others.better_than(fit)) continue;
            codes[i] = static_cast<uint8_t>(code);
            fit = others;
            changed = true;
        }
        if (!changed) break;
    }
    return fit.scale();
}

int nl_code(float value) {
    int code = 0;
    while (code < 15 && value - static_cast<float>(kValuesNl[code]) >= static_cast<float>(kValuesNl[code + 1]) - value)
        ++code;
    return code;
}

float search_nl(const float* v, const float* w, int n) {
    const float largest = extreme(v, n);
    if (std::fabs(largest) < kNothing) return 0;
    // First the extreme on the side of +113, then on the side of -127 (the table is not symmetric).
    std::array<float, 16> inverses;
    inverses[0] = 1 / (largest / 127);
    for (int k = -7; k <= 7; ++k) inverses[static_cast<size_t>(k + 8)] = static_cast<float>(k - 127) / largest;
    Fit best;
    for (const float inverse : inverses) {
        Fit fit;
        for (int i = 0; i < n; ++i) fit.add(w[i], v[i], kValuesNl[static_cast<size_t>(nl_code(inverse * v[i]))]);
        if (fit.better_than(best)) best = fit;
    }
    return best.scale();
}

void pack_split32(const uint8_t* codes, uint8_t* out) {
    for (int r = 0; r < 16; ++r) out[r] = static_cast<uint8_t>(codes[r] | codes[r + 16] << 4);
}

void pack_run64(const uint8_t* codes, uint8_t* out) {
    for (int k = 0; k < 4; ++k)
        for (int r = 0; r < 32; ++r)
            out[32 * k + r] = static_cast<uint8_t>(codes[64 * k + r] | codes[64 * k + 32 + r] << 4);
}

void pack_run128c(const uint8_t* codes, uint8_t* out) {
    for (int k = 0; k < 2; ++k)
        for (int r = 0; r < 32; ++r) {
            const uint8_t* c = codes + 128 * k + r;
            out[32 * k + r] = static_cast<uint8_t>(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
        }
}

void pack_bits256(const uint8_t* bits, uint8_t* out) {
    for (int r = 0; r < 32; ++r) {
        int byte = 0;
        for (int p = 0; p < 8; ++p) byte |= bits[32 * p + r] << p;
        out[r] = static_cast<uint8_t>(byte);
    }
}

}  // namespace strata::quantise
