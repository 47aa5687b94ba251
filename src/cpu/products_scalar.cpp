// The plain table: right on any machine, and the decoder of types that have none of their own in the other tables.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "cpu/products_generic.h"
#include "cpu/products_kernels.h"
#include "quant/math.h"

namespace strata::cpu {
namespace {

template <TermKind kind>
float term(const Panel& panel, int block, int row, const int (&product)[2], const int16_t* sums) {
    const float scale = panel.scale[block][row];
    const auto p0 = static_cast<float>(product[0]), p1 = static_cast<float>(product[1]);
    if constexpr (kind == TermKind::plain || kind == TermKind::minimum) {
        const float t = scale * static_cast<float>(product[0] + product[1]);
        if constexpr (kind == TermKind::plain) return t;
        return std::fma(-panel.minimum[block][row], static_cast<float>(sums[0] + sums[1]), t);
    } else {
        const float(&half)[2][kTileRows] = panel.half_scale[block];
        const float t = scale * std::fma(half[1][row], p1, half[0][row] * p0);
        if constexpr (kind == TermKind::halves) return t;
        const float(&mu)[2][kTileRows] = panel.half_minimum[block];
        const float m = std::fma(mu[1][row], static_cast<float>(sums[1]), mu[0][row] * static_cast<float>(sums[0]));
        return std::fma(-panel.minimum[block][row], m, t);
    }
}

template <TermKind kind, int N>
void multiply(const Panel& panel, int blocks, const int8_t* codes, const float* scales, const int16_t* half_sums,
              bool first, float* y) {
    for (int c = 0; c < N; ++c, y += kTileRows) {
        float sum[kTileRows] = {};
        for (int b = 0; b < blocks; ++b) {
            int product[kTileRows][2] = {};
            for (int quad = 0; quad < 8; ++quad) {
                const auto& weights = panel.codes[8 * b + quad];
                const int8_t* column = codes + ((8 * b + quad) * N + c) * 4;
                for (int row = 0; row < kTileRows; ++row)
                    for (int i = 0; i < 4; ++i)
                        product[row][quad / 4] += static_cast<int8_t>(weights[row][i]) * column[i];
            }
            const int16_t* sums = half_sums + (b * N + c) * 2;
            for (int row = 0; row < kTileRows; ++row)
                sum[row] = std::fma(scales[b * N + c], term<kind>(panel, b, row, product[row], sums), sum[row]);
        }
        for (int row = 0; row < kTileRows; ++row) y[row] = first ? sum[row] : y[row] + sum[row];
    }
}

template <int N>
void multiply_float(const FloatPanel& panel, int inputs, const float* const* columns, bool first, float* y) {
    for (int c = 0; c < N; ++c, y += kTileRows) {
        float sum[kTileRows] = {};
        for (int start = 0; start < inputs; start += 32) {
            float t[kTileRows] = {};
            for (int i = start; i < std::min(start + 32, inputs); ++i)
                for (int row = 0; row < kTileRows; ++row)
                    t[row] = std::fma(panel.weights[i][row], columns[c][i], t[row]);
            for (int row = 0; row < kTileRows; ++row) sum[row] += t[row];
        }
        for (int row = 0; row < kTileRows; ++row) y[row] = first ? sum[row] : y[row] + sum[row];
    }
}

template <TermKind kind>
constexpr std::array<MultiplyFunction, kGroupColumns> multiply_functions() {
    return {multiply<kind, 1>, multiply<kind, 2>, multiply<kind, 3>, multiply<kind, 4>};
}

std::array<MultiplyFunction, kGroupColumns> multiply_functions_of(Type type) {
    switch (term_kind(type)) {
        case TermKind::plain: return multiply_functions<TermKind::plain>();
        case TermKind::minimum: return multiply_functions<TermKind::minimum>();
        case TermKind::halves: return multiply_functions<TermKind::halves>();
        case TermKind::halves_minimum: return multiply_functions<TermKind::halves_minimum>();
    }
    return {};
}

void gated(Gate function, const float* gate, const float* up, float* h) {
    for (int i = 0; i < 32; ++i) h[i] = (function == Gate::silu ? silu(gate[i]) : gelu(gate[i])) * up[i];
}

void add_weighted(float weight, const float* y, float* sum) {
    for (int i = 0; i < 32; ++i) sum[i] = std::fma(weight, y[i], sum[i]);
}

}  // namespace

const ProductKernels& scalar_product_kernels() {
    static const ProductKernels table = [] {
        ProductKernels kernels{};
        for (int code = 0; code < kTypes; ++code) {
            if (!find_type(static_cast<uint32_t>(code))) continue;
            const auto type = static_cast<Type>(code);
            TypeKernels& its = kernels.types[static_cast<size_t>(code)];
            its.decode_float = generic_decode_float(type);
            if (!type_info(type).quantised) continue;
            its.decode = generic_decode(type, 0);
            its.multiply = multiply_functions_of(type);
        }
        kernels.multiply_float = {multiply_float<1>, multiply_float<2>, multiply_float<3>, multiply_float<4>};
        kernels.gated = gated;
        kernels.add_weighted = add_weighted;
        return kernels;
    }();
    return table;
}

}  // namespace strata::cpu
