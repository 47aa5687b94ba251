// Attention of answers: a few query rows against a long cache. A block takes 16 query lines (a line is one head of one
// row) of a kv head, and chunks of the cache in turn; its warps share the keys of a tile for the scores and the head's
// values for the sums, and pass the weights p through shared memory. The float operations of a line are those of
// prompts (attention.cu), in the same order. Chunks' results are merged by a second kernel.
//
// Where the heads are not yet made ready, every block does so for its own lines, and the blocks that take a chunk with
// new rows write those to the caches first: nobody else reads them before the next kernel. Tiles of earlier calls' rows
// are asked for before the wait. Floor: the cache's bytes over the memory's rate.
#include <algorithm>

#include "cuda/attention.cuh"
#include "cuda/attention_answer.h"
#include "cuda/heads.cuh"
#include "quant/math.h"

namespace strata::cuda {
namespace {

constexpr int kLines = 16, kThreads = 256, kWarps = kThreads / 32;

template <int Width, int Tile>
struct Shape {
    static constexpr int stride = Width + 8, p_stride = Tile + 8;                 // halves
    static constexpr int part_width = Width / kWarps < 16 ? 16 : Width / kWarps;  // of the outputs, a warp
    static constexpr int score_warps = Tile / 16;                                 // each 16 keys
    static constexpr int fixed =
        (kLines * stride + kLines * p_stride) * 2 + (score_warps * kLines + kWarps * Width) * 4;
    static constexpr int shared(int stages) { return fixed + stages * 2 * Tile * stride * 2; }
};

template <int Width, int Tile, int Stages>
__global__ void __launch_bounds__(kThreads)
    answer_kernel(Step step, Attention spec, NewHeads heads, int prepares, HeadRows q, int span_count) {
    using S = Shape<Width, Tile>;
    extern __shared__ __align__(16) u8 shared[];
    __half* queries = reinterpret_cast<__half*>(shared);  // [lines][stride]
    __half* weights = queries + kLines * S::stride;       // p: [lines][p_stride]
    __half* tiles = weights + kLines * S::p_stride;       // [stages][keys, values][Tile][stride]
    float* maxima = reinterpret_cast<float*>(tiles + Stages * 2 * Tile * S::stride);  // [score warps][lines]
    float* heads_of_warps = maxima + S::score_warps * kLines;                         // [warps][Width]
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c4 = lane & 3;
    const int group = blockIdx.y, group_heads = q.heads / spec.kv_heads;
    grid_release();

    // Which conversation and which lines.
    int tile = blockIdx.z, span_index = 0;
    for (; span_index < span_count; ++span_index) {
        const int there = (step.spans[span_index].rows * group_heads + kLines - 1) / kLines;
        if (tile < there) break;
        tile -= there;
    }
    if (span_index >= span_count) return;
    const SpanInfo span = step.spans[span_index];
    const int first_index = tile * kLines, last_index = min(first_index + kLines, span.rows * group_heads) - 1;
    int low = INT32_MAX, high = -1;
    for (int t = first_index / group_heads; t <= last_index / group_heads; ++t) {
        const Place p = place_of(step, spec, span, group, t * group_heads, group_heads);
        low = min(low, p.low);
        high = max(high, p.high);
    }
    const int first_chunk = low / kChunk, chunk0 = first_chunk + static_cast<int>(blockIdx.x),
              last_chunk = high / kChunk, chunk_step = static_cast<int>(gridDim.x);
    if (chunk0 > last_chunk) return;
    const std::byte* key_cache = step.part(span.slot, spec.keys.id);
    const std::byte* value_cache = step.part(span.slot, spec.values.id);
    const auto begin_of = [&](int chunk) { return max(chunk * kChunk, low / Tile * Tile); };
    const auto end_of = [&](int chunk) { return min((chunk + 1) * kChunk, high + 1); };

    // The tile to load next, and into which stage.
    int load_chunk = chunk0, load_first = begin_of(chunk0), loaded = 0;
    const auto settle = [&] {
        while (load_chunk <= last_chunk && load_first >= end_of(load_chunk)) {
            load_chunk += chunk_step;
            load_first = begin_of(load_chunk);
        }
    };
    const auto load_next = [&] {
        if (load_chunk <= last_chunk) {
            __half* to = tiles + loaded % Stages * 2 * Tile * S::stride;
            load_tile<Width, Tile, S::stride, kThreads>(to, key_cache, spec.keys, group, load_first, low, high);
            load_tile<Width, Tile, S::stride, kThreads>(to + Tile * S::stride, value_cache, spec.values, group,
                                                        load_first, low, high);
            load_first += Tile;
            settle();
        }
        ++loaded;
        copy_commit();
    };
    settle();
    while (loaded < Stages && load_chunk <= last_chunk && load_first + Tile <= span.start) load_next();
    grid_wait();

    float* mine_head = heads_of_warps + warp * Width;
    if (prepares) {
        // New rows of this block's chunks into the caches.
        for (int unit = warp; unit < 2 * span.rows; unit += kWarps) {
            const int t = unit >> 1, place = span.start + t, chunk = place / kChunk;
            if (chunk < chunk0 || (chunk - chunk0) % chunk_step != 0) continue;
            const bool is_key = !(unit & 1);
            const HeadRows& x = is_key ? heads.k : heads.v;
            const CachePart& part = is_key ? heads.spec.keys : heads.spec.values;
            const int row = span.first + t;
            prepare_head(x.data + row * x.row_stride + group * x.head_stride, Width,
                         is_key ? heads.spec.key_norm : nullptr,
                         is_key ? heads.spec.key_norm != nullptr : heads.spec.value_norm, heads.spec.eps,
                         is_key && heads.rope.data ? heads.rope.data + row * heads.rope.stride : nullptr,
                         heads.rope.width / 2, mine_head, lane);
            store_row(cache_place(step, part, span.slot, place), part.type, group * Width, mine_head, Width, lane);
            __syncwarp();
        }
    }
    // A warp a line; lines of nobody are zero.
    for (int r = warp; r < kLines; r += kWarps) {
        const Place p = place_of(step, spec, span, group, first_index + r, group_heads);
        const float* from = q.data + p.row * q.row_stride + p.head * q.head_stride;
        if (p.row >= 0 && prepares) {
            prepare_head(from, Width, heads.spec.query_norm, heads.spec.query_norm != nullptr, heads.spec.eps,
                         heads.rope.data ? heads.rope.data + p.row * heads.rope.stride : nullptr, heads.rope.width / 2,
                         mine_head, lane);
            from = mine_head;
        }
        for (int d = lane * 4; d < Width; d += 128) {
            const float4 v = p.row >= 0 ? *reinterpret_cast<const float4*>(from + d) : make_float4(0, 0, 0, 0);
            *reinterpret_cast<uint2*>(queries + r * S::stride + d) = make_uint2(pack(v.x, v.y), pack(v.z, v.w));
        }
        __syncwarp();
    }
    __syncthreads();
    while (loaded < Stages) load_next();

    const Place mine[2] = {place_of(step, spec, span, group, first_index + g, group_heads),
                           place_of(step, spec, span, group, first_index + g + 8, group_heads)};
    const float scale = __fmul_rn(spec.scale, kLog2e);
    const int d0 = warp * S::part_width;
    const bool scores = warp < S::score_warps, has_part = d0 < Width;
    int used = 0;  // tiles
    for (int chunk = chunk0; chunk <= last_chunk; chunk += chunk_step) {
        float o[S::part_width / 8][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < S::part_width / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) o[j][i] = 0.0f;
        const int end = end_of(chunk);
        for (int first = begin_of(chunk); first < end; first += Tile) {
            copy_wait<Stages - 1>();
            __syncthreads();
            const __half* keys = tiles + used % Stages * 2 * Tile * S::stride;
            const __half* values = keys + Tile * S::stride;
            ++used;
            float s[2][4];
            if (scores) {
#pragma unroll
                for (int j = 0; j < 2; ++j)
#pragma unroll
                    for (int i = 0; i < 4; ++i) s[j][i] = 0.0f;
#pragma unroll
                for (int kk = 0; kk < Width / 16; ++kk) {
                    unsigned a[4], b[4];
                    load_matrix4(a, queries + (lane & 15) * S::stride + kk * 16 + (lane >> 4) * 8);
                    load_matrix4(b, keys + (warp * 16 + (lane & 7) + ((lane >> 4) << 3)) * S::stride + kk * 16 +
                                        ((lane >> 3) & 1) * 8);
                    mma_half(s[0], a[0], a[1], a[2], a[3], b[0], b[1]);
                    mma_half(s[1], a[0], a[1], a[2], a[3], b[2], b[3]);
                }
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    float largest = -INFINITY;
#pragma unroll
                    for (int j = 0; j < 2; ++j)
#pragma unroll
                        for (int i = 2 * r; i < 2 * r + 2; ++i) {
                            const int key = first + warp * 16 + j * 8 + 2 * c4 + (i & 1);
                            s[j][i] = key >= mine[r].low && key <= mine[r].high ? __fmul_rn(s[j][i], scale) : -INFINITY;
                            largest = fmaxf(largest, s[j][i]);
                        }
                    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
                    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
                    if (c4 == 0) maxima[warp * kLines + g + 8 * r] = largest;
                }
            }
            __syncthreads();
            float alpha[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float next = m[r];
#pragma unroll
                for (int w = 0; w < S::score_warps; ++w) next = fmaxf(next, maxima[w * kLines + g + 8 * r]);
                const float above = next == -INFINITY ? 0.0f : next;
                alpha[r] = next == m[r] ? 1.0f : power(m[r], next);
                m[r] = next;
                if (scores) {
#pragma unroll
                    for (int j = 0; j < 2; ++j)
                        *reinterpret_cast<unsigned*>(weights + (g + 8 * r) * S::p_stride + warp * 16 + j * 8 + 2 * c4) =
                            pack(exp2_fast(__fsub_rn(s[j][2 * r], above)),
                                 exp2_fast(__fsub_rn(s[j][2 * r + 1], above)));
                }
            }
            __syncthreads();
            if (has_part) {
                unsigned p[Tile / 16][4];
#pragma unroll
                for (int kk = 0; kk < Tile / 16; ++kk)
                    load_matrix4(p[kk], weights + (lane & 15) * S::p_stride + kk * 16 + (lane >> 4) * 8);
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    float sum = 0.0f;
#pragma unroll
                    for (int j = 0; j < Tile / 8; ++j) {
                        const __half2 h = *reinterpret_cast<const __half2*>(&p[j >> 1][(j & 1) * 2 + r]);
                        sum = __fadd_rn(sum, __fadd_rn(__low2float(h), __high2float(h)));
                    }
                    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
                    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
                    l[r] = __fmaf_rn(l[r], alpha[r], sum);
                }
#pragma unroll
                for (int j = 0; j < S::part_width / 8; ++j)
#pragma unroll
                    for (int i = 0; i < 4; ++i) o[j][i] = __fmul_rn(o[j][i], alpha[i >> 1]);
#pragma unroll
                for (int kk = 0; kk < Tile / 16; ++kk)
#pragma unroll
                    for (int jp = 0; jp < S::part_width / 16; ++jp) {
                        unsigned v4[4];
                        load_matrix4_transposed(v4, values +
                                                        (kk * 16 + (lane & 7) + ((lane >> 3) & 1) * 8) * S::stride +
                                                        d0 + jp * 16 + (lane >> 4) * 8);
                        mma_half(o[2 * jp], p[kk][0], p[kk][1], p[kk][2], p[kk][3], v4[0], v4[1]);
                        mma_half(o[2 * jp + 1], p[kk][0], p[kk][1], p[kk][2], p[kk][3], v4[2], v4[3]);
                    }
            }
            __syncthreads();  // the stage is read
            load_next();
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (mine[r].row < 0 || !has_part) continue;
            float* to = partial_of(spec, q.rows, q.heads, Width, chunk, mine[r].row, mine[r].head);
#pragma unroll
            for (int j = 0; j < S::part_width / 8; ++j)
                *reinterpret_cast<float2*>(to + d0 + j * 8 + 2 * c4) = make_float2(o[j][2 * r], o[j][2 * r + 1]);
            if (warp == 0 && c4 == 0) *reinterpret_cast<float2*>(to + Width) = make_float2(m[r], l[r]);
        }
    }
    copy_wait<0>();
}

/// The chunks of one head of one token, in order. A block of Width threads (at least a warp).
__global__ void __launch_bounds__(512)
    merge_kernel(Step step, Attention spec, HeadRows q, HeadRows gate, Rows out, Codes codes, int width) {
    constexpr int kBatch = 128, kAhead = 16;
    __shared__ float2 sums[kBatch];  // (m, l) of chunks
    grid_release();
    const int row = blockIdx.y, head = blockIdx.x, d = threadIdx.x;
    const SpanInfo span = step.spans[step.span_of[row]];
    const int group_heads = q.heads / spec.kv_heads;
    const Place p = place_of(step, spec, span, head / group_heads, (row - span.first) * group_heads, group_heads);
    // Chunks that only other rows of the window see were passed unchanged: leaving them out changes nothing.
    const int first = p.low / kChunk, last = p.high / kChunk;
    const auto chunk_at = [&](int chunk) { return partial_of(spec, q.rows, q.heads, width, chunk, row, head); };
    const int own = min(d, width - 1);
    grid_wait();
    const float gated = gate.data ? gate.data[row * gate.row_stride + head * gate.head_stride + own] : 0.0f;
    float M = -INFINITY, L = 0.0f, O = 0.0f;
    for (int batch = first; batch <= last; batch += kBatch) {
        __syncthreads();
        for (int i = d; i < kBatch && batch + i <= last; i += blockDim.x)
            sums[i] = *reinterpret_cast<const float2*>(chunk_at(batch + i) + width);
        const int end = min(batch + kBatch - 1, last);
        bool staged = false;
        for (int chunk = batch; chunk <= end; chunk += kAhead) {
            float o[kAhead];
#pragma unroll
            for (int i = 0; i < kAhead; ++i) o[i] = chunk + i <= end ? chunk_at(chunk + i)[own] : 0.0f;
            if (!staged) __syncthreads();
            staged = true;
#pragma unroll
            for (int i = 0; i < kAhead; ++i) {
                if (chunk + i > end) break;
                const float2 ml = sums[chunk + i - batch];
                const float higher = fmaxf(M, ml.x), old = power(M, higher), add = power(ml.x, higher);
                L = __fmaf_rn(L, old, __fmul_rn(ml.y, add));
                O = __fmaf_rn(O, old, __fmul_rn(o[i], add));
                M = higher;
            }
        }
    }
    if (spec.sinks) {
        const float sink = __fmul_rn(spec.sinks[head], kLog2e), higher = fmaxf(M, sink), factor = power(M, higher);
        L = __fmaf_rn(L, factor, power(sink, higher));
        O = __fmul_rn(O, factor);
    }
    O = L > 0.0f ? __fdiv_rn(O, L) : 0.0f;
    if (gate.data) O = __fmul_rn(O, sigmoid(gated));
    if (d < width) out.data[row * out.stride + head * width + d] = O;
    // A warp holds a block of 32 outputs.
    if (codes.values) write_a8_lanes(codes, row, (head * width + d) >> 5, d & 31, O);
}

}  // namespace

template <int Width, int Tile>
void run_answer(Queue& queue, const Step& step, const Attention& spec, const NewHeads* heads, HeadRows q, int spans) {
    using S = Shape<Width, Tile>;
    const auto tiles =
        static_cast<unsigned>(div_up(static_cast<int64_t>(q.rows) * (q.heads / spec.kv_heads), kLines) + spans - 1);
    // One wave of blocks; each takes its chunks in turn.
    const int chunks = div_up(spec.longest, kChunk),
              wanted = std::max(1, queue.multiprocessors / (spec.kv_heads * static_cast<int>(tiles)));
    const dim3 grid(static_cast<unsigned>(std::min(chunks, wanted)), static_cast<unsigned>(spec.kv_heads), tiles);
    const auto go = [&](auto stages) {
        launch(queue, "attention", answer_kernel<Width, Tile, stages>, grid, kThreads, S::shared(stages), step, spec,
               heads ? *heads : NewHeads{}, heads ? 1 : 0, q, spans);
    };
    // A quarter of the shared memory stays free for the kernel before: then this one starts while that one drains. The
    // least of a card that tensor cores need is 64 KiB: what fits there has one form.
    constexpr int kLeastRoom = (64 << 10) / 4 * 3;
    if constexpr (S::shared(3) <= kLeastRoom) {
        go(std::integral_constant<int, 3>{});
    } else {
        if (S::shared(3) <= queue.shared_limit / 4 * 3)
            go(std::integral_constant<int, 3>{});
        else if (S::shared(2) <= queue.shared_limit / 4 * 3)
            go(std::integral_constant<int, 2>{});
        else
            go(std::integral_constant<int, 1>{});
    }
}

void merge_answer(Queue& queue, const Step& step, const Attention& spec, HeadRows q, HeadRows gate, Rows out,
                  Codes codes) {
    launch(queue, "attention merge", merge_kernel, dim3(static_cast<unsigned>(q.heads), static_cast<unsigned>(q.rows)),
           std::max(32, q.width), 0, step, spec, q, gate, out, codes, q.width);
}

#define STRATA_ANSWER(width, tile) \
    template void run_answer<width, tile>(Queue&, const Step&, const Attention&, const NewHeads*, HeadRows, int);
STRATA_ANSWER(16, 64)
STRATA_ANSWER(16, 32)
STRATA_ANSWER(32, 64)
STRATA_ANSWER(32, 32)
STRATA_ANSWER(64, 64)
STRATA_ANSWER(64, 32)
STRATA_ANSWER(128, 64)
STRATA_ANSWER(128, 32)
STRATA_ANSWER(256, 64)
STRATA_ANSWER(256, 32)
STRATA_ANSWER(512, 32)
#undef STRATA_ANSWER

}  // namespace strata::cuda
