// The experts of a layer as one operation: gate and up, activation, codes, down, and the sum by rank; docs/numerics.md,
// "An expert", to the bit.
//
// Windows: two kernels. `up`: a block one pair (row, rank) or the shared expert of a row, and 32 inner values, which
// are exactly one block of codes. `down`: a block 16 outputs of a row, a warp a pair; then the sum by rank and the
// residual. Long calls: pairs are sorted by expert on the card, tiles of up to 64 tokens of one expert run on tensor
// cores (tile.cuh). Float experts and widths the kernels do not take go through a plain form of the same order. Floor:
// windows, the bytes of the distinct experts; long calls, the multiply-adds or all experts' bytes.
#include <algorithm>

#include "cuda/experts.h"
#include "cuda/route.cuh"
#include "cuda/rows.h"
#include "cuda/tile.cuh"
#include "quant/math.h"

namespace strata::cuda {
namespace {

// ---- what kernels know of a set
// ---------------------------------------------------------------------------------------------

struct Weights {
    const u8* data;
    int64_t stride;  // bytes from one expert to the next
    const float* scales;
    Brick brick;
};
Weights weights_of(const Matrix& m) {
    return {reinterpret_cast<const u8*>(m.data), m.stride, m.scales, brick_of(m.type)};
}

struct Gated {
    Weights gate, up, down;
    int inner;
    Gate function;
};

/// The routed experts and the shared one.
struct Blocks {
    Gated of[2];
};

__device__ __forceinline__ float gate_function(Gate function, float g) {
    return function == Gate::silu ? silu(g) : gelu(g);
}

template <int Columns>
__device__ __forceinline__ void any_segment(Brick brick, const u8* data, int row, const int4* codes,
                                            const float* scales, const short2* sums, float (&c)[Columns]) {
    const auto go = [&](auto b) {
        constexpr Brick type = decltype(b)::value;
        Fragment<type> f;
        load_fragment<type>(f, data, row);
        segment_dot<type, Columns>(f, codes, 0, scales, sums, 0, c);
    };
    switch (brick) {
        case Brick::q8_0: go(std::integral_constant<Brick, Brick::q8_0>{}); break;
        case Brick::q4_k: go(std::integral_constant<Brick, Brick::q4_k>{}); break;
        case Brick::q5_k: go(std::integral_constant<Brick, Brick::q5_k>{}); break;
        case Brick::q6_k: go(std::integral_constant<Brick, Brick::q6_k>{}); break;
        case Brick::x8: go(std::integral_constant<Brick, Brick::x8>{}); break;
    }
}
__device__ __forceinline__ int brick_size(Brick brick) {
    switch (brick) {
        case Brick::q8_0: return BrickInfo<Brick::q8_0>::bytes;
        case Brick::q4_k: return BrickInfo<Brick::q4_k>::bytes;
        case Brick::q5_k: return BrickInfo<Brick::q5_k>::bytes;
        case Brick::q6_k: return BrickInfo<Brick::q6_k>::bytes;
        default: return BrickInfo<Brick::x8>::bytes;
    }
}

/// One row's codes into shared memory, zero beyond its width up to whole segments.
__device__ __forceinline__ void stage_row(const Codes& x, int row, int segments, int4* codes, float* scales,
                                          short2* sums, int thread, int threads) {
    for (int i = thread; i < segments * 16; i += threads)
        codes[i] = i * 16 < x.width
                       ? *reinterpret_cast<const int4*>(x.values + static_cast<int64_t>(row) * x.width + i * 16)
                       : make_int4(0, 0, 0, 0);
    for (int i = thread; i < segments * 8; i += threads) {
        const bool inside = i * 32 < x.width;
        scales[i] = inside ? x.scales[static_cast<int64_t>(i) * x.rows + row] : 0.0f;
        sums[i] = inside ? x.half_sums[static_cast<int64_t>(i) * x.rows + row] : make_short2(0, 0);
    }
}

// ---- windows
// ------------------------------------------------------------------------------------------------------------------

/// Where a window's experts come from: logits that every block turns into experts itself (route.cuh), or, logits.data
/// null, the routing that an earlier kernel left in memory.
struct Source {
    Rows logits;
    RouteSpec spec;
};
constexpr int kSourceLogits = 256;

/// The expert of a rank, by a whole warp. What it reads was complete before the `up` kernel.
__device__ __forceinline__ Chosen expert_of(const Source& source, const Routing& routing, int row, int rank, int lane) {
    Chosen chosen;
    if (!source.logits.data) {
        chosen.expert = __ldcg(routing.experts + row * routing.used + rank);
        return chosen;
    }
    RowLogits<kSourceLogits / 32> logits;
    logits.load(source.logits, row, lane);
    chosen = route_row(logits, source.logits.width, source.spec, rank + 1, lane);
    return chosen;
}

/// What a thread of `up` makes of its segments: weights first, so that their latency hides the codes'. early: before
/// the wait, which is then made here.
template <Brick B>
__device__ __forceinline__ void up_chains(const u8* data, const Codes& x, int row, int segments, int4* codes,
                                          float* scales, short2* sums, float* chains, bool early) {
    constexpr bool two_at_once = BrickInfo<B>::chunks <= 11;  // registers allow it
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = warp & 3;
    Fragment<B> f, next;
    if (part < segments) load_fragment<B>(f, data + static_cast<int64_t>(part) * BrickInfo<B>::bytes, lane);
    if constexpr (two_at_once)
        if (part + 4 < segments)
            load_fragment<B>(next, data + static_cast<int64_t>(part + 4) * BrickInfo<B>::bytes, lane);
    if (early) {
        grid_wait();
        grid_release();
    }
    stage_row(x, row, segments, codes, scales, sums, threadIdx.x, 256);
    __syncthreads();
#pragma unroll 1
    for (int s = part; s < segments; s += 4) {
        if (s != part) {
            if (two_at_once && s == part + 4)
                f = next;
            else
                load_fragment<B>(f, data + static_cast<int64_t>(s) * BrickInfo<B>::bytes, lane);
        }
        float c[1];
        segment_dot<B, 1>(f, codes + s * 16, 0, scales + s * 8, sums + s * 8, 0, c);
        chains[((warp >> 2) * segments + s) * 32 + lane] = c[0];
    }
}

/// Block (32 inner values, pair): pairs row * slots + rank, rank == used is the shared expert. h: codes [pairs, widest
/// inner]. Releases `down` only after its wait: that kernel looks for its experts before its own.
__global__ void __launch_bounds__(256, 2)
    up_kernel(const __grid_constant__ Blocks blocks, Source source, Routing routing, Codes x, Codes h, int slots) {
    extern __shared__ __align__(16) u8 memory[];
    const int segments = (x.width + 255) / 256, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    int4* codes = reinterpret_cast<int4*>(memory);
    float* scales = reinterpret_cast<float*>(memory + segments * 256);
    short2* sums = reinterpret_cast<short2*>(scales + segments * 8);
    float* chains = reinterpret_cast<float*>(sums + segments * 8);  // [gate, up][segments][32]
    const int pair = blockIdx.y, row = pair / slots, rank = pair % slots, group = blockIdx.x;
    const bool is_shared = rank >= routing.used;
    const Gated& block = blocks.of[is_shared];
    if (group * 32 >= block.inner) return;
    // The shared expert's weights are known before the wait.
    const bool early = is_shared && block.gate.brick == block.up.brick;
    int expert = 0;
    if (!early) {
        grid_wait();
        grid_release();
    }
    if (!is_shared) {
        const Chosen chosen = expert_of(source, routing, row, rank, lane);
        expert = source.logits.data ? __shfl_sync(0xffffffffu, chosen.expert, rank) : chosen.expert;
        if (source.logits.data && rank == routing.used - 1 && group == 0 && threadIdx.x < routing.used) {
            routing.experts[row * routing.used + lane] = chosen.expert;
            routing.weights[row * routing.used + lane] = chosen.weight;
        }
    }
    const Weights& w = warp < 4 ? block.gate : block.up;
    const int bytes = brick_size(w.brick);
    const u8* data = w.data + expert * w.stride + static_cast<int64_t>(group) * segments * bytes;
    if (block.gate.brick == block.up.brick) {
        const auto go = [&](auto b) {
            up_chains<decltype(b)::value>(data, x, row, segments, codes, scales, sums, chains, early);
        };
        switch (w.brick) {
            case Brick::q8_0: go(std::integral_constant<Brick, Brick::q8_0>{}); break;
            case Brick::q4_k: go(std::integral_constant<Brick, Brick::q4_k>{}); break;
            case Brick::q5_k: go(std::integral_constant<Brick, Brick::q5_k>{}); break;
            case Brick::q6_k: go(std::integral_constant<Brick, Brick::q6_k>{}); break;
            case Brick::x8: go(std::integral_constant<Brick, Brick::x8>{}); break;
        }
    } else {
        stage_row(x, row, segments, codes, scales, sums, threadIdx.x, 256);
        __syncthreads();
        for (int s = warp & 3; s < segments; s += 4) {
            float c[1];
            any_segment<1>(w.brick, data + static_cast<int64_t>(s) * bytes, lane, codes + s * 16, scales + s * 8,
                           sums + s * 8, c);
            chains[((warp >> 2) * segments + s) * 32 + lane] = c[0];
        }
    }
    __syncthreads();
    if (warp > 0) return;
    float g = chains[lane], u = chains[segments * 32 + lane];
    for (int s = 1; s < segments; ++s) {
        g = __fadd_rn(g, chains[s * 32 + lane]);
        u = __fadd_rn(u, chains[(segments + s) * 32 + lane]);
    }
    if (block.gate.scales) g = __fmul_rn(g, block.gate.scales[expert]);
    if (block.up.scales) u = __fmul_rn(u, block.up.scales[expert]);
    write_a8_lanes(h, pair, group, lane, __fmul_rn(gate_function(block.function, g), u));
}

/// A warp's part of `down`: weights first, then the wait and the pair's codes; lanes 0..15 take even segments, 16..31
/// odd ones.
template <Brick B>
__device__ __forceinline__ void down_chains(const u8* data, int brick_row, const Codes& h, int pair, int inner,
                                            int segments, int4* codes, float* scales, short2* sums, float* chains) {
    const int lane = threadIdx.x & 31;
    Fragment<B> f;
    // Both half-warps stay in step; the one without a segment repeats the last.
    load_fragment<B>(f, data + static_cast<int64_t>(min(lane >> 4, segments - 1)) * BrickInfo<B>::bytes, brick_row);
    grid_wait();
    for (int i = lane; i < segments * 16; i += 32)
        codes[i] = i * 16 < inner
                       ? *reinterpret_cast<const int4*>(h.values + static_cast<int64_t>(pair) * h.width + i * 16)
                       : make_int4(0, 0, 0, 0);
    for (int i = lane; i < segments * 8; i += 32) {
        const bool inside = i * 32 < inner;
        scales[i] = inside ? h.scales[static_cast<int64_t>(i) * h.rows + pair] : 0.0f;
        sums[i] = inside ? h.half_sums[static_cast<int64_t>(i) * h.rows + pair] : make_short2(0, 0);
    }
    __syncwarp();
    for (int first = 0; first < segments; first += 2) {
        const int s = first + (lane >> 4), at = min(s, segments - 1);
        if (first > 0) load_fragment<B>(f, data + static_cast<int64_t>(at) * BrickInfo<B>::bytes, brick_row);
        float c[1];
        segment_dot<B, 1>(f, codes + at * 16, 0, scales + at * 8, sums + at * 8, 0, c);
        if (s < segments) chains[s * 16 + (lane & 15)] = c[0];
    }
}

/// Block (16 outputs, row), a warp a pair.
__global__ void __launch_bounds__(512, 1)
    down_kernel(const __grid_constant__ Blocks blocks, Source source, Routing routing, Codes h, Rows shared_weight,
                Rows out, int slots, int add) {
    extern __shared__ __align__(16) u8 memory[];
    __shared__ float weights[16], y[16][16];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row = blockIdx.y;
    const int most = (h.width + 255) / 256;                                       // segments of the wider of the two
    int4* all_codes = reinterpret_cast<int4*>(memory);                            // [slots][most * 16]
    float* all_scales = reinterpret_cast<float*>(memory + slots * most * 256);    // [slots][most * 8]
    short2* all_sums = reinterpret_cast<short2*>(all_scales + slots * most * 8);  // [slots][most * 8]
    float* chains = reinterpret_cast<float*>(all_sums + slots * most * 8);        // [slots][most][16]
    grid_release();
    const int pair = row * slots + warp;
    const bool is_shared = warp >= routing.used;
    const Gated& block = blocks.of[is_shared];
    int expert = 0;
    if (!is_shared) {
        const Chosen chosen = expert_of(source, routing, row, warp, lane);
        expert = source.logits.data ? __shfl_sync(0xffffffffu, chosen.expert, warp) : chosen.expert;
    }
    const int segments = (block.inner + 255) / 256;
    const Weights& w = block.down;
    const int brick_row = (blockIdx.x & 1) * 16 + (lane & 15);
    const u8* data =
        w.data + expert * w.stride + static_cast<int64_t>(blockIdx.x >> 1) * segments * brick_size(w.brick);
    const auto go = [&](auto b) {
        down_chains<decltype(b)::value>(data, brick_row, h, pair, block.inner, segments, all_codes + warp * most * 16,
                                        all_scales + warp * most * 8, all_sums + warp * most * 8,
                                        chains + warp * most * 16);
    };
    switch (w.brick) {
        case Brick::q8_0: go(std::integral_constant<Brick, Brick::q8_0>{}); break;
        case Brick::q4_k: go(std::integral_constant<Brick, Brick::q4_k>{}); break;
        case Brick::q5_k: go(std::integral_constant<Brick, Brick::q5_k>{}); break;
        case Brick::q6_k: go(std::integral_constant<Brick, Brick::q6_k>{}); break;
        case Brick::x8: go(std::integral_constant<Brick, Brick::x8>{}); break;
    }
    const int output = blockIdx.x * 16 + threadIdx.x;
    const bool writes = threadIdx.x < 16 && output < out.width;
    float* to = out.data + row * out.stride + output;
    const float before = writes && add ? *to : 0.0f;
    __syncwarp();
    if (lane < 16) {
        const float* chain = chains + warp * most * 16 + lane;
        float v = chain[0];
        for (int s = 1; s < segments; ++s) v = __fadd_rn(v, chain[s * 16]);
        y[warp][lane] = w.scales ? __fmul_rn(v, w.scales[expert]) : v;
    }
    if (lane == 16)
        weights[warp] = !is_shared           ? routing.weights[row * routing.used + warp]
                        : shared_weight.data ? sigmoid(shared_weight.data[row * shared_weight.stride])
                                             : 1.0f;
    __syncthreads();
    if (!writes) return;
    float sum = 0.0f;
    for (int slot = 0; slot < slots; ++slot) sum = __fmaf_rn(weights[slot], y[slot][threadIdx.x], sum);
    *to = add ? __fadd_rn(before, sum) : sum;
}

// ---- long calls: pairs sorted by expert
// -----------------------------------------------------------------------------------------

struct Group {
    int32_t* pair;   // [pairs] in expert order: row * used + rank
    int32_t* place;  // [pairs] of (row, rank): where its results lie
    int4* tiles;     // (expert, first place, count, 0)
    int32_t* tile_count;
};

/// One block: counts, offsets, places and tiles.
__global__ void __launch_bounds__(1024) group_kernel(Routing routing, int experts, Group out) {
    extern __shared__ int counts[];  // [experts + 1]
    grid_sync();
    const int pairs = routing.rows * routing.used;
    for (int e = threadIdx.x; e <= experts; e += 1024) counts[e] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < pairs; i += 1024) atomicAdd(&counts[routing.experts[i] + 1], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int tiles = 0;
        for (int e = 0; e < experts; ++e) {
            const int first = counts[e], n = counts[e + 1];
            for (int at = 0; at < n; at += kTileTokens)
                out.tiles[tiles++] = make_int4(e, first + at, min(kTileTokens, n - at), 0);
            counts[e + 1] += first;
        }
        *out.tile_count = tiles;
    }
    __syncthreads();
    // Places within an expert are taken as threads come: a pair's result does not depend on its neighbours.
    for (int i = threadIdx.x; i < pairs; i += 1024) {
        const int place = atomicAdd(&counts[routing.experts[i]], 1);
        out.pair[place] = i;
        out.place[i] = place;
    }
}

/// y[place][output] for tiles of one expert's tokens. by_pair: x has a row a pair place (down); else a row a token.
template <Brick B, int Stages>
__global__ void __launch_bounds__(256, Stages == 2 && B != Brick::x8 ? 2 : 1)
    grouped_kernel(Weights w, int rows, Codes x, Group group, int used, int by_pair, float* out) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ int tokens[kTileTokens];
    grid_sync();
    if (static_cast<int>(blockIdx.y) >= *group.tile_count) return;
    const int4 tile = group.tiles[blockIdx.y];
    const int segments = (x.width + 255) / 256, last_group = (rows + 31) / 32 - 1;
    const int own = min(static_cast<int>(blockIdx.x * 4 + (threadIdx.x >> 6)), last_group);
    const u8* bricks = w.data + tile.x * w.stride + static_cast<int64_t>(own) * segments * BrickInfo<B>::bytes;
    if (threadIdx.x < kTileTokens) {
        const int place = tile.y + min(static_cast<int>(threadIdx.x), tile.z - 1);
        tokens[threadIdx.x] = by_pair ? place : group.pair[place] / used;
    }
    __syncthreads();
    float y[8][4];
    tile_product<B, Stages>(y, shared, bricks, x, tokens, segments, (tile.z + 7) / 8);
    const int lane = threadIdx.x & 31, row = blockIdx.x * kTileRows + (threadIdx.x >> 5) * 16 + (lane >> 2);
    const float scale = w.scales ? w.scales[tile.x] : 1.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = row + (i >> 1) * 8, token = j * 8 + 2 * (lane & 3) + (i & 1);
            if (r < rows && token < tile.z)
                out[static_cast<int64_t>(tile.y + token) * rows + r] = w.scales ? __fmul_rn(y[j][i], scale) : y[j][i];
        }
}

/// The plain form: a warp one output of one pair, quantised weights by segments, float weights by blocks of 32 in the
/// order of docs/numerics.md, "Float weights". For float experts and odd cards.
__device__ float plain_quantised(Brick brick, const u8* group_data, int brick_row, const Codes& x, int row, int lane) {
    // Lane 0 of the warp makes all segments: slow and simple.
    const int segments = (x.width + 255) / 256;
    float y = 0.0f;
    if (lane == 0) {
        for (int s = 0; s < segments; ++s) {
            int4 codes[16];
            float scales[8];
            short2 sums[8];
            for (int i = 0; i < 16; ++i) {
                const int at = s * 256 + i * 16;
                codes[i] = at < x.width
                               ? *reinterpret_cast<const int4*>(x.values + static_cast<int64_t>(row) * x.width + at)
                               : make_int4(0, 0, 0, 0);
            }
            for (int b = 0; b < 8; ++b) {
                const int block = s * 8 + b;
                const bool inside = block * 32 < x.width;
                scales[b] = inside ? x.scales[static_cast<int64_t>(block) * x.rows + row] : 0.0f;
                sums[b] = inside ? x.half_sums[static_cast<int64_t>(block) * x.rows + row] : make_short2(0, 0);
            }
            float c[1];
            any_segment<1>(brick, group_data + static_cast<int64_t>(s) * brick_size(brick), brick_row, codes, scales,
                           sums, c);
            y = s == 0 ? c[0] : __fadd_rn(y, c[0]);
        }
    }
    return __shfl_sync(0xffffffffu, y, 0);
}

__device__ float plain_float(Type type, const u8* data, int64_t at, const float* x, int width, int lane,
                             float* blocks) {
    for (int b = lane; b * 32 < width; b += 32) {
        float t = 0.0f;
        for (int i = b * 32; i < min(width, b * 32 + 32); ++i) {
            const int64_t k = at + i;
            const float w =
                type == Type::f32 ? reinterpret_cast<const float*>(data)[k]
                : type == Type::f16
                    ? __half2float(reinterpret_cast<const __half*>(data)[k])
                    : __uint_as_float(static_cast<unsigned>(reinterpret_cast<const uint16_t*>(data)[k]) << 16);
            t = __fmaf_rn(w, x[i], t);
        }
        blocks[b] = t;
    }
    __syncwarp();
    float y = 0.0f;
    if (lane == 0) {
        for (int first = 0; first * 32 < width; first += 8) {
            float c = 0.0f;
            for (int b = first; b < first + 8 && b * 32 < width; ++b) c = __fadd_rn(c, blocks[b]);
            y = first == 0 ? c : __fadd_rn(y, c);
        }
    }
    __syncwarp();
    return __shfl_sync(0xffffffffu, y, 0);
}

constexpr int kPlainWidth = 16384;  // of float rows

__global__ void __launch_bounds__(128)
    plain_kernel(Weights w, Type type, int rows, int cols, const int32_t* expert_of, int per_row, Rows values,
                 Codes codes, int by_pair, float* out, int pairs) {
    __shared__ float blocks[4][kPlainWidth / 32];
    grid_sync();
    const int lane = threadIdx.x & 31, r = blockIdx.x * 4 + (threadIdx.x >> 5), pair = blockIdx.y;
    if (r >= rows || pair >= pairs) return;
    const int expert = expert_of ? expert_of[pair] : 0, row = by_pair ? pair : pair / per_row;
    const u8* data = w.data + expert * w.stride;
    const int segments = (cols + 255) / 256;
    float y;
    if (type == Type::f32 || type == Type::f16 || type == Type::bf16)
        y = plain_float(type, data, static_cast<int64_t>(r) * cols, values.data + row * values.stride, cols, lane,
                        blocks[threadIdx.x >> 5]);
    else
        y = plain_quantised(w.brick, data + static_cast<int64_t>(r / 32) * segments * brick_size(w.brick), r % 32,
                            codes, row, lane);
    if (lane == 0) out[static_cast<int64_t>(pair) * rows + r] = w.scales ? __fmul_rn(y, w.scales[expert]) : y;
}

/// h = act(gate) * up, in place of gate.
__global__ void __launch_bounds__(256) activate_kernel(float* gate, const float* up, int64_t n, Gate function) {
    grid_sync();
    for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < n; i += int64_t{gridDim.x} * 256)
        gate[i] = __fmul_rn(gate_function(function, gate[i]), up[i]);
}

/// The sum by rank, then the shared expert, then the residual. place null: pairs lie by number.
__global__ void __launch_bounds__(256) combine_kernel(const float* y, const int32_t* place, Routing routing,
                                                      const float* shared_y, Rows shared_weight, Rows out, int add) {
    grid_sync();
    const int row = blockIdx.x;
    for (int i = threadIdx.x; i < out.width; i += 256) {
        float sum = 0.0f;
        for (int rank = 0; rank < routing.used; ++rank) {
            const int pair = row * routing.used + rank, at = place ? place[pair] : pair;
            sum = __fmaf_rn(routing.weights[pair], y[static_cast<int64_t>(at) * out.width + i], sum);
        }
        if (shared_y) {
            const float weight = shared_weight.data ? sigmoid(shared_weight.data[row * shared_weight.stride]) : 1.0f;
            sum = __fmaf_rn(weight, shared_y[static_cast<int64_t>(row) * out.width + i], sum);
        }
        float* to = out.data + row * out.stride + i;
        *to = add ? __fadd_rn(*to, sum) : sum;
    }
}

// ---- host
// ---------------------------------------------------------------------------------------------------------------------

bool quantised(const Matrix& m) {
    return type_info(m.type).quantised;
}

/// Scratch handed out piece by piece.
struct Pieces {
    std::byte* at;
    template <class T>
    T* take(uint64_t count) {
        auto* p = reinterpret_cast<T*>(at);
        at += (count * sizeof(T) + 255) / 256 * 256;
        return p;
    }
    Codes codes(int rows, int width) {
        const auto n = static_cast<uint64_t>(rows) * static_cast<uint64_t>(width);
        Codes c;
        c.rows = rows;
        c.width = width;
        c.values = take<int8_t>(n);
        c.scales = take<float>(n / 32);
        c.half_sums = take<short2>(n / 32);
        return c;
    }
};

Gated gated(const Matrix& gate, const Matrix& up, const Matrix& down, Gate function) {
    return {weights_of(gate), weights_of(up), weights_of(down), gate.rows, function};
}

bool windows_take(const Queue& queue, const ExpertSet& set, const Routing& routing, const SharedExpert& shared,
                  const Codes& x) {
    const bool has_shared = static_cast<bool>(shared.gate), has_routed = routing.used > 0;
    const auto good = [](const Matrix& gate, const Matrix& up, const Matrix& down) {
        return quantised(gate) && quantised(up) && quantised(down);
    };
    const int slots = routing.used + (has_shared ? 1 : 0);
    const int most = std::max(has_routed ? set.gate.rows : 0, has_shared ? shared.gate.rows : 0);
    const int segments = div_up(most, 256);
    const int64_t down_bytes = int64_t{slots} * segments * (256 + 64 + 64);
    return x.rows <= kNarrow && slots <= 16 && down_bytes <= queue.shared_limit &&
           (!has_routed || good(set.gate, set.up, set.down)) &&
           (!has_shared || good(shared.gate, shared.up, shared.down));
}

void run_windows(Queue& queue, const ExpertSet& set, const Codes& x, const Routing& routing, const SharedExpert& shared,
                 Rows out, bool add, const RouteInput* route, Pieces pieces) {
    const bool has_shared = static_cast<bool>(shared.gate);
    const Blocks blocks{gated(set.gate, set.up, set.down, set.gate_function),
                        gated(shared.gate, shared.up, shared.down, shared.gate_function)};
    const int slots = routing.used + (has_shared ? 1 : 0), pairs = x.rows * slots;
    const int most = std::max(routing.used > 0 ? blocks.of[0].inner : 0, has_shared ? blocks.of[1].inner : 0);
    const Codes h = pieces.codes(pairs, most);
    const int segments = div_up(x.width, 256);
    const Source source = route ? Source{route->logits, route->spec} : Source{};
    launch(queue, "experts up", up_kernel, dim3(static_cast<unsigned>(most / 32), static_cast<unsigned>(pairs)), 256,
           static_cast<size_t>(segments) * (256 + 64 + 256), blocks, source, routing, x, h, slots);
    const int inner_segments = div_up(most, 256);
    launch(queue, "experts down", down_kernel,
           dim3(static_cast<unsigned>(div_up(out.width, 16)), static_cast<unsigned>(x.rows)), slots * 32,
           static_cast<size_t>(slots) * static_cast<size_t>(inner_segments) * (256 + 64 + 64), blocks, source, routing,
           h, shared.weight_logit, out, slots, add ? 1 : 0);
}

/// One grouped product of a long call, by tiles where it can be, else plainly. expert_of: [pairs] by number or null.
void grouped(Queue& queue, const Matrix& m, Rows values, const Codes& codes, const Group& group, int max_tiles,
             const int32_t* expert_of, int used, int pairs, bool by_pair, float* out) {
    const Weights w = weights_of(m);
    if (quantised(m) && max_tiles > 0) {
        bool done = false;
        with_brick(w.brick, [&](auto b) {
            constexpr int two = Tile<b>::shared(2), one = Tile<b>::shared(1);
            const dim3 grid(static_cast<unsigned>(div_up(m.rows, kTileRows)), static_cast<unsigned>(max_tiles));
            const auto go = [&](auto kernel, int shared) {
                launch(queue, "experts", kernel, grid, 256, static_cast<size_t>(shared), w, m.rows, codes, group, used,
                       by_pair ? 1 : 0, out);
                done = true;
            };
            if (two <= queue.shared_limit)
                go(grouped_kernel<b, 2>, two);
            else if (one <= queue.shared_limit)
                go(grouped_kernel<b, 1>, one);
        });
        if (done) return;
    }
    if (m.cols > kPlainWidth) queue.keep(cudaErrorNotSupported, "experts (width of float rows)");
    launch(queue, "experts", plain_kernel, dim3(static_cast<unsigned>(div_up(m.rows, 4)), static_cast<unsigned>(pairs)),
           128, 0, w, m.type, m.rows, m.cols, expert_of, used, values, codes, by_pair ? 1 : 0, out, pairs);
}

/// gate, up, activation, down of all pairs: y [pairs, width], by place where tiles are used, else by number.
float* run_block(Queue& queue, const Matrix& gate, const Matrix& up, const Matrix& down, Gate function, Rows values,
                 const Codes& codes, const Group& group, int max_tiles, const int32_t* expert_of, int used, int pairs,
                 Pieces& pieces) {
    float* g = pieces.take<float>(static_cast<uint64_t>(pairs) * static_cast<uint64_t>(gate.rows));
    float* u = pieces.take<float>(static_cast<uint64_t>(pairs) * static_cast<uint64_t>(gate.rows));
    const Codes h = pieces.codes(pairs, gate.rows);
    float* y = pieces.take<float>(static_cast<uint64_t>(pairs) * static_cast<uint64_t>(down.rows));
    grouped(queue, gate, values, codes, group, max_tiles, expert_of, used, pairs, false, g);
    grouped(queue, up, values, codes, group, max_tiles, expert_of, used, pairs, false, u);
    const int64_t n = int64_t{pairs} * gate.rows;
    launch(queue, "experts activation", activate_kernel, dim3(static_cast<unsigned>(div_up(n, 1024))), 256, 0, g, u, n,
           function);
    const Rows h_values{g, pairs, gate.rows, gate.rows};
    if (quantised(down)) quantise(queue, h_values, h);
    grouped(queue, down, h_values, h, group, max_tiles, expert_of, used, pairs, true, y);
    return y;
}

/// The shared expert or dense block of a long call: y [rows, width].
float* run_shared(Queue& queue, const SharedExpert& shared, Rows values, const Codes& codes, Pieces& pieces) {
    const int rows = values.rows;
    if (!quantised(shared.gate) || !quantised(shared.up) || !quantised(shared.down))
        return run_block(queue, shared.gate, shared.up, shared.down, shared.gate_function, values, codes, {}, 0,
                         nullptr, 1, rows, pieces);
    const int inner = shared.gate.rows, width = shared.down.rows;
    const auto take = [&](int w) {
        return Rows{pieces.take<float>(static_cast<uint64_t>(rows) * static_cast<uint64_t>(w)), rows, w, w};
    };
    const Rows g = take(inner), u = take(inner), y = take(width);
    const Codes h = pieces.codes(rows, inner);
    const Product products[2] = {{shared.gate, g}, {shared.up, u}};
    const auto multiply = rows <= kNarrow ? matvec : matmat;
    multiply(queue, codes, std::span<const Product>(products), false);
    const int64_t n = int64_t{rows} * inner;
    launch(queue, "experts activation", activate_kernel, dim3(static_cast<unsigned>(div_up(n, 1024))), 256, 0, g.data,
           u.data, n, shared.gate_function);
    quantise(queue, g, h);
    const Product down{shared.down, y};
    multiply(queue, h, std::span<const Product>(&down, 1), false);
    return y.data;
}

}  // namespace

uint64_t experts_scratch(int rows, int used, int inner, int shared_inner, int width, int count) {
    const auto n = static_cast<uint64_t>(rows), k = static_cast<uint64_t>(used), f = static_cast<uint64_t>(inner),
               s = static_cast<uint64_t>(shared_inner), d = static_cast<uint64_t>(width),
               e = static_cast<uint64_t>(count);
    const uint64_t block = n * k * (f * 8 + f * 2 + d * 4) + n * (s * 8 + s * 2 + d * 4);
    const uint64_t windows = n * (k + 1) * std::max(f, s) * 2;
    return block + windows + n * k * 8 + (n * k / kTileTokens + e + 1) * 16 + 64 * 256;
}

void experts(Queue& queue, const ExpertSet& set, Rows values, const Codes& codes, const Routing& routing,
             const SharedExpert& shared, Rows out, bool add, const RouteInput* route, std::byte* scratch) {
    Pieces pieces{scratch};
    const bool windows = windows_take(queue, set, routing, shared, codes);
    if (route && (!windows || route->logits.width > kSourceLogits)) {
        cuda::route(queue, route->logits, route->spec, routing);
        route = nullptr;
    }
    if (windows) return run_windows(queue, set, codes, routing, shared, out, add, route, pieces);

    float* y = nullptr;
    Group group{};
    bool tiles = false;
    if (routing.used > 0) {
        const int pairs = routing.rows * routing.used,
                  max_tiles = std::min(set.gate.count, pairs) + pairs / kTileTokens;
        // Places are by expert only if every product runs in tiles.
        tiles = quantised(set.gate) && quantised(set.up) && quantised(set.down) &&
                Tile<Brick::x8>::shared(1) <= queue.shared_limit;
        if (tiles) {
            group.pair = pieces.take<int32_t>(static_cast<uint64_t>(pairs));
            group.place = pieces.take<int32_t>(static_cast<uint64_t>(pairs));
            group.tiles = pieces.take<int4>(static_cast<uint64_t>(max_tiles));
            group.tile_count = pieces.take<int32_t>(1);
            launch(queue, "experts grouping", group_kernel, dim3(1), 1024,
                   static_cast<size_t>(set.gate.count + 1) * sizeof(int), routing, set.gate.count, group);
        }
        y = run_block(queue, set.gate, set.up, set.down, set.gate_function, values, codes, group, tiles ? max_tiles : 0,
                      routing.experts, routing.used, pairs, pieces);
    }
    const float* shared_y = shared.gate ? run_shared(queue, shared, values, codes, pieces) : nullptr;
    launch(queue, "experts sum", combine_kernel, dim3(static_cast<unsigned>(values.rows)), 256, 0, y,
           tiles ? group.place : nullptr, routing, shared_y, shared.weight_logit, out, add ? 1 : 0);
}

}  // namespace strata::cuda
