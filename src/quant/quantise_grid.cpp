// Quantisers of IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S: magnitudes become grid vectors, signs are kept apart.
#include "quant/quantise_grid.h"

#include <array>
#include <cstring>

#include "quant/grids.h"
#include "quant/quantise_search.h"

namespace strata::quantise {

Grid::Grid(std::span<const uint16_t> codes, int dim, int bits, int levels, float first, float step)
    : codes_(codes), dim_(dim), bits_(bits), levels_(levels), level_mask_((1 << bits) - 1), first_(first), step_(step) {
    for (int i = 0; i < static_cast<int>(codes.size()); ++i) {
        const int upper = codes[static_cast<size_t>(i)] >> bits * dim / 2;
        if (groups_.empty() || groups_.back().upper != upper) groups_.push_back({upper, i, i});
        groups_.back().end = i + 1;
    }
}

int Grid::nearest(const float* y, const float* w, float scale) const {
    // The nearest level of every element by itself is the best there is; often it is on the grid.
    uint32_t ideal = 0;
    for (int j = 0; j < dim_; ++j) {
        const int level = quantise::nearest((y[j] / scale - first_) / step_, 0, levels_ - 1);
        ideal |= static_cast<uint32_t>(level) << bits_ * j;
    }
    const auto found = std::lower_bound(codes_.begin(), codes_.end(), ideal);
    if (found != codes_.end() && *found == ideal) return static_cast<int>(found - codes_.begin());

    // Distances of all codes of half a vector; a vector's is the sum of two. A group whose upper half alone is farther
    // than the best so far is skipped.
    constexpr int kCodes = 256;
    float distance[2][kCodes] = {};
    int size = 1;
    for (int j = 0; j < dim_; ++j) {
        float* table = distance[j / (dim_ / 2)];
        if (j == dim_ / 2) size = 1;
        for (int level = level_mask_; level >= 0; --level) {
            const float off = scale * level_value(level) - y[j];
            for (int i = 0; i < size; ++i) table[level * size + i] = table[i] + w[j] * off * off;
        }
        size <<= bits_;
    }
    const float least_lower = *std::min_element(distance[0], distance[0] + size);
    float best = INFINITY;
    int index = 0;
    for (const Group& group : groups_) {
        const float upper = distance[1][group.upper];
        if (!(upper + least_lower < best)) continue;
        for (int i = group.begin; i < group.end; ++i) {
            const float sum = upper + distance[0][codes_[static_cast<size_t>(i)] & (size - 1)];
            if (sum < best) best = sum, index = i;
        }
    }
    return index;
}

namespace {

constexpr int kSuper = 256;

/// How a type searches. Magnitudes are measured in odd numbers 1, 3, .. 2 * levels - 1.
struct Search {
    const Grid& grid;
    int levels;       // of an element
    int group;        // values that share a scale
    bool even_signs;  // signs have seven bits of eight: the number of minus signs is even
    float emphasis;   // of error_weights
    int steps;        // candidates for the scale: largest / (2 levels - 1 + width * k), k = -steps .. steps
    float width;
    bool scale_first;    // candidates start from the best scale for free levels, not from the largest magnitude
    float stored_scale;  // d is stored times this
};

/// A super-block, quantised; the types differ in how they pack it.
struct GridBlock {
    float d;               // of the scales 2n + 1
    uint8_t n[16];         // of every group
    uint16_t indices[64];  // of every vector
    uint8_t signs[32];     // of every eight values
};

/// Magnitudes and sign bytes of a group.
void split_signs(const Search& search, const float* v, const float* w, float* y, uint8_t* signs) {
    for (int k = 0; k < search.group / 8; ++k) {
        int byte = 0, least = 0;
        for (int j = 0; j < 8; ++j) {
            const int i = 8 * k + j;
            byte |= (v[i] < 0) << j;
            y[i] = std::fabs(v[i]);
            const int l = 8 * k + least;
            if (w[i] * v[i] * v[i] < w[l] * v[l] * v[l]) least = j;
        }
        if (search.even_signs && signs_of_seven(byte & 127) != byte) {  // odd: the cheapest sign is given up
            byte ^= 1 << least;
            y[8 * k + least] = -y[8 * k + least];
        }
        signs[k] = static_cast<uint8_t>(byte);
    }
}

/// The vectors of a group for one scale and how well the best scale for them fits.
struct GroupFit {
    Fit sums;
    uint16_t indices[8];
};

GroupFit fit_group(const Search& search, const float* y, const float* w, const float* metric, float scale) {
    GroupFit fit;
    const int dim = search.grid.dim();
    for (int k = 0; k < search.group / dim; ++k) {
        const int index = search.grid.nearest(y + dim * k, metric + dim * k, scale);
        fit.indices[k] = static_cast<uint16_t>(index);
        for (int j = 0; j < dim; ++j) fit.sums.add(w[dim * k + j], y[dim * k + j], search.grid.value(index, j));
    }
    return fit;
}

/// The scale of a group in odd numbers; 0 for a group of zeros.
float search_group(const Search& search, const float* y, const float* w, uint16_t* indices) {
    const int vectors = search.group / search.grid.dim();
    std::fill(indices, indices + vectors, uint16_t{0});
    float largest = *std::max_element(y, y + search.group);
    if (largest < 1e-15f) return 0;
    if (search.scale_first) {
        uint8_t codes[32];
        largest = static_cast<float>(search.levels) * search_positive(y, w, search.group, search.levels + 1, codes);
    }
    float metric[32];
    for (int i = 0; i < search.group; ++i) metric[i] = std::sqrt(w[i]);

    GroupFit best;
    const auto consider = [&](float scale) {
        const GroupFit fit = fit_group(search, y, w, metric, scale);
        if (fit.sums.a > 0 && fit.sums.better_than(best.sums)) best = fit;
    };
    for (int k = -search.steps; k <= search.steps; ++k)
        consider(largest / (static_cast<float>(2 * search.levels - 1) + search.width * static_cast<float>(k)));
    if (best.sums.b <= 0) return 0;
    consider(best.sums.scale());
    std::copy(best.indices, best.indices + vectors, indices);
    return best.sums.scale();
}

GridBlock quantise_super(const Search& search, const Row& row, int64_t at) {
    const float* v = row.x + at;
    const int groups = kSuper / search.group, vectors = search.group / search.grid.dim();
    GridBlock out;
    float w[kSuper], scales[16] = {};
    error_weights(row, at, kSuper, mean_square(v, kSuper), search.emphasis, w);
    for (int g = 0; g < groups; ++g) {
        const int first = search.group * g;
        float y[32];
        split_signs(search, v + first, w + first, y, out.signs + first / 8);
        scales[g] = search_group(search, y, w + first, out.indices + vectors * g);
    }
    const float d = *std::max_element(scales, scales + groups) / 31;
    for (int g = 0; g < groups; ++g)
        out.n[g] = static_cast<uint8_t>(d > 0 ? nearest((scales[g] / d - 1) / 2, 0, 15) : 0);
    out.d = d * search.stored_scale;
    return out;
}

const Grid& grid_iq2_xxs() {
    static const Grid grid(kGridIq2Xxs, 8, 2, 3, 1, 2);
    return grid;
}
const Grid& grid_iq2_xs() {
    static const Grid grid(kGridIq2Xs, 8, 2, 3, 1, 2);
    return grid;
}
const Grid& grid_iq2_s() {
    static const Grid grid(kGridIq2S, 8, 2, 3, 1, 2);
    return grid;
}
const Grid& grid_iq3_xxs() {
    static const Grid grid(kGridIq3Xxs, 4, 3, 8, 1, 2);
    return grid;
}
const Grid& grid_iq3_s() {
    static const Grid grid(kGridIq3S, 4, 3, 8, 1, 2);
    return grid;
}

/// Four 7-bit sign fields and the scale of 32 values in one word (IQ2_XXS, IQ3_XXS).
uint32_t sign_word(const uint8_t* signs, uint8_t n) {
    uint32_t word = static_cast<uint32_t>(n) << 28;
    for (int k = 0; k < 4; ++k) word |= static_cast<uint32_t>(signs[k] & 127) << 7 * k;
    return word;
}

}  // namespace

void quantise_iq2_xxs(const Row& row, uint8_t* out) {
    const Search search{grid_iq2_xxs(), 3, 32, true, 1, 6, 0.1f, true, 1};
    for (int64_t at = 0; at < row.width; at += kSuper, out += 66) {
        const GridBlock block = quantise_super(search, row, at);
        put_half(out, block.d);
        for (int g = 0; g < 8; ++g) {
            for (int k = 0; k < 4; ++k) out[2 + 8 * g + k] = static_cast<uint8_t>(block.indices[4 * g + k]);
            put32(out + 6 + 8 * g, sign_word(block.signs + 4 * g, block.n[g]));
        }
    }
}

void quantise_iq2_xs(const Row& row, uint8_t* out) {
    const Search search{grid_iq2_xs(), 3, 16, true, 1, 9, 0.1f, false, 1};
    for (int64_t at = 0; at < row.width; at += kSuper, out += 74) {
        const GridBlock block = quantise_super(search, row, at);
        put_half(out, block.d);
        for (int k = 0; k < 32; ++k) put16(out + 2 + 2 * k, block.indices[k] | (block.signs[k] & 127u) << 9);
        for (int b = 0; b < 8; ++b) out[66 + b] = static_cast<uint8_t>(block.n[2 * b] | block.n[2 * b + 1] << 4);
    }
}

void quantise_iq2_s(const Row& row, uint8_t* out) {
    const Search search{grid_iq2_s(), 3, 16, false, 2, 9, 0.1f, false, 0.9875f};
    for (int64_t at = 0; at < row.width; at += kSuper, out += 82) {
        const GridBlock block = quantise_super(search, row, at);
        put_half(out, block.d);
        std::memset(out + 66, 0, 8);
        for (int k = 0; k < 32; ++k) {
            out[2 + k] = static_cast<uint8_t>(block.indices[k]);
            out[34 + k] = block.signs[k];
            out[66 + k / 4] |= static_cast<uint8_t>(block.indices[k] >> 8 << 2 * (k % 4));
        }
        for (int b = 0; b < 8; ++b) out[74 + b] = static_cast<uint8_t>(block.n[2 * b] | block.n[2 * b + 1] << 4);
    }
}

void quantise_iq3_xxs(const Row& row, uint8_t* out) {
    const Search search{grid_iq3_xxs(), 8, 32, true, 2, 15, 0.2f, false, 1.0125f};
    for (int64_t at = 0; at < row.width; at += kSuper, out += 98) {
        const GridBlock block = quantise_super(search, row, at);
        put_half(out, block.d);
        for (int k = 0; k < 64; ++k) out[2 + k] = static_cast<uint8_t>(block.indices[k]);
        for (int g = 0; g < 8; ++g) put32(out + 66 + 4 * g, sign_word(block.signs + 4 * g, block.n[g]));
    }
}

void quantise_iq3_s(const Row& row, uint8_t* out) {
    const Search search{grid_iq3_s(), 8, 32, false, 2, 9, 0.2f, false, 1.033f};
    for (int64_t at = 0; at < row.width; at += kSuper, out += 110) {
        const GridBlock block = quantise_super(search, row, at);
        put_half(out, block.d);
        std::memset(out + 66, 0, 8);
        for (int k = 0; k < 64; ++k) {
            out[2 + k] = static_cast<uint8_t>(block.indices[k]);
            out[66 + k / 8] |= static_cast<uint8_t>(block.indices[k] >> 8 << k % 8);
        }
        std::memcpy(out + 74, block.signs, 32);
        for (int q = 0; q < 4; ++q) out[106 + q] = static_cast<uint8_t>(block.n[2 * q] | block.n[2 * q + 1] << 4);
    }
}

}  // namespace strata::quantise
