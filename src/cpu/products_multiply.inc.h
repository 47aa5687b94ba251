// Panels times columns, written once for all instruction sets. docs/numerics.md states the order of every sum.

#include "cpu/products_kernels.h"
#include "cpu/products_lanes.h"

namespace strata::cpu {
namespace {

/// How a type's codes lie in panels of this instruction set: q + offset, between 0 and `most`; most 128: signed bytes.
struct CodeForm {
    int offset;
    int most;
};

inline Ints column_word(const void* p) {
    uint32_t v;
    std::memcpy(&v, p, 4);
    return all_words(v);
}

/// Factors of the sums of a block's halves, for multiply_pairs.
constexpr uint32_t factors(int first, int second) {
    return (static_cast<uint32_t>(first) & 0xffff) | static_cast<uint32_t>(second) << 16;
}

template <TermKind kind, CodeForm form, int N>
void multiply_panel(const Panel& panel, int blocks, const int8_t* codes, const float* scales, const int16_t* half_sums,
                    bool first, float* y) {
    using Sums = CodeSums<form.most>;
    constexpr bool kHalves = kind == TermKind::halves || kind == TermKind::halves_minimum;
    // Vectors of rows at once: enough independent sums for one column, few enough registers for four.
    constexpr int V = kVector == 16 ? 2 : N == 1 ? 4 : N == 2 ? 2 : 1;

    for (int row = 0; row < kTileRows; row += V * kVector) {
        Floats sum[N][V];
        for (auto& column : sum)
            for (Floats& s : column) s = all_floats(0);

        for (int b = 0; b < blocks; ++b) {
            Sums products[N][V];
            const auto column_sums = [&](int c) { return column_word(half_sums + (b * N + c) * 2); };
            const auto load = [&](const float(&field)[kTileRows], int v) {
                return load_floats(field + row + v * kVector);
            };
            // Adds up quads [from, to); where codes have an offset the sums begin with minus offset times the column's.
            const auto dot = [&](int from, int to, uint32_t part) {
                for (int c = 0; c < N; ++c) {
                    const Ints start = form.offset == 0 ? no_ints() : multiply_pairs(column_sums(c), all_words(part));
                    for (int v = 0; v < V; ++v) products[c][v].start(start);
                }
#pragma GCC unroll 8
                for (int quad = from; quad < to; ++quad) {
                    typename Sums::Weights weights[V];
                    for (int v = 0; v < V; ++v)
                        weights[v] = Sums::weights(load_ints(panel.codes[8 * b + quad][row + v * kVector]));
                    for (int c = 0; c < N; ++c) {
                        const Ints column = column_word(codes + ((8 * b + quad) * N + c) * 4);
                        for (int v = 0; v < V; ++v) products[c][v].add(weights[v], column);
                    }
                    if ((quad + 1) % Sums::kDepth == 0 || quad + 1 == to)
                        for (auto& column : products)
                            for (Sums& p : column) p.settle();
                }
            };

            Floats t[N][V];
            if constexpr (!kHalves) {
                dot(0, 8, factors(-form.offset, -form.offset));
                for (int c = 0; c < N; ++c)
                    for (int v = 0; v < V; ++v)
                        t[c][v] = multiply(load(panel.scale[b], v), to_floats(products[c][v].sums));
            } else {
                dot(0, 4, factors(-form.offset, 0));
                for (int c = 0; c < N; ++c)
                    for (int v = 0; v < V; ++v)
                        t[c][v] = multiply(load(panel.half_scale[b][0], v), to_floats(products[c][v].sums));
                dot(4, 8, factors(0, -form.offset));
                for (int c = 0; c < N; ++c)
                    for (int v = 0; v < V; ++v)
                        t[c][v] = multiply(
                            load(panel.scale[b], v),
                            multiply_add(load(panel.half_scale[b][1], v), to_floats(products[c][v].sums), t[c][v]));
            }
            if constexpr (kind == TermKind::minimum) {
                for (int c = 0; c < N; ++c) {
                    const Floats total = to_floats(multiply_pairs(column_sums(c), all_words(factors(1, 1))));
                    for (int v = 0; v < V; ++v) t[c][v] = subtract_product(t[c][v], load(panel.minimum[b], v), total);
                }
            }
            if constexpr (kind == TermKind::halves_minimum) {
                for (int c = 0; c < N; ++c) {
                    const Floats t0 = to_floats(multiply_pairs(column_sums(c), all_words(factors(1, 0))));
                    const Floats t1 = to_floats(multiply_pairs(column_sums(c), all_words(factors(0, 1))));
                    for (int v = 0; v < V; ++v) {
                        const Floats m = multiply_add(load(panel.half_minimum[b][1], v), t1,
                                                      multiply(load(panel.half_minimum[b][0], v), t0));
                        t[c][v] = subtract_product(t[c][v], load(panel.minimum[b], v), m);
                    }
                }
            }
            for (int c = 0; c < N; ++c) {
                const Floats scale = all_floats(scales[b * N + c]);
                for (int v = 0; v < V; ++v) sum[c][v] = multiply_add(scale, t[c][v], sum[c][v]);
            }
        }
        for (int c = 0; c < N; ++c)
            for (int v = 0; v < V; ++v) {
                float* out = y + c * kTileRows + row + v * kVector;
                store_floats(out, first ? sum[c][v] : add(load_floats(out), sum[c][v]));
            }
    }
}

template <int N>
void multiply_float_panel(const FloatPanel& panel, int inputs, const float* const* columns, bool first, float* y) {
    constexpr int V = kVector == 16 ? 2 : N < 4 ? 4 : 2;
    for (int row = 0; row < kTileRows; row += V * kVector) {
        Floats sum[N][V];
        for (auto& column : sum)
            for (Floats& s : column) s = all_floats(0);
        for (int start = 0; start < inputs; start += 32) {
            const int end = start + 32 < inputs ? start + 32 : inputs;
            Floats t[N][V];
            for (auto& column : t)
                for (Floats& its : column) its = all_floats(0);
            for (int i = start; i < end; ++i) {
                Floats weights[V];
                for (int v = 0; v < V; ++v) weights[v] = load_floats(panel.weights[i] + row + v * kVector);
                for (int c = 0; c < N; ++c) {
                    const Floats x = all_floats(columns[c][i]);
                    for (int v = 0; v < V; ++v) t[c][v] = multiply_add(weights[v], x, t[c][v]);
                }
            }
            for (int c = 0; c < N; ++c)
                for (int v = 0; v < V; ++v) sum[c][v] = add(sum[c][v], t[c][v]);
        }
        for (int c = 0; c < N; ++c)
            for (int v = 0; v < V; ++v) {
                float* out = y + c * kTileRows + row + v * kVector;
                store_floats(out, first ? sum[c][v] : add(load_floats(out), sum[c][v]));
            }
    }
}

}  // namespace
}  // namespace strata::cpu
