// softmax(q . keys * scale) values for answers and prompts, with the same float operations for a row in both.
//
// A query row is one head of one token; heads that share a kv head share the keys' tiles. Tiles of keys have absolute
// borders; chunks of 256 keys too. Within a chunk the softmax runs tile by tile with a rescale in every tile; chunk
// results (m, l, o) are merged in ascending order: M' = max(M, m), L = L 2^(M - M') + l 2^(m - M'), O alike, each one
// fma. A row that sees nothing of a tile or chunk passes it unchanged, so its bits do not depend on its company.
// Answers give each chunk a block and merge in a second kernel; prompts keep the total in shared memory. Scores and
// sums float32, q, k, v and p half. Floor: the cache's bytes over the memory's rate (answers); 4 width operations a
// query row and key over the tensor rate.
#include <algorithm>
#include <type_traits>

#include "cuda/heads.h"
#include "cuda/rows.h"
#include "quant/math.h"

namespace strata::cuda {
namespace {

constexpr int kChunk = 256;
constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ void mma_half(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                         unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a2), "r"(a3), "r"(b1));
#endif
}
__device__ __forceinline__ void load_matrix4(unsigned (&r)[4], const __half* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(unsigned(__cvta_generic_to_shared(p))));
}
__device__ __forceinline__ void load_matrix4_transposed(unsigned (&r)[4], const __half* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(unsigned(__cvta_generic_to_shared(p))));
}
__device__ __forceinline__ unsigned pack(float a, float b) {
    const __half2 h = __floats2half2_rn(a, b);
    return *reinterpret_cast<const unsigned*>(&h);
}
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/// 2^(a - b) where a <= b; 0 where a is -inf, also when both are.
__device__ __forceinline__ float power(float a, float b) {
    return a == -INFINITY ? 0.0f : exp2_fast(__fsub_rn(a, b));
}

/// A block has 4 warps: Lines query rows in groups of 16, and where heads are wide, Lines / 16 groups by 4 / (Lines /
/// 16) parts of the head's outputs. Tile: keys at once.
template <int Width, int Lines, int Tile>
struct Shape {
    static constexpr int row_groups = Lines / 16;
    static constexpr int parts = 4 / row_groups;  // of the outputs
    static constexpr int part_width = Width / parts < 16 ? 16 : Width / parts;
    static constexpr int stride = Width + 8;  // halves of a row in shared memory
    static constexpr int shared(bool totals) {
        return (Lines + 2 * Tile) * stride * 2 + (totals ? Lines * (Width + 2) * 4 : 0);
    }
};

/// Copies Tile keys (or values) of one head into shared memory as halves; places outside [low, high] repeat a valid
/// row.
template <int Width, int Tile, int Stride>
__device__ void load_tile(__half* to, const std::byte* cache, const CachePart& part, int kv_head, int first, int low,
                          int high) {
    constexpr int pieces = Width / 8;
    if (part.type == Type::f16 && part.capacity == 0 && first >= low && first + Tile - 1 <= high) {
        // All rows are there, one after the other.
        const std::byte* from = cache + static_cast<int64_t>(first) * part.row_bytes + kv_head * Width * 2;
        for (int i = threadIdx.x; i < Tile * pieces; i += 128)
            copy_async16(to + i / pieces * Stride + i % pieces * 8,
                         from + i / pieces * part.row_bytes + i % pieces * 16);
        return;
    }
    for (int i = threadIdx.x; i < Tile * pieces; i += 128) {
        const int r = i / pieces, piece = i % pieces;
        int p = min(max(first + r, low), high);
        if (part.capacity > 0) p %= part.capacity;
        const std::byte* row = cache + static_cast<int64_t>(p) * part.row_bytes;
        __half* place = to + r * Stride + piece * 8;
        const int at = kv_head * Width + piece * 8;
        if (part.type == Type::f16) {
            copy_async16(place, row + at * 2);
        } else if (part.type == Type::f32) {
            const float4 a = reinterpret_cast<const float4*>(row + at * 4)[0],
                         b = reinterpret_cast<const float4*>(row + at * 4)[1];
            *reinterpret_cast<uint4*>(place) =
                make_uint4(pack(a.x, a.y), pack(a.z, a.w), pack(b.x, b.y), pack(b.z, b.w));
        } else {
            const std::byte* block = row + (at / 32) * 34;
            const float s = __half2float(*reinterpret_cast<const __half*>(block));
            const auto* q = reinterpret_cast<const int8_t*>(block + 2) + at % 32;
            *reinterpret_cast<uint4*>(place) = make_uint4(pack(s * q[0], s * q[1]), pack(s * q[2], s * q[3]),
                                                          pack(s * q[4], s * q[5]), pack(s * q[6], s * q[7]));
        }
    }
}

struct Place {     // of a query row
    int row = -1;  // of the call
    int head = 0;
    int low = 0, high = -1;  // cache rows it sees
};
__device__ Place place_of(const Step& step, const Attention& spec, const SpanInfo& span, int group, int index,
                          int group_heads) {
    Place p;
    const int t = index / group_heads;
    if (t >= span.rows) return p;
    p.row = span.first + t;
    p.head = group * group_heads + index % group_heads;
    const int own = span.start + t;
    p.high = spec.own_rows ? own : span.start - 1;
    p.low = spec.window > 0 ? max(0, own - spec.window + 1) : 0;
    if (spec.look_ahead) p.high = max(p.high, step.look_ahead[p.row]);
    return p;
}

/// Partial results of answers: [chunk][row of the call][head][Width + 2], the last two m and l.
__device__ float* partial_of(const Attention& spec, int rows, int heads, int width, int chunk, int row, int head) {
    return spec.partial + ((static_cast<int64_t>(chunk) * rows + row) * heads + head) * (width + 2);
}

template <int Width, int Lines, int Tile, bool Prompt>
__global__ void __launch_bounds__(128)
    attend_kernel(Step step, Attention spec, HeadRows q, HeadRows gate, Rows out, int span_count) {
    using S = Shape<Width, Lines, Tile>;
    extern __shared__ __align__(16) u8 shared[];
    __half* queries = reinterpret_cast<__half*>(shared);
    __half* keys = queries + Lines * S::stride;
    __half* values = keys + Tile * S::stride;
    float* total = reinterpret_cast<float*>(values + Tile * S::stride);  // prompts: [Lines][Width + 2]
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c4 = lane & 3;
    const int row_group = warp / S::parts, part = warp % S::parts;
    const int group = blockIdx.y, group_heads = q.heads / spec.kv_heads;
    grid_sync();

    // Which conversation and which query rows. The longest tiles of a prompt start first.
    int tile = Prompt ? static_cast<int>(gridDim.z - 1 - blockIdx.z) : static_cast<int>(blockIdx.z), span_index = 0;
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
    if (Prompt)
        for (int r = warp; r < Lines; r += 4)
            for (int d = lane; d < Width + 2; d += 32) total[r * (Width + 2) + d] = d == Width ? -INFINITY : 0.0f;
    const Place mine[2] = {place_of(step, spec, span, group, first_index + row_group * 16 + g, group_heads),
                           place_of(step, spec, span, group, first_index + row_group * 16 + g + 8, group_heads)};
    const float scale = __fmul_rn(spec.scale, kLog2e);
    const bool computes = first_index + row_group * 16 <= last_index;
    const int d0 = part * S::part_width;
    const bool has_part = d0 < Width;

    const int first_chunk = low / kChunk, last_chunk = high / kChunk;
    const int chunk0 = Prompt ? first_chunk : first_chunk + static_cast<int>(blockIdx.x),
              chunk_step = Prompt ? 1 : static_cast<int>(gridDim.x);
    for (int chunk = chunk0; chunk <= last_chunk; chunk += chunk_step) {
        float o[S::part_width / 8][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < S::part_width / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) o[j][i] = 0.0f;

        const int begin = max(chunk * kChunk, low / Tile * Tile), end = min((chunk + 1) * kChunk, high + 1);
        __syncthreads();
        if (begin < end) load_tile<Width, Tile, S::stride>(keys, key_cache, spec.keys, group, begin, low, high);
        copy_commit();
        for (int first = begin; first < end; first += Tile) {
            load_tile<Width, Tile, S::stride>(values, value_cache, spec.values, group, first, low, high);
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
                load_tile<Width, Tile, S::stride>(keys, key_cache, spec.keys, group, first + Tile, low, high);
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

        // The chunk's result: into the total, or out for the merge.
        if (computes && has_part) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                if (mine[r].row < 0) continue;
                float* to = Prompt ? total + (row_group * 16 + g + 8 * r) * (Width + 2)
                                   : partial_of(spec, q.rows, q.heads, Width, chunk, mine[r].row, mine[r].head);
                float old = 0.0f, add = 1.0f, M = m[r], L = l[r];
                if (Prompt) {
                    // All four lanes of a row and all parts read the old maximum before one of them writes it.
                    M = fmaxf(to[Width], m[r]);
                    old = power(to[Width], M);
                    add = power(m[r], M);
                    L = __fmaf_rn(to[Width + 1], old, __fmul_rn(l[r], add));
                }
#pragma unroll
                for (int j = 0; j < S::part_width / 8; ++j) {
                    float2* at = reinterpret_cast<float2*>(to + d0 + j * 8 + 2 * c4);
                    if (Prompt) {
                        const float2 before = *at;
                        *at = make_float2(__fmaf_rn(before.x, old, __fmul_rn(o[j][2 * r], add)),
                                          __fmaf_rn(before.y, old, __fmul_rn(o[j][2 * r + 1], add)));
                    } else {
                        *at = make_float2(o[j][2 * r], o[j][2 * r + 1]);
                    }
                }
                m[r] = M;
                l[r] = L;
            }
        }
        if (Prompt) __syncthreads();
        if (computes && part == 0 && c4 == 0) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                if (mine[r].row < 0) continue;
                float* to = Prompt ? total + (row_group * 16 + g + 8 * r) * (Width + 2)
                                   : partial_of(spec, q.rows, q.heads, Width, chunk, mine[r].row, mine[r].head);
                to[Width] = m[r];
                to[Width + 1] = l[r];
            }
        }
    }
    if (!Prompt) return;

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

/// Answers: the chunks of one head of one token, in order. A block of Width threads (at least a warp).
__global__ void merge_kernel(Step step, Attention spec, HeadRows q, HeadRows gate, Rows out, Codes codes, int width) {
    grid_sync();
    const int row = blockIdx.y, head = blockIdx.x, d = threadIdx.x;
    const SpanInfo span = step.spans[step.span_of[row]];
    const int group_heads = q.heads / spec.kv_heads;
    const Place p = place_of(step, spec, span, head / group_heads, (row - span.first) * group_heads, group_heads);
    // Chunks that only other rows of the window see were passed unchanged: leaving them out changes nothing.
    const int first = p.low / kChunk, last = p.high / kChunk;
    float M = -INFINITY, L = 0.0f, O = 0.0f;
    if (d < width) {
        constexpr int kAhead = 8;
        for (int chunk = first; chunk <= last; chunk += kAhead) {
            float m[kAhead], l[kAhead], o[kAhead];
#pragma unroll
            for (int i = 0; i < kAhead; ++i) {
                const float* from = partial_of(spec, q.rows, q.heads, width, min(chunk + i, last), row, head);
                m[i] = from[width], l[i] = from[width + 1], o[i] = from[d];
            }
#pragma unroll
            for (int i = 0; i < kAhead; ++i) {
                if (chunk + i > last) break;
                const float higher = fmaxf(M, m[i]), old = power(M, higher), add = power(m[i], higher);
                L = __fmaf_rn(L, old, __fmul_rn(l[i], add));
                O = __fmaf_rn(O, old, __fmul_rn(o[i], add));
                M = higher;
            }
        }
        if (spec.sinks) {
            const float sink = __fmul_rn(spec.sinks[head], kLog2e), higher = fmaxf(M, sink), factor = power(M, higher);
            L = __fmaf_rn(L, factor, power(sink, higher));
            O = __fmul_rn(O, factor);
        }
        O = L > 0.0f ? __fdiv_rn(O, L) : 0.0f;
        if (gate.data) O = __fmul_rn(O, sigmoid(gate.data[row * gate.row_stride + head * gate.head_stride + d]));
        out.data[row * out.stride + head * width + d] = O;
    }
    if (!codes.values) return;
    // A warp holds a block of 32 outputs.
    float a = fabsf(O);
#pragma unroll
    for (int s = 16; s > 0; s >>= 1) a = max_nan(a, __shfl_xor_sync(0xffffffffu, a, s));
    float scale, inverse;
    a8_scale(a, scale, inverse);
    const int code = a8_code(O, inverse), block = (head * width + d) >> 5;
    codes.values[static_cast<int64_t>(row) * codes.width + head * width + d] = static_cast<int8_t>(code);
    int sum = code;
#pragma unroll
    for (int s = 8; s > 0; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    const int other = __shfl_xor_sync(0xffffffffu, sum, 16);
    if ((d & 31) == 0) {
        codes.scales[static_cast<int64_t>(block) * codes.rows + row] = scale;
        codes.half_sums[static_cast<int64_t>(block) * codes.rows + row] = make_short2(sum, other);
    }
}

/// Query rows and keys of a tile by head width and shared memory. A function of the card alone: answers and prompts
/// agree.
template <int Width, int Lines, int Tile>
void run(Queue& queue, const Step& step, const Attention& spec, HeadRows q, HeadRows gate, Rows out, int spans,
         bool prompt) {
    using S = Shape<Width, Lines, Tile>;
    const int group_heads = q.heads / spec.kv_heads;
    const auto tiles = static_cast<unsigned>(div_up(static_cast<int64_t>(q.rows) * group_heads, Lines) + spans - 1);
    if (prompt) {
        launch(queue, "attention", attend_kernel<Width, Lines, Tile, true>, dim3(1, spec.kv_heads, tiles), 128,
               S::shared(true), step, spec, q, gate, out, spans);
    } else {
        const int chunks = div_up(spec.longest, kChunk),
                  wanted = std::max(1, 4 * queue.multiprocessors / (spec.kv_heads * static_cast<int>(tiles)));
        launch(queue, "attention", attend_kernel<Width, Lines, Tile, false>,
               dim3(static_cast<unsigned>(std::min(chunks, wanted)), spec.kv_heads, tiles), 128, S::shared(false), step,
               spec, q, gate, out, spans);
    }
}

}  // namespace

uint64_t attention_scratch(int rows, int heads, int width, int capacity) {
    return static_cast<uint64_t>(div_up(capacity, kChunk)) * static_cast<uint64_t>(rows) *
           static_cast<uint64_t>(heads) * static_cast<uint64_t>(width + 2) * sizeof(float);
}

void attend(Queue& queue, const Step& step, const Attention& spec, HeadRows q, HeadRows gate, Rows values, Codes codes,
            int spans, bool prompt) {
    const auto go = [&](auto width) {
        constexpr int w = width;
        constexpr int wide_tile = w > 256 ? 32 : 64, wide_rows = w > 256 ? 32 : 64;
        if (Shape<w, wide_rows, wide_tile>::shared(true) <= queue.shared_limit)
            run<w, wide_rows, wide_tile>(queue, step, spec, q, gate, values, spans, prompt);
        else if (Shape<w, 32, 32>::shared(true) <= queue.shared_limit || w > 256)
            run<w, 32, 32>(queue, step, spec, q, gate, values, spans, prompt);
        else
            run<w, 16, 32>(queue, step, spec, q, gate, values, spans, prompt);
    };
    switch (q.width) {
        case 16: go(std::integral_constant<int, 16>{}); break;
        case 32: go(std::integral_constant<int, 32>{}); break;
        case 64: go(std::integral_constant<int, 64>{}); break;
        case 128: go(std::integral_constant<int, 128>{}); break;
        case 256: go(std::integral_constant<int, 256>{}); break;
        case 512: go(std::integral_constant<int, 512>{}); break;
        default: queue.keep(cudaErrorNotSupported, "attention (head width)"); return;
    }
    if (!prompt) {
        const bool whole_blocks = q.width % 32 == 0;
        launch(queue, "attention merge", merge_kernel,
               dim3(static_cast<unsigned>(q.heads), static_cast<unsigned>(q.rows)), std::max(32, q.width), 0, step,
               spec, q, gate, values, whole_blocks ? codes : Codes{}, q.width);
        if (whole_blocks) return;
    }
    if (codes.values) quantise(queue, values, codes);
}

}  // namespace strata::cuda
