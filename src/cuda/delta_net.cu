// The gated delta net: convolution, norms and gates of all rows at once; then the recurrence, rows of S in registers
// over all tokens of a conversation's span; then the head norm and gate. Answers and prompts run the same operations
// for a token.
//
// Both products use the old S, so a token costs one reduction:
//   kv = S k;  qv = S q;  delta = beta (v - e^g kv);  o = e^g qv + delta (k . q);  S = e^g S + delta k
// Eight lanes hold a row of S (four where heads are 16 wide), keys 32 i + 4 lane .. + 3 each. A dot is four chains over
// i, one a place in the four, added as (x + y) + (z + w), then the lanes by xor 1, 2, 4.
//
// A window of guesses leaves S and the history as they are and logs its rows (Span::log); the next call replays the
// kept ones first. The log of S holds, per value head: k, v, e^g, beta; each head's block reads and writes only its
// own. Floor: S read and written once a call (answers); 6 width^2 operations a head and token over the float32 rate
// (prompts).
#include <algorithm>
#include <type_traits>

#include "cuda/delta_net.h"
#include "cuda/rows.h"
#include "quant/math.h"

namespace strata::cuda {
namespace {

constexpr int kChunk = 16;     // tokens of a prompt staged at once
constexpr int kConvRows = 16;  // rows of a call a block convolves

/// Activated rows of a call: q, k [rows][key_heads * width], v [rows][value_heads * width], gates [rows][value_heads]
/// of (e^g, beta), o as v.
struct Activated {
    float* q;
    float* k;
    float* v;
    float2* gates;
    float* o;
};

/// Row `at` of what the convolution sees: rows of the call from 0 on, before them the replayed log, before it the
/// history.
__device__ float conv_input(const float* history, const float* log, Rows u, int first, int taps, int channels,
                            int replay, int at, int channel) {
    if (at >= 0) return u.data[static_cast<int64_t>(first + at) * u.stride + channel];
    const int back = -at;  // 1: the row before the call
    if (back <= replay) return log[static_cast<int64_t>(replay - back) * channels + channel];
    return history[static_cast<int64_t>(taps - 1 - (back - replay)) * channels + channel];
}

/// The last taps - 1 inputs become the history; a window's go to the log instead. A thread owns its channel.
__device__ void keep_inputs(float* history, float* log, Rows u, const SpanInfo& span, int taps, int channels,
                            int channel) {
    float last[15];
    const int rows = span.log ? 0 : span.rows;
    for (int i = 0; i < taps - 1; ++i)
        last[i] = conv_input(history, log, u, span.first, taps, channels, span.replay, rows - (taps - 1) + i, channel);
    for (int i = 0; i < taps - 1; ++i) history[static_cast<int64_t>(i) * channels + channel] = last[i];
    if (span.log)
        for (int t = 0; t < span.rows; ++t)
            log[static_cast<int64_t>(t) * channels + channel] =
                u.data[static_cast<int64_t>(span.first + t) * u.stride + channel];
}

/// A warp a head's channels and a tile of rows: unit 0 .. key_heads - 1 queries, then keys, then values. `keeps`: the
/// warp has all rows of the call, so nobody else reads its channels' history, and it brings that up to date.
template <int Taps>
__global__ void __launch_bounds__(128) conv_kernel(Step step, DeltaNetSpec spec, uint64_t history_bytes, Rows u,
                                                   Rows alpha, Rows beta, Activated out, int spans, int keeps) {
    constexpr int kMost = 4;  // channels a lane
    grid_sync();
    const int unit = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31, width = spec.width;
    if (unit >= 2 * spec.key_heads + spec.value_heads) return;
    const int channels = (2 * spec.key_heads + spec.value_heads) * width, first_row = blockIdx.y * kConvRows;
    const int taps = Taps > 0 ? Taps : spec.taps;
    constexpr int kTaps = Taps > 0 ? Taps : 16;
    float weights[kMost][kTaps], window[kMost][kTaps];
#pragma unroll
    for (int n = 0; n < kMost; ++n)
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
            const int d = n * 32 + lane;
            weights[n][j] = d < width && j < taps ? spec.conv[static_cast<int64_t>(unit * width + d) * taps + j] : 0.0f;
        }
    int current = -1;  // the span that the window belongs to
    for (int row = first_row; row < min(first_row + kConvRows, u.rows); ++row) {
        const int span_index = step.span_of[row];
        const SpanInfo span = step.spans[span_index];
        if (span_index != current) {
            current = span_index;
            const float* history = reinterpret_cast<const float*>(step.part(span.slot, spec.history));
            const float* log = reinterpret_cast<const float*>(step.part(span.slot, spec.history) + history_bytes);
#pragma unroll
            for (int n = 0; n < kMost; ++n)
#pragma unroll
                for (int j = 0; j + 1 < kTaps; ++j)
                    if (n * 32 + lane < width && j + 1 < taps)
                        window[n][j + 1] = conv_input(history, log, u, span.first, taps, channels, span.replay,
                                                      row - span.first - (taps - 1) + j, unit * width + n * 32 + lane);
        }
        float c[kMost], sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kMost; ++n) {
            const int d = n * 32 + lane;
            if (n * 32 >= width) break;
                // The window moves on: oldest first, the row itself last.
#pragma unroll
            for (int j = 0; j + 1 < kTaps; ++j)
                if (j + 1 < taps) window[n][j] = window[n][j + 1];
            const float own = d < width ? u.data[static_cast<int64_t>(row) * u.stride + unit * width + d] : 0.0f;
            c[n] = 0.0f;
#pragma unroll
            for (int j = 0; j < kTaps; ++j) {
                if (j == taps - 1) window[n][j] = own;
                if (j < taps) c[n] = __fmaf_rn(weights[n][j], window[n][j], c[n]);
            }
            c[n] = d < width ? silu(c[n]) : 0.0f;
            sum = __fmaf_rn(c[n], c[n], sum);
        }
        if (unit >= 2 * spec.key_heads) {
            const int head = unit - 2 * spec.key_heads;
#pragma unroll
            for (int n = 0; n < kMost; ++n)
                if (n * 32 + lane < width)
                    out.v[(static_cast<int64_t>(row) * spec.value_heads + head) * width + n * 32 + lane] = c[n];
            if (lane == 0) {
                const float g = __fmul_rn(spec.decay[head],
                                          softplus(__fadd_rn(alpha.data[row * alpha.stride + head], spec.dt[head])));
                out.gates[static_cast<int64_t>(row) * spec.value_heads + head] =
                    make_float2(exp_fixed(g), sigmoid(beta.data[row * beta.stride + head]));
            }
            continue;
        }
        // q / sqrt(sum + eps) / sqrt(width), k / sqrt(sum + eps)
        const bool query = unit < spec.key_heads;
        const float root = __fsqrt_rn(__fadd_rn(warp_sum(sum), spec.eps)), more = __fsqrt_rn(static_cast<float>(width));
        float* to = (query ? out.q : out.k) +
                    (static_cast<int64_t>(row) * spec.key_heads + (query ? unit : unit - spec.key_heads)) * width;
#pragma unroll
        for (int n = 0; n < kMost; ++n)
            if (n * 32 + lane < width)
                to[n * 32 + lane] = query ? __fdiv_rn(__fdiv_rn(c[n], root), more) : __fdiv_rn(c[n], root);
    }
    if (!keeps) return;
    for (int s = 0; s < spans; ++s) {
        const SpanInfo span = step.spans[s];
        auto* history = reinterpret_cast<float*>(step.part(span.slot, spec.history));
        for (int d = lane; d < width; d += 32)
            keep_inputs(history, reinterpret_cast<float*>(step.part(span.slot, spec.history) + history_bytes), u, span,
                        spec.taps, channels, unit * width + d);
    }
}

/// Norm over the head, then the gate: a warp a head of a token; element i * 32 + lane is the lane's. Only elements of
/// blocks [first, end) of 32 are written: several warps can share a head.
template <int Width>
__device__ __forceinline__ void norm_gate(const float* o, const float* weight, float eps, const float* z, int row,
                                          int head, Rows values, const Codes& codes, int lane, int first = 0,
                                          int end = (Width + 31) / 32) {
    constexpr int n = (Width + 31) / 32;
    float v[n], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < n; ++i) {
        v[i] = i * 32 + lane < Width ? o[i * 32 + lane] : 0.0f;
        sum = __fmaf_rn(v[i], v[i], sum);
    }
    const float mean = __fdiv_rn(warp_sum(sum), static_cast<float>(Width));
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
#pragma unroll
    for (int i = 0; i < n; ++i) {
        const int d = i * 32 + lane;
        if (i < first || i >= end) continue;
        const float gated = d < Width ? __fmul_rn(__fmul_rn(__fmul_rn(v[i], factor), weight[d]), silu(z[d])) : 0.0f;
        if (d < Width) values.data[row * values.stride + head * Width + d] = gated;
        if (Width % 32 == 0 && codes.values) write_a8_lanes(codes, row, (head * Width + i * 32) / 32, lane, gated);
    }
}

template <int Width, int Parts>
struct NetShape {
    static constexpr int rows = Width / Parts;         // of S, a block
    static constexpr int lanes = Width >= 32 ? 8 : 4;  // of a row
    static constexpr int threads = rows * lanes;
    static constexpr int own = Width / 4 / lanes;  // float4s of S a thread
};

/// Prompts. Block (value head, part of its rows, span); o goes to memory and is normed by a kernel of its own.
template <int Width, int Parts>
__global__ void __launch_bounds__(NetShape<Width, Parts>::threads)
    net_kernel(Step step, DeltaNetSpec spec, uint64_t state_bytes, uint64_t history_bytes, Rows u, Activated a,
               int keeps) {
    using N = NetShape<Width, Parts>;
    constexpr int kStage = kChunk;
    // Two chunks of tokens: one is multiplied while the next arrives.
    __shared__ __align__(16) float keys[2][kStage][Width], queries[2][kStage][Width], vs[2][kStage][N::rows];
    __shared__ float2 gates[2][kStage];
    __shared__ float outs[kStage][N::rows];
    grid_sync();
    const int head = blockIdx.x, part = blockIdx.y, t = threadIdx.x, local = t / N::lanes, lane = t % N::lanes,
              j = part * N::rows + local;
    const int key_head = head % spec.key_heads;
    const SpanInfo span = step.spans[blockIdx.z];
    if (span.rows == 0 && span.replay == 0) return;
    std::byte* state = step.part(span.slot, spec.state);
    float4* S = reinterpret_cast<float4*>(state) + (static_cast<int64_t>(head) * Width + j) * (Width / 4);
    const int log_row = spec.value_heads * (2 * Width + 2);  // floats
    float* log = reinterpret_cast<float*>(state + state_bytes) + head * (2 * Width + 2);

    // Chunk c: tokens of the log (-replay .. -1) come first, chunks of their own; then the call's.
    const int log_chunks = (span.replay + kStage - 1) / kStage, chunks = log_chunks + (span.rows + kStage - 1) / kStage;
    const auto first_of = [&](int c) { return c < log_chunks ? c * kStage - span.replay : (c - log_chunks) * kStage; };
    const auto count_of = [&](int c) { return min(kStage, (c < log_chunks ? 0 : span.rows) - first_of(c)); };
    const auto stage = [&](int c) {
        const int first = first_of(c), n = count_of(c), to = c & 1;
        if (c < log_chunks) {
            for (int i = t; i < n * Width; i += N::threads) {
                const float* from = log + static_cast<int64_t>(first + i / Width + span.replay) * log_row;
                keys[to][i / Width][i % Width] = from[i % Width];
                queries[to][i / Width][i % Width] = 0.0f;
            }
            for (int i = t; i < n * N::rows; i += N::threads)
                vs[to][i / N::rows][i % N::rows] =
                    log[static_cast<int64_t>(first + i / N::rows + span.replay) * log_row + Width + part * N::rows +
                        i % N::rows];
            for (int i = t; i < n; i += N::threads) {
                const float* from = log + static_cast<int64_t>(first + i + span.replay) * log_row + 2 * Width;
                gates[to][i] = make_float2(from[0], from[1]);
            }
            return;
        }
        const int64_t row = span.first + first;
        constexpr int pieces = Width / 4, v_pieces = N::rows / 4;
        for (int i = t; i < n * pieces; i += N::threads) {
            const int token = i / pieces, piece = i % pieces;
            const int64_t at = ((row + token) * spec.key_heads + key_head) * Width + piece * 4;
            copy_async16(&keys[to][token][piece * 4], a.k + at);
            copy_async16(&queries[to][token][piece * 4], a.q + at);
        }
        for (int i = t; i < n * v_pieces; i += N::threads)
            copy_async16(
                &vs[to][i / v_pieces][i % v_pieces * 4],
                a.v + ((row + i / v_pieces) * spec.value_heads + head) * Width + part * N::rows + i % v_pieces * 4);
        for (int i = t; i < n * 2; i += N::threads)
            copy_async4(reinterpret_cast<float*>(gates[to]) + i,
                        reinterpret_cast<const float*>(a.gates + (row + i / 2) * spec.value_heads + head) + i % 2);
    };

    float4 s[N::own];
#pragma unroll
    for (int i = 0; i < N::own; ++i) s[i] = S[N::lanes * i + lane];
    const unsigned mask = N::threads < 32 ? (1u << N::threads) - 1 : 0xffffffffu;
    const auto lanes_sum = [&](float v) {
        v = __fadd_rn(v, __shfl_xor_sync(mask, v, 1));
        v = __fadd_rn(v, __shfl_xor_sync(mask, v, 2));
        return N::lanes == 8 ? __fadd_rn(v, __shfl_xor_sync(mask, v, 4)) : v;
    };

    stage(0);
    copy_commit();
    for (int c = 0; c < chunks; ++c) {
        copy_wait<0>();
        __syncthreads();
        if (c + 1 < chunks) stage(c + 1);
        copy_commit();
        const int first = first_of(c), n = count_of(c), from = c & 1;
        for (int token = 0; token < n; ++token) {
            const float4* key = reinterpret_cast<const float4*>(keys[from][token]);
            const float4* query = reinterpret_cast<const float4*>(queries[from][token]);
            float4 k[N::own], kv = make_float4(0, 0, 0, 0), qv = kv, kq = kv;
#pragma unroll
            for (int i = 0; i < N::own; ++i) {
                k[i] = key[N::lanes * i + lane];
                const float4 q = query[N::lanes * i + lane];
                kv.x = __fmaf_rn(s[i].x, k[i].x, kv.x), kv.y = __fmaf_rn(s[i].y, k[i].y, kv.y);
                kv.z = __fmaf_rn(s[i].z, k[i].z, kv.z), kv.w = __fmaf_rn(s[i].w, k[i].w, kv.w);
                qv.x = __fmaf_rn(s[i].x, q.x, qv.x), qv.y = __fmaf_rn(s[i].y, q.y, qv.y);
                qv.z = __fmaf_rn(s[i].z, q.z, qv.z), qv.w = __fmaf_rn(s[i].w, q.w, qv.w);
                kq.x = __fmaf_rn(k[i].x, q.x, kq.x), kq.y = __fmaf_rn(k[i].y, q.y, kq.y);
                kq.z = __fmaf_rn(k[i].z, q.z, kq.z), kq.w = __fmaf_rn(k[i].w, q.w, kq.w);
            }
            const auto fold = [](float4 v) { return __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w)); };
            const float skv = lanes_sum(fold(kv)), sqv = lanes_sum(fold(qv)), skq = lanes_sum(fold(kq));
            const float2 gate = gates[from][token];
            const float e = gate.x, delta = __fmul_rn(gate.y, __fmaf_rn(-e, skv, vs[from][token][local]));
            if (lane == 0) outs[token][local] = __fmaf_rn(delta, skq, __fmul_rn(e, sqv));
#pragma unroll
            for (int i = 0; i < N::own; ++i) {
                s[i].x = __fmaf_rn(delta, k[i].x, __fmul_rn(e, s[i].x));
                s[i].y = __fmaf_rn(delta, k[i].y, __fmul_rn(e, s[i].y));
                s[i].z = __fmaf_rn(delta, k[i].z, __fmul_rn(e, s[i].z));
                s[i].w = __fmaf_rn(delta, k[i].w, __fmul_rn(e, s[i].w));
            }
        }
        if (c < log_chunks) continue;
        __syncthreads();
        for (int i = t; i < n * N::rows; i += N::threads)
            a.o[(static_cast<int64_t>(span.first + first + i / N::rows) * spec.value_heads + head) * Width +
                part * N::rows + i % N::rows] = outs[i / N::rows][i % N::rows];
    }
#pragma unroll
    for (int i = 0; i < N::own; ++i) S[N::lanes * i + lane] = s[i];
    if (part > 0 || !keeps) return;
    const int channels = (2 * spec.key_heads + spec.value_heads) * Width;
    auto* history = reinterpret_cast<float*>(step.part(span.slot, spec.history));
    auto* input_log = reinterpret_cast<float*>(step.part(span.slot, spec.history) + history_bytes);
    for (int d = t; d < Width; d += N::threads) {
        keep_inputs(history, input_log, u, span, spec.taps, channels, (2 * spec.key_heads + head) * Width + d);
        if (head < spec.key_heads) {
            keep_inputs(history, input_log, u, span, spec.taps, channels, head * Width + d);
            keep_inputs(history, input_log, u, span, spec.taps, channels, (spec.key_heads + head) * Width + d);
        }
    }
}

template <int Width>
__global__ void __launch_bounds__(128)
    norm_gate_kernel(DeltaNetSpec spec, Activated a, Rows z, Rows values, Codes codes) {
    grid_sync();
    const int unit = blockIdx.x * 4 + (threadIdx.x >> 5), row = unit / spec.value_heads, head = unit % spec.value_heads;
    if (row >= z.rows) return;
    norm_gate<Width>(a.o + (static_cast<int64_t>(row) * spec.value_heads + head) * Width, spec.norm, spec.eps,
                     z.data + row * z.stride + head * Width, row, head, values, codes, threadIdx.x & 31);
}

/// Windows: all of a head's work for spans of up to kMaxWindow rows. Block (value head, span), the recurrence's
/// threads. S, the replay of logged rows and the convolution's history come before the wait: in a call this kernel
/// alone touches them. Value heads that share a key head share its channels' history: the last of them to have read it
/// writes it; tickets: [spans][key heads] counters that are 0 between launches.
template <int Width, int Taps>
__global__ void __launch_bounds__(NetShape<Width, 1>::threads)
    window_kernel(Step step, DeltaNetSpec spec, uint64_t state_bytes, uint64_t history_bytes, Rows u, Rows z,
                  Rows alpha, Rows beta, Rows values, Codes codes, int* tickets) {
    using N = NetShape<Width, 1>;
    constexpr int kTaps = Taps > 0 ? Taps : 16, warps = N::threads / 32;
    __shared__ __align__(16) float qkv[3][kMaxWindow][Width];
    __shared__ float zs[kMaxWindow][Width], outs[kMaxWindow][Width], head_norm[Width];
    __shared__ float2 gates[kMaxWindow];
    __shared__ int is_last;
    float(&queries)[kMaxWindow][Width] = qkv[0];
    float(&keys)[kMaxWindow][Width] = qkv[1];
    float(&vs)[kMaxWindow][Width] = qkv[2];
    grid_release();
    const int head = blockIdx.x, key_head = head % spec.key_heads, t = threadIdx.x, j = t / N::lanes,
              lane = t % N::lanes, warp = t / 32;
    const int taps = Taps > 0 ? Taps : spec.taps, channels = (2 * spec.key_heads + spec.value_heads) * Width;
    const SpanInfo span = step.spans[blockIdx.y];
    if (span.rows == 0 && span.replay == 0) return;
    std::byte* state = step.part(span.slot, spec.state);
    float4* S = reinterpret_cast<float4*>(state) + (static_cast<int64_t>(head) * Width + j) * (Width / 4);
    const int log_row = spec.value_heads * (2 * Width + 2);  // floats
    float* log = reinterpret_cast<float*>(state + state_bytes) + head * (2 * Width + 2);
    auto* history = reinterpret_cast<float*>(step.part(span.slot, spec.history));
    float* input_log = reinterpret_cast<float*>(step.part(span.slot, spec.history) + history_bytes);

    float4 s[N::own];
#pragma unroll
    for (int i = 0; i < N::own; ++i) s[i] = S[N::lanes * i + lane];
    // Thread t has channel t % Width of the head's queries, keys or values.
    const int kind = t / Width, d = t % Width;
    const bool has_channel = kind < 3;
    const int channel = (kind == 0   ? key_head
                         : kind == 1 ? spec.key_heads + key_head
                                     : 2 * spec.key_heads + head) *
                            Width +
                        d;
    float weights[kTaps], window[kTaps];
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
        const bool inside = has_channel && i < taps;
        weights[i] = inside ? spec.conv[static_cast<int64_t>(channel) * taps + i] : 0.0f;
        window[i] = inside && i > 0
                        ? conv_input(history, input_log, u, span.first, taps, channels, span.replay, i - taps, channel)
                        : 0.0f;
    }
    if (t < Width) head_norm[t] = spec.norm[t];
    const auto lanes_sum = [&](float v) {
        v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 1));
        v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 2));
        return N::lanes == 8 ? __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 4)) : v;
    };
    const auto recur = [&](int token, bool replayed) {
        const float4* key = reinterpret_cast<const float4*>(keys[token]);
        const float4* query = reinterpret_cast<const float4*>(queries[token]);
        float4 k[N::own], kv = make_float4(0, 0, 0, 0), qv = kv, kq = kv;
#pragma unroll
        for (int i = 0; i < N::own; ++i) {
            k[i] = key[N::lanes * i + lane];
            const float4 q = replayed ? make_float4(0, 0, 0, 0) : query[N::lanes * i + lane];
            kv.x = __fmaf_rn(s[i].x, k[i].x, kv.x), kv.y = __fmaf_rn(s[i].y, k[i].y, kv.y);
            kv.z = __fmaf_rn(s[i].z, k[i].z, kv.z), kv.w = __fmaf_rn(s[i].w, k[i].w, kv.w);
            qv.x = __fmaf_rn(s[i].x, q.x, qv.x), qv.y = __fmaf_rn(s[i].y, q.y, qv.y);
            qv.z = __fmaf_rn(s[i].z, q.z, qv.z), qv.w = __fmaf_rn(s[i].w, q.w, qv.w);
            kq.x = __fmaf_rn(k[i].x, q.x, kq.x), kq.y = __fmaf_rn(k[i].y, q.y, kq.y);
            kq.z = __fmaf_rn(k[i].z, q.z, kq.z), kq.w = __fmaf_rn(k[i].w, q.w, kq.w);
        }
        const auto fold = [](float4 v) { return __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w)); };
        const float skv = lanes_sum(fold(kv)), sqv = lanes_sum(fold(qv)), skq = lanes_sum(fold(kq));
        const float2 gate = gates[token];
        const float e = gate.x, delta = __fmul_rn(gate.y, __fmaf_rn(-e, skv, vs[token][j]));
        if (!replayed && lane == 0) outs[token][j] = __fmaf_rn(delta, skq, __fmul_rn(e, sqv));
#pragma unroll
        for (int i = 0; i < N::own; ++i) {
            s[i].x = __fmaf_rn(delta, k[i].x, __fmul_rn(e, s[i].x));
            s[i].y = __fmaf_rn(delta, k[i].y, __fmul_rn(e, s[i].y));
            s[i].z = __fmaf_rn(delta, k[i].z, __fmul_rn(e, s[i].z));
            s[i].w = __fmaf_rn(delta, k[i].w, __fmul_rn(e, s[i].w));
        }
    };
    if (span.replay > 0) {
        for (int i = t; i < span.replay * Width; i += N::threads) {
            const float* from = log + static_cast<int64_t>(i / Width) * log_row;
            keys[i / Width][i % Width] = from[i % Width];
            vs[i / Width][i % Width] = from[Width + i % Width];
            if (i % Width == 0) gates[i / Width] = make_float2(from[2 * Width], from[2 * Width + 1]);
        }
        __syncthreads();
        for (int token = 0; token < span.replay; ++token) recur(token, true);
        __syncthreads();
        // S after the kept rows is the state; what follows is a window's.
        if (span.log) {
#pragma unroll
            for (int i = 0; i < N::own; ++i) S[N::lanes * i + lane] = s[i];
        }
    }

    grid_wait();
    float before[kTaps];  // a window's rows do not count yet
#pragma unroll
    for (int i = 0; i < kTaps; ++i) before[i] = window[i];
    if (has_channel) {
        for (int row = 0; row < span.rows; ++row) {
            const float own = u.data[static_cast<int64_t>(span.first + row) * u.stride + channel];
            float c = 0.0f;
#pragma unroll
            for (int i = 0; i + 1 < kTaps; ++i)
                if (i + 1 < taps) window[i] = window[i + 1];
#pragma unroll
            for (int i = 0; i < kTaps; ++i) {
                if (i == taps - 1) window[i] = own;
                if (i < taps) c = __fmaf_rn(weights[i], window[i], c);
            }
            qkv[kind][row][d] = silu(c);
        }
    }
    for (int i = t; i < span.rows * Width; i += N::threads)
        zs[i / Width][i % Width] = z.data[(span.first + i / Width) * z.stride + head * Width + i % Width];
    if (const int row = t - (N::threads - kMaxWindow); row >= 0 && row < span.rows) {
        const float g = __fmul_rn(
            spec.decay[head], softplus(__fadd_rn(alpha.data[(span.first + row) * alpha.stride + head], spec.dt[head])));
        gates[row] = make_float2(exp_fixed(g), sigmoid(beta.data[(span.first + row) * beta.stride + head]));
    }
    __syncthreads();
    // This block's reads of the history are done. The answer is wanted only at the end.
    const int sharers = (spec.value_heads - key_head + spec.key_heads - 1) / spec.key_heads;
    constexpr int counting = N::threads - 32;
    int* ticket = tickets + blockIdx.y * spec.key_heads + key_head;
    int arrived = 0;
    if (t == counting && sharers > 1) arrived = atomicAdd(ticket, 1);
    // q / sqrt(sum + eps) / sqrt(width), k / sqrt(sum + eps): a warp a head of a row
    for (int unit = warp; unit < 2 * span.rows; unit += warps) {
        float* x = qkv[unit & 1][unit >> 1];
        constexpr int n = (Width + 31) / 32;
        float c[n], sum = 0.0f;
#pragma unroll
        for (int i = 0; i < n; ++i) {
            c[i] = i * 32 + (t & 31) < Width ? x[i * 32 + (t & 31)] : 0.0f;
            sum = __fmaf_rn(c[i], c[i], sum);
        }
        const float root = __fsqrt_rn(__fadd_rn(warp_sum(sum), spec.eps)), more = __fsqrt_rn(static_cast<float>(Width));
#pragma unroll
        for (int i = 0; i < n; ++i)
            if (i * 32 + (t & 31) < Width)
                x[i * 32 + (t & 31)] = unit & 1 ? __fdiv_rn(c[i], root) : __fdiv_rn(__fdiv_rn(c[i], root), more);
    }
    __syncthreads();
    for (int token = 0; token < span.rows; ++token) recur(token, false);
    if (!span.log) {
#pragma unroll
        for (int i = 0; i < N::own; ++i) S[N::lanes * i + lane] = s[i];
    }
    if (t == counting) {
        is_last = arrived == sharers - 1;
        if (is_last) *ticket = 0;
    }
    __syncthreads();
    constexpr int pieces = (Width + 31) / 32;
    for (int unit = warp; unit < span.rows * pieces; unit += warps) {
        const int token = unit / pieces, piece = unit % pieces;
        norm_gate<Width>(outs[token], head_norm, spec.eps, zs[token], span.first + token, head, values, codes, t & 31,
                         piece, piece + 1);
    }
    if (has_channel && (kind == 2 || is_last)) {
#pragma unroll
        for (int i = 1; i < kTaps; ++i)
            if (i < taps) history[static_cast<int64_t>(i - 1) * channels + channel] = span.log ? before[i] : window[i];
        if (span.log)
            for (int row = 0; row < span.rows; ++row)
                input_log[static_cast<int64_t>(row) * channels + channel] =
                    u.data[static_cast<int64_t>(span.first + row) * u.stride + channel];
    }
    if (!span.log) return;
    for (int i = t; i < span.rows * Width; i += N::threads) {
        float* to = log + static_cast<int64_t>(i / Width) * log_row;
        to[i % Width] = keys[i / Width][i % Width];
        to[Width + i % Width] = vs[i / Width][i % Width];
        if (i % Width == 0) to[2 * Width] = gates[i / Width].x, to[2 * Width + 1] = gates[i / Width].y;
    }
}

__global__ void __launch_bounds__(256)
    short_conv_kernel(Step step, ShortConvSpec spec, uint64_t history_bytes, Rows bcx, Rows out) {
    grid_sync();
    // A thread owns a channel of a conversation: B * x is what is convolved and kept.
    const int channel = blockIdx.x * 256 + threadIdx.x;
    if (channel >= spec.width) return;
    const SpanInfo span = step.spans[blockIdx.y];
    auto* history = reinterpret_cast<float*>(step.part(span.slot, spec.history));
    auto* log = reinterpret_cast<float*>(step.part(span.slot, spec.history) + history_bytes);
    const float* taps = spec.conv + static_cast<int64_t>(channel) * spec.taps;
    float window[16];  // the last taps - 1 inputs, oldest first
    const int back = spec.taps - 1;
    for (int i = 0; i < back; ++i) {
        const int at = i + span.replay;  // in history ++ log
        window[i] = at < back ? history[static_cast<int64_t>(at) * spec.width + channel]
                              : log[static_cast<int64_t>(at - back) * spec.width + channel];
    }
    if (span.log)
        for (int i = 0; i < back; ++i) history[static_cast<int64_t>(i) * spec.width + channel] = window[i];
    for (int t = 0; t < span.rows; ++t) {
        const float* row = bcx.data + static_cast<int64_t>(span.first + t) * bcx.stride;
        const float p = __fmul_rn(row[channel], row[2 * spec.width + channel]);
        float c = 0.0f;
        for (int i = 0; i < back; ++i) c = __fmaf_rn(taps[i], window[i], c);
        c = __fmaf_rn(taps[back], p, c);
        out.data[static_cast<int64_t>(span.first + t) * out.stride + channel] = __fmul_rn(row[spec.width + channel], c);
        for (int i = 0; i + 1 < back; ++i) window[i] = window[i + 1];
        window[back - 1] = p;
        if (span.log) log[static_cast<int64_t>(t) * spec.width + channel] = p;
    }
    if (!span.log)
        for (int i = 0; i < back; ++i) history[static_cast<int64_t>(i) * spec.width + channel] = window[i];
}

}  // namespace

uint64_t delta_net_scratch(const DeltaNetSpec& spec, int rows) {
    const auto n = static_cast<uint64_t>(rows);
    const auto keys = static_cast<uint64_t>(spec.key_heads * spec.width),
               values = static_cast<uint64_t>(spec.value_heads * spec.width);
    return n * (2 * keys + 2 * values + 2 * static_cast<uint64_t>(spec.value_heads)) * sizeof(float) + 1024;
}

bool delta_net_takes(const DeltaNetSpec& spec) {
    return (spec.width == 16 || spec.width == 32 || spec.width == 64 || spec.width == 128) && spec.taps <= 16 &&
           spec.key_heads <= kMostKeyHeads;
}

void delta_net(Queue& queue, const Step& step, const DeltaNetSpec& spec, uint64_t state_bytes, uint64_t history_bytes,
               Rows u, Rows z, Rows alpha, Rows beta, Rows values, Codes codes, const DeltaNetCall& call) {
    const int64_t rows = u.rows, keys = int64_t{spec.key_heads} * spec.width,
                  outs = int64_t{spec.value_heads} * spec.width;
    const auto with_width = [&](auto f) {
        switch (spec.width) {
            case 16: f(std::integral_constant<int, 16>{}); break;
            case 32: f(std::integral_constant<int, 32>{}); break;
            case 64: f(std::integral_constant<int, 64>{}); break;
            case 128: f(std::integral_constant<int, 128>{}); break;
            default: queue.keep(cudaErrorNotSupported, "delta net (head width)");
        }
    };
    const bool whole_blocks = spec.width % 32 == 0;
    if (call.longest <= kMaxWindow) {
        with_width([&](auto width) {
            constexpr int w = width;
            const auto go = [&](auto kernel) {
                launch(queue, "delta net", kernel, dim3(spec.value_heads, call.spans), NetShape<w, 1>::threads, 0, step,
                       spec, state_bytes, history_bytes, u, z, alpha, beta, values, codes, call.tickets);
            };
            if (spec.taps == 4)
                go(window_kernel<w, 4>);
            else
                go(window_kernel<w, 0>);
        });
        if (rows > 0 && !whole_blocks && codes.values) quantise(queue, values, codes);
        return;
    }
    auto* f = reinterpret_cast<float*>(call.scratch);
    const auto aligned = [](int64_t n) { return (n + 3) / 4 * 4; };
    Activated a{};
    a.q = f, f += aligned(rows * keys);
    a.k = f, f += aligned(rows * keys);
    a.v = f, f += aligned(rows * outs);
    a.o = f, f += aligned(rows * outs);
    a.gates = reinterpret_cast<float2*>(f);
    // One block has all rows: it keeps the history; else the recurrence does, after all blocks have read it.
    const bool conv_keeps = rows <= kConvRows;
    const dim3 grid(static_cast<unsigned>(div_up(2 * spec.key_heads + spec.value_heads, 4)),
                    static_cast<unsigned>(div_up(rows, kConvRows)));
    const auto convolve = [&](auto kernel) {
        launch(queue, "delta net convolution", kernel, grid, 128, 0, step, spec, history_bytes, u, alpha, beta, a,
               call.spans, conv_keeps ? 1 : 0);
    };
    if (spec.taps == 4)
        convolve(conv_kernel<4>);
    else
        convolve(conv_kernel<0>);
    with_width([&](auto width) {
        constexpr int w = width, parts = w >= 32 ? 4 : 1;
        launch(queue, "delta net", net_kernel<w, parts>, dim3(spec.value_heads, parts, call.spans),
               NetShape<w, parts>::threads, 0, step, spec, state_bytes, history_bytes, u, a, conv_keeps ? 0 : 1);
        launch(queue, "delta net norm", norm_gate_kernel<w>, dim3(div_up(rows * spec.value_heads, 4)), 128, 0, spec, a,
               z, values, codes);
    });
    if (!whole_blocks && codes.values) quantise(queue, values, codes);
}

void short_conv(Queue& queue, const Step& step, const ShortConvSpec& spec, uint64_t history_bytes, Rows bcx,
                Rows values, Codes codes, int spans) {
    launch(queue, "short convolution", short_conv_kernel, dim3(div_up(spec.width, 256), spans), 256, 0, step, spec,
           history_bytes, bcx, values);
    if (codes.values && values.rows > 0) quantise(queue, values, codes);
}

}  // namespace strata::cuda
