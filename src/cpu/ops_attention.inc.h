// The attention kernel: online softmax over tiles of 64 cache rows with absolute borders, merged at absolute chunk
// borders. Both products of a tile are one small matrix product (multiply) in which every output is one fma chain, so a
// query's bits do not depend on how many queries share the tile. Included once for each instruction set.

namespace strata::cpu {
namespace {

#if defined(__AVX512F__)
inline constexpr int kBlockQueries = 6, kBlockLanes = 4;
#else
inline constexpr int kBlockQueries = 6, kBlockLanes = 1;
#endif

inline const std::byte* cache_row(const CacheRows& cache, int64_t p) {
    return cache.data + (cache.ring ? p % cache.ring : p) * cache.row_bytes;
}

/// Memory to ask for while a product runs: some cache lines of row k in step k. A head's rows lie apart, which hardware
/// does not foresee. Rows behind a ring's end are asked for in vain; that does no harm.
struct Ahead {
    const std::byte* row = nullptr;
    int64_t stride = 0;
    int lines = 0;

    /// Share `part` of `parts` of a tile's rows from row p on.
    static Ahead of(const CacheRows& cache, int64_t p, int part, int parts) {
        const auto lines = static_cast<int>(cache.head_bytes / 64) + 1;
        const int first = lines * part / parts;
        return {cache_row(cache, p) + first * 64, cache.row_bytes, lines * (part + 1) / parts - first};
    }
};

/// c[q][n] = fma chain over k ascending of a[q][k] * b[k][n], from c; q in [0, Q), n in [0, 16 N).
template <int Q, int N, bool Prefetch>
inline void multiply_block(const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c,
                           int64_t c_stride, int depth, const Ahead& ahead) {
    Lanes sum[Q][N];
    for (int q = 0; q < Q; ++q)
        for (int n = 0; n < N; ++n) sum[q][n] = Lanes::load(c + q * c_stride + n * kLanes);
    for (int k = 0; k < depth; ++k) {
        if (Prefetch)
            for (int line = 0; line < ahead.lines; ++line)
                __builtin_prefetch(ahead.row + k * ahead.stride + line * 64, 0, 2);
        Lanes row[N];
        for (int n = 0; n < N; ++n) row[n] = Lanes::load(b + k * b_stride + n * kLanes);
        for (int q = 0; q < Q; ++q) {
            const Lanes x(a[q * a_stride + k]);
            for (int n = 0; n < N; ++n) sum[q][n] = lane_fma(x, row[n], sum[q][n]);
        }
    }
    for (int q = 0; q < Q; ++q)
        for (int n = 0; n < N; ++n) sum[q][n].store(c + q * c_stride + n * kLanes);
}

template <int N, bool Prefetch>
void multiply_queries(int queries, const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c,
                      int64_t c_stride, int depth, const Ahead& ahead) {
    switch (queries) {
        case 1: return multiply_block<1, N, Prefetch>(a, a_stride, b, b_stride, c, c_stride, depth, ahead);
        case 2: return multiply_block<2, N, Prefetch>(a, a_stride, b, b_stride, c, c_stride, depth, ahead);
        case 3: return multiply_block<3, N, Prefetch>(a, a_stride, b, b_stride, c, c_stride, depth, ahead);
        case 4: return multiply_block<4, N, Prefetch>(a, a_stride, b, b_stride, c, c_stride, depth, ahead);
        case 5: return multiply_block<5, N, Prefetch>(a, a_stride, b, b_stride, c, c_stride, depth, ahead);
        default: return multiply_block<6, N, Prefetch>(a, a_stride, b, b_stride, c, c_stride, depth, ahead);
    }
}

/// c += a . b for all queries and `columns` (a multiple of 16) columns; asks for `ahead` along the way.
void multiply_tile(int queries, int columns, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                   float* c, int64_t c_stride, int depth, const Ahead& ahead) {
    const int blocks = (queries + kBlockQueries - 1) / kBlockQueries;
    for (int block = 0, q = 0; block < blocks; ++block) {
        const int count = (queries - q + blocks - block - 1) / (blocks - block);
        const auto part = [&]<int N>(int n, bool prefetch) {
            if (prefetch)
                multiply_queries<N, true>(count, a + q * a_stride, a_stride, b + n, b_stride, c + q * c_stride + n,
                                          c_stride, depth, ahead);
            else
                multiply_queries<N, false>(count, a + q * a_stride, a_stride, b + n, b_stride, c + q * c_stride + n,
                                           c_stride, depth, ahead);
        };
        int n = 0;
        for (; n + kBlockLanes * kLanes <= columns; n += kBlockLanes * kLanes)
            part.template operator()<kBlockLanes>(n, block == 0 && n == 0);
        for (; n < columns; n += kLanes) part.template operator()<1>(n, block == 0 && n == 0);
        q += count;
    }
}

/// Reads the values of a head out of cache rows of one type.
template <Type type>
struct CacheReader {
    /// Sixteen values from value i on; where the head ends before, zeros after it.
    static Lanes values(const std::byte* row, int i, int width) {
        const int n = width - i;
        if constexpr (type == Type::f16) {
            const auto* p = reinterpret_cast<const uint16_t*>(row) + i;
            if (n >= kLanes) return Lanes::load_f16(p);
            uint16_t part[kLanes] = {};
            std::memcpy(part, p, static_cast<size_t>(n) * 2);
            return Lanes::load_f16(part);
        } else if constexpr (type == Type::q8_0) {
            const std::byte* block = row + i / 32 * 34;
            uint16_t d;
            std::memcpy(&d, block, 2);
            return Lanes::load_i8(reinterpret_cast<const int8_t*>(block + 2) + i % 32) * Lanes(half_to_float(d));
        } else {
            const auto* p = reinterpret_cast<const float*>(row) + i;
            return n >= kLanes ? Lanes::load(p) : Lanes::load(p, n);
        }
    }

    /// Rows [first, last) of the tile that starts at `tile`, transposed: out[value][row of the tile]. Other rows of a
    /// group of sixteen are zero.
    static void keys(const CacheRows& cache, int width, int64_t tile, int first, int last, float* out) {
        for (int group = first / kLanes * kLanes; group < last; group += kLanes) {
            const std::byte* row[kLanes];
            for (int r = 0; r < kLanes; ++r)
                row[r] = group + r >= first && group + r < last ? cache_row(cache, tile + group + r) : nullptr;
            const bool whole = group >= first && group + kLanes <= last;
            for (int i = 0; i < width; i += kLanes) {
                Lanes lanes[kLanes];
                if (whole) {
#pragma GCC unroll 16
                    for (int r = 0; r < kLanes; ++r) lanes[r] = values(row[r], i, width);
                } else {
                    for (int r = 0; r < kLanes; ++r) lanes[r] = row[r] ? values(row[r], i, width) : Lanes(0.0f);
                }
                transpose16(lanes);
#pragma GCC unroll 16
                for (int r = 0; r < kLanes; ++r) lanes[r].store(out + (i + r) * kTileRows + group);
            }
        }
    }

    /// Rows [first, last) of a tile as they are, in panels of 64 values: out[panel][row of the tile][value].
    static void panels(const CacheRows& cache, int width, int64_t tile, int first, int last, float* out) {
        for (int r = first; r < last; ++r) {
            const std::byte* row = cache_row(cache, tile + r);
            float* to = out + r * kPanel;
            int i = 0;
            for (; i + kPanel <= width; i += kPanel, to += kTileRows * kPanel)
#pragma GCC unroll 4
                for (int part = 0; part < kPanel; part += kLanes) values(row, i + part, width).store(to + part);
            for (int part = 0; i + part < width; part += kLanes) values(row, i + part, width).store(to + part);
        }
    }
};

void decode_keys(const CacheRows& cache, int width, int64_t tile, int first, int last, float* out) {
    switch (cache.type) {
        case Type::f16: return CacheReader<Type::f16>::keys(cache, width, tile, first, last, out);
        case Type::q8_0: return CacheReader<Type::q8_0>::keys(cache, width, tile, first, last, out);
        default: return CacheReader<Type::f32>::keys(cache, width, tile, first, last, out);
    }
}

void decode_values(const CacheRows& cache, int width, int64_t tile, int first, int last, float* out) {
    switch (cache.type) {
        case Type::f16: return CacheReader<Type::f16>::panels(cache, width, tile, first, last, out);
        case Type::q8_0: return CacheReader<Type::q8_0>::panels(cache, width, tile, first, last, out);
        default: return CacheReader<Type::f32>::panels(cache, width, tile, first, last, out);
    }
}

/// Total = total and part: `total` of rows before, `part` of a later chunk.
void merge(SoftmaxSums total, SoftmaxSums part, int width) {
    if (*part.sum == 0.0f) return;
    const float largest = *total.largest > *part.largest ? *total.largest : *part.largest;
    const float a = *total.sum == 0.0f ? 0.0f : exp_fixed(*total.largest - largest),
                b = exp_fixed(*part.largest - largest);
    *total.largest = largest;
    *total.sum = lane_fma(*total.sum, a, *part.sum * b);
    for (int i = 0; i < width; i += kLanes)
        lane_fma(Lanes::load(total.values + i), Lanes(a), Lanes::load(part.values + i) * Lanes(b))
            .store(total.values + i);
}

void clear(SoftmaxSums sums, int width) {
    *sums.largest = kMinusInfinity;
    *sums.sum = 0.0f;
    for (int i = 0; i < width; i += kLanes) Lanes(0.0f).store(sums.values + i);
}

/// One query and one tile: scores to weights in place, sums brought to the new maximum. The query sees rows [from, to)
/// of the tile.
void soften(float* scores, SoftmaxSums sums, int from, int to, int width) {
    Lanes s[kTileRows / kLanes];
    Lanes top(kMinusInfinity);
    for (int g = 0; g < kTileRows / kLanes; ++g) {
        const auto bound = [&](int row) {
            return row < g * kLanes ? 0 : row > (g + 1) * kLanes ? kLanes : row - g * kLanes;
        };
        s[g] = lane_range(bound(from), bound(to), Lanes::load(scores + g * kLanes), Lanes(kMinusInfinity));
        top = lane_max(top, s[g]);
    }
    const float tile_largest = top.max();
    const float largest = *sums.largest > tile_largest ? *sums.largest : tile_largest;
    const float shrink = *sums.sum == 0.0f ? 0.0f : exp_fixed(*sums.largest - largest);
    for (int g = 0; g < kTileRows / kLanes; ++g) {
        const auto bound = [&](int row) {
            return row < g * kLanes ? 0 : row > (g + 1) * kLanes ? kLanes : row - g * kLanes;
        };
        s[g] = lane_range(bound(from), bound(to), exp_fixed(s[g] - Lanes(largest)), Lanes(0.0f));
        s[g].store(scores + g * kLanes);
    }
    *sums.largest = largest;
    *sums.sum = lane_fma(*sums.sum, shrink, ((s[0] + s[1]) + (s[2] + s[3])).sum());
    if (shrink != 1.0f)
        for (int i = 0; i < width; i += kLanes) (Lanes::load(sums.values + i) * Lanes(shrink)).store(sums.values + i);
}

void attend(const AttentionBlock& block) {
    const int width = block.padded;  // a multiple of 16; the values behind the true width are zero
    const AttentionWork& work = block.work;
    const auto chunk = [&](int q) { return SoftmaxSums{work.largest + q, work.sum + q, work.values + q * width}; };
    const auto total = [&](int q) { return SoftmaxSums{block.largest + q, block.sum + q, block.values + q * width}; };
    for (int q = 0; q < block.queries; ++q) {
        clear(chunk(q), width);
        clear(total(q), width);
    }
    for (int64_t tile = block.first / kTileRows * kTileRows; tile < block.last; tile += kTileRows) {
        const auto inside = [&](int64_t row) {
            return static_cast<int>(row < tile ? 0 : row > tile + kTileRows ? kTileRows : row - tile);
        };
        const int first = inside(block.first), last = inside(block.last);
        const int64_t next = tile + kTileRows;
        const int panels = (width + kPanel - 1) / kPanel;

        // Each product is cut into panels of 64 values, whose operand stays in the first cache for all queries.
        // Meanwhile the rows that are decoded next are asked for, a share with each panel.
        decode_keys(block.keys, block.width, tile, first, last, work.keys);
        std::memset(work.scores, 0, static_cast<size_t>(block.queries) * kTileRows * sizeof(float));
        for (int panel = 0, i = 0; panel < panels; ++panel, i += kPanel)
            multiply_tile(block.queries, kTileRows, block.query + i, width, work.keys + i * kTileRows, kTileRows,
                          work.scores, kTileRows, width - i < kPanel ? width - i : kPanel,
                          Ahead::of(block.cached_values, tile, panel, panels));
        for (int q = 0; q < block.queries; ++q) {
            const int from = inside(block.from[q]), to = inside(block.to[q]);
            if (from < to)
                soften(work.scores + q * kTileRows, chunk(q), from, to, width);
            else
                std::memset(work.scores + q * kTileRows, 0, kTileRows * sizeof(float));
        }
        decode_values(block.cached_values, block.width, tile, first, last, work.tile_values);
        for (int panel = 0, i = 0; panel < panels; ++panel, i += kPanel)
            multiply_tile(block.queries, width - i < kPanel ? width - i : kPanel, work.scores + first, kTileRows,
                          work.tile_values + (panel * kTileRows + first) * kPanel, kPanel, work.values + i, width,
                          last - first, next < block.last ? Ahead::of(block.keys, next, panel, panels) : Ahead{});

        if (next >= block.last || is_chunk_border(next))
            for (int q = 0; q < block.queries; ++q) {
                merge(total(q), chunk(q), width);
                clear(chunk(q), width);
            }
    }
}

/// The head's output: the sink joins the denominator, -0 becomes +0 (masked rows may have left either).
void finish_head(SoftmaxSums sums, const float* sink, int width, float* out) {
    float sum = *sums.sum, factor = 1.0f;
    if (sum == 0.0f) {  // nothing to see
        std::memset(out, 0, static_cast<size_t>(width) * sizeof(float));
        return;
    }
    if (sink) {
        const float largest = *sums.largest > *sink ? *sums.largest : *sink;
        factor = exp_fixed(*sums.largest - largest);
        sum = lane_fma(sum, factor, exp_fixed(*sink - largest));
    }
    map_row(sums.values, out, width, [&](Lanes v, int, int) { return v * Lanes(factor) / Lanes(sum) + Lanes(0.0f); });
}

}  // namespace
}  // namespace strata::cpu
