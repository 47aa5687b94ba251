// softmax(q . keys * scale) values for answers and prompts, with the same float operations for a row in both.
//
// A query row is one head of one token; heads that share a kv head share the keys' tiles. Tiles of keys have absolute
// borders; chunks of 256 keys too. Within a chunk the softmax runs tile by tile with a rescale in every tile; chunk
// results (m, l, o) are merged in ascending order: M' = max(M, m), L = L 2^(M - M') + l 2^(m - M'), O alike, each one
// fma. A row that sees nothing of a tile or chunk passes it unchanged, so its bits do not depend on its company.
// Prompts, here, keep the total in shared memory; answers (attention_answer.cu) give each chunk a block and merge in a
// second kernel. Scores and sums float32, q, k, v and p half. Floor: 4 width operations a query row and key over the
// tensor rate.
#include <algorithm>
#include <type_traits>

#include "cuda/attention.cuh"
#include "cuda/attention_answer.h"
#include "cuda/rows.h"
#include "quant/math.h"

namespace strata::cuda {
namespace {

/// A block has 4 warps: Lines query rows in groups of 16, and where heads are wide, Lines / 16 groups by 4 / (Lines /
/// 16) parts of the head's outputs. Tile: keys at once.
template <int Width, int Lines, int Tile>
struct Shape {
    static constexpr int row_groups = Lines / 16;
    static constexpr int parts = 4 / row_groups;  // of the outputs
    static constexpr int part_width = Width / parts < 16 ? 16 : Width / parts;
    static constexpr int stride = Width + 8;  // halves of a row in shared memory
    static constexpr int shared = (Lines + 2 * Tile) * stride * 2 + Lines * (Width + 2) * 4;
};

template <int Width, int Lines, int Tile>
__global__ void __launch_bounds__(128)
    prompt_kernel(Step step, Attention spec, HeadRows q, HeadRows gate, Rows out, int span_count) {
    using S = Shape<Width, Lines, Tile>;
    extern __shared__ __align__(16) u8 shared[];
    __half* queries = reinterpret_cast<__half*>(shared);
    __half* keys = queries + Lines * S::stride;
    __half* values = keys + Tile * S::stride;
    float* total = reinterpret_cast<float*>(values + Tile * S::stride);  // [Lines][Width + 2]
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c4 = lane & 3;
    const int row_group = warp / S::parts, part = warp % S::parts;
    const int group = blockIdx.y, group_heads = q.heads / spec.kv_heads;
    grid_sync();

    // Which conversation and which query rows. The longest tiles start first.
    int tile = static_cast<int>(gridDim.z - 1 - blockIdx.z), span_index = 0;
    for (; span_index < span_count; ++span_index) {
        const int tiles = (step.spans[span_index].rows * group_heads + Lines - 1) / Lines;
        if (tile < tiles) break;
        tile -= tiles;
    }
    if (span_index >= span_count) return;
    const SpanInfo span = step.spans[span_index];
    const int first_index = tile * Lines, last_index = min(first_index + Lines, span.rows * group_heads) - 1;
    int low = INT32_MAX, high = -1;
    for (int t = first_index / group_heads; t <= last_index / group_heads; ++t) {
        const Place p = place_of(step, spec, span, group, t * group_heads, group_heads);
        low = min(low, p.low);
        high = max(high, p.high);
    }
    const std::byte* key_cache = step.part(span.slot, spec.keys.id);
    const std::byte* value_cache = step.part(span.slot, spec.values.id);

    // Queries, a warp a row; groups of rows that nobody computes stay as they are.
    const int live = min(Lines, (last_index - first_index) / 16 * 16 + 16);
    for (int r = warp; r < live; r += 4) {
        const Place p = place_of(step, spec, span, group, first_index + r, group_heads);
        const float* from = q.data + p.row * q.row_stride + p.head * q.head_stride;
        for (int d = lane * 4; d < Width; d += 128) {
            const float4 v = p.row >= 0 ? *reinterpret_cast<const float4*>(from + d) : make_float4(0, 0, 0, 0);
            *reinterpret_cast<uint2*>(queries + r * S::stride + d) = make_uint2(pack(v.x, v.y), pack(v.z, v.w));
        }
    }
    for (int r = warp; r < Lines; r += 4)
        for (int d = lane; d < Width + 2; d += 32) total[r * (Width + 2) + d] = d == Width ? -INFINITY : 0.0f;
    const Place mine[2] = {place_of(step, spec, span, group, first_index + row_group * 16 + g, group_heads),
                           place_of(step, spec, span, group, first_index + row_group * 16 + g + 8, group_heads)};
    const float scale = __fmul_rn(spec.scale, kLog2e);
    const bool computes = first_index + row_group * 16 <= last_index;
    const int d0 = part * S::part_width;
    const bool has_part = d0 < Width;

    for (int chunk = low / kChunk; chunk <= high / kChunk; ++chunk) {
        float o[S::part_width / 8][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < S::part_width / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) o[j][i] = 0.0f;

        const int begin = max(chunk * kChunk, low / Tile * Tile), end = min((chunk + 1) * kChunk, high + 1);
        __syncthreads();
        if (begin < end) load_tile<Width, Tile, S::stride, 128>(keys, key_cache, spec.keys, group, begin, low, high);
        copy_commit();
        for (int first = begin; first < end; first += Tile) {
            load_tile<Width, Tile, S::stride, 128>(values, value_cache, spec.values, group, first, low, high);
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            float s[Tile / 8][4];
            if (computes) {
#pragma unroll
                for (int j = 0; j < Tile / 8; ++j)
#pragma unroll
                    for (int i = 0; i < 4; ++i) s[j][i] = 0.0f;
                // Fragments of the next step are on their way while this one multiplies.
                unsigned a[2][4], b[2][Tile / 16][4];
                const auto fetch = [&](int kk, int to) {
                    load_matrix4(a[to],
                                 queries + (row_group * 16 + (lane & 15)) * S::stride + kk * 16 + (lane >> 4) * 8);
#pragma unroll
                    for (int jp = 0; jp < Tile / 16; ++jp)
                        load_matrix4(b[to][jp], keys + (jp * 16 + (lane & 7) + ((lane >> 4) << 3)) * S::stride +
                                                    kk * 16 + ((lane >> 3) & 1) * 8);
                };
                fetch(0, 0);
#pragma unroll
                for (int kk = 0; kk < Width / 16; ++kk) {
                    if (kk + 1 < Width / 16) fetch(kk + 1, (kk + 1) & 1);
                    const unsigned(&q4)[4] = a[kk & 1];
#pragma unroll
                    for (int jp = 0; jp < Tile / 16; ++jp) {
                        const unsigned(&k4)[4] = b[kk & 1][jp];
                        mma_half(s[2 * jp], q4[0], q4[1], q4[2], q4[3], k4[0], k4[1]);
                        mma_half(s[2 * jp + 1], q4[0], q4[1], q4[2], q4[3], k4[2], k4[3]);
                    }
                }
            }
            __syncthreads();  // keys are read: the next tile's may come
            if (first + Tile < end)
                load_tile<Width, Tile, S::stride, 128>(keys, key_cache, spec.keys, group, first + Tile, low, high);
            copy_commit();

            unsigned p[Tile / 8][2];
            if (computes) {
                // Where every row sees the whole tile nothing is masked.
                const bool whole =
                    __all_sync(0xffffffffu, first >= mine[0].low && first >= mine[1].low &&
                                                first + Tile - 1 <= mine[0].high && first + Tile - 1 <= mine[1].high);
                float tile_max[2] = {-INFINITY, -INFINITY};
#pragma unroll
                for (int j = 0; j < Tile / 8; ++j)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int key = first + j * 8 + 2 * c4 + (i & 1);
                        const Place& mask = mine[i >> 1];
                        s[j][i] =
                            whole || (key >= mask.low && key <= mask.high) ? __fmul_rn(s[j][i], scale) : -INFINITY;
                        tile_max[i >> 1] = fmaxf(tile_max[i >> 1], s[j][i]);
                    }
                float alpha[2];
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    tile_max[r] = fmaxf(tile_max[r], __shfl_xor_sync(0xffffffffu, tile_max[r], 1));
                    tile_max[r] = fmaxf(tile_max[r], __shfl_xor_sync(0xffffffffu, tile_max[r], 2));
                    const float next = fmaxf(m[r], tile_max[r]), above = next == -INFINITY ? 0.0f : next;
                    alpha[r] = next == m[r] ? 1.0f : power(m[r], next);
                    float sum = 0.0f;
#pragma unroll
                    for (int j = 0; j < Tile / 8; ++j) {
                        const __half2 h = __floats2half2_rn(exp2_fast(__fsub_rn(s[j][2 * r], above)),
                                                            exp2_fast(__fsub_rn(s[j][2 * r + 1], above)));
                        p[j][r] = *reinterpret_cast<const unsigned*>(&h);
                        sum = __fadd_rn(sum, __fadd_rn(__low2float(h), __high2float(h)));
                    }
                    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
                    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
                    l[r] = __fmaf_rn(l[r], alpha[r], sum);
                    m[r] = next;
                }
                // A factor of exactly 1 changes nothing: most tiles need no rescale.
                if (__any_sync(0xffffffffu, alpha[0] != 1.0f || alpha[1] != 1.0f)) {
#pragma unroll
                    for (int j = 0; j < S::part_width / 8; ++j)
#pragma unroll
                        for (int i = 0; i < 4; ++i) o[j][i] = __fmul_rn(o[j][i], alpha[i >> 1]);
                }
            }
            copy_wait<1>();
            __syncthreads();
            if (computes && has_part) {
                constexpr int across = S::part_width / 16, fetches = Tile / 16 * across, ahead = 3;
                unsigned b[ahead + 1][4];
                const auto fetch = [&](int n) {
                    const int kk = n / across, jp = n % across;
                    load_matrix4_transposed(b[n % (ahead + 1)],
                                            values + (kk * 16 + (lane & 7) + ((lane >> 3) & 1) * 8) * S::stride + d0 +
                                                jp * 16 + (lane >> 4) * 8);
                };
#pragma unroll
                for (int n = 0; n < ahead && n < fetches; ++n) fetch(n);
#pragma unroll
                for (int n = 0; n < fetches; ++n) {
                    if (n + ahead < fetches) fetch(n + ahead);
                    const int kk = n / across, jp = n % across;
                    const unsigned(&v4)[4] = b[n % (ahead + 1)];
                    mma_half(o[2 * jp], p[2 * kk][0], p[2 * kk][1], p[2 * kk + 1][0], p[2 * kk + 1][1], v4[0], v4[1]);
                    mma_half(o[2 * jp + 1], p[2 * kk][0], p[2 * kk][1], p[2 * kk + 1][0], p[2 * kk + 1][1], v4[2],
                             v4[3]);
                }
            }
            __syncthreads();  // values are read
        }
        copy_wait<0>();

        // The chunk's result joins the total.
        if (computes && has_part) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                if (mine[r].row < 0) continue;
                float* to = total + (row_group * 16 + g + 8 * r) * (Width + 2);
                // All four lanes of a row and all parts read the old maximum before one of them writes it.
                const float M = fmaxf(to[Width], m[r]), old = power(to[Width], M), add = power(m[r], M);
                l[r] = __fmaf_rn(to[Width + 1], old, __fmul_rn(l[r], add));
                m[r] = M;
#pragma unroll
                for (int j = 0; j < S::part_width / 8; ++j) {
                    float2* at = reinterpret_cast<float2*>(to + d0 + j * 8 + 2 * c4);
                    const float2 before = *at;
                    *at = make_float2(__fmaf_rn(before.x, old, __fmul_rn(o[j][2 * r], add)),
                                      __fmaf_rn(before.y, old, __fmul_rn(o[j][2 * r + 1], add)));
                }
            }
        }
        __syncthreads();
        if (computes && part == 0 && c4 == 0) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                if (mine[r].row < 0) continue;
                float* to = total + (row_group * 16 + g + 8 * r) * (Width + 2);
                to[Width] = m[r];
                to[Width + 1] = l[r];
            }
        }
    }

    __syncthreads();
    for (int i = threadIdx.x; i < Lines * Width; i += 128) {
        const int r = i / Width, d = i % Width;
        const Place p = place_of(step, spec, span, group, first_index + r, group_heads);
        if (p.row < 0) continue;
        const float* from = total + r * (Width + 2);
        float M = from[Width], L = from[Width + 1], v = from[d];
        if (spec.sinks) {
            const float sink = __fmul_rn(spec.sinks[p.head], kLog2e), higher = fmaxf(M, sink),
                        factor = power(M, higher);
            L = __fmaf_rn(L, factor, power(sink, higher));
            v = __fmul_rn(v, factor);
        }
        v = L > 0.0f ? __fdiv_rn(v, L) : 0.0f;
        if (gate.data) v = __fmul_rn(v, sigmoid(gate.data[p.row * gate.row_stride + p.head * gate.head_stride + d]));
        out.data[p.row * out.stride + p.head * Width + d] = v;
    }
}

template <int Width, int Lines, int Tile>
void run_prompt(Queue& queue, const Step& step, const Attention& spec, HeadRows q, HeadRows gate, Rows out, int spans) {
    const auto tiles =
        static_cast<unsigned>(div_up(static_cast<int64_t>(q.rows) * (q.heads / spec.kv_heads), Lines) + spans - 1);
    launch(queue, "attention", prompt_kernel<Width, Lines, Tile>, dim3(1, spec.kv_heads, tiles), 128,
           Shape<Width, Lines, Tile>::shared, step, spec, q, gate, out, spans);
}

}  // namespace

uint64_t attention_scratch(int rows, int heads, int width, int capacity) {
    return static_cast<uint64_t>(div_up(capacity, kChunk)) * static_cast<uint64_t>(rows) *
           static_cast<uint64_t>(heads) * static_cast<uint64_t>(width + 2) * sizeof(float);
}

void attend(Queue& queue, const Step& step, const Attention& spec, const NewHeads* heads, HeadRows q, HeadRows gate,
            Rows values, Codes codes, int spans, bool prompt) {
    // Query rows and keys of a tile by head width and shared memory: a function of the card alone, so answers and
    // prompts agree.
    const auto go = [&](auto width) {
        constexpr int w = width;
        constexpr int wide_tile = w > 256 ? 32 : 64, wide_rows = w > 256 ? 32 : 64;
        const bool wide = Shape<w, wide_rows, wide_tile>::shared <= queue.shared_limit;
        if (!prompt)
            wide ? run_answer<w, wide_tile>(queue, step, spec, heads, q, spans)
                 : run_answer<w, 32>(queue, step, spec, heads, q, spans);
        else if (wide)
            run_prompt<w, wide_rows, wide_tile>(queue, step, spec, q, gate, values, spans);
        else if (Shape<w, 32, 32>::shared <= queue.shared_limit || w > 256)
            run_prompt<w, 32, 32>(queue, step, spec, q, gate, values, spans);
        else
            run_prompt<w, 16, 32>(queue, step, spec, q, gate, values, spans);
    };
    if (prompt && heads) prepare_heads(queue, step, heads->spec, heads->rope, q, heads->k, heads->v);
    switch (q.width) {
        case 16: go(std::integral_constant<int, 16>{}); break;
        case 32: go(std::integral_constant<int, 32>{}); break;
        case 64: go(std::integral_constant<int, 64>{}); break;
        case 128: go(std::integral_constant<int, 128>{}); break;
        case 256: go(std::integral_constant<int, 256>{}); break;
        case 512: go(std::integral_constant<int, 512>{}); break;
        default: queue.keep(cudaErrorNotSupported, "attention (head width)"); return;
    }
    const bool whole_blocks = q.width % 32 == 0;
    if (!prompt) merge_answer(queue, step, spec, q, gate, values, whole_blocks ? codes : Codes{});
    if (codes.values && (prompt || !whole_blocks)) quantise(queue, values, codes);
}

}  // namespace strata::cuda
