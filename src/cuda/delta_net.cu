// The gated delta net: convolution, norms and gates of all rows at once; then the recurrence, rows of S in registers
// over all tokens of a conversation's span; then the head norm and gate. Answers and prompts run the same operations
// for a token.
//
// Both products use the old S, so a token costs one reduction:
//   kv = S k;  qv = S q;  delta = beta (v - e^g kv);  o = e^g qv + delta (k . q);  S = e^g S + delta k
// Four lanes hold a row of S, keys 16 i + 4 lane .. + 3 each; a dot is a chain over i, then the lanes by xor 1, 2.
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

constexpr int kChunk = 16;     // tokens staged at once
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

/// A block a head's channels: unit 0 .. key_heads - 1 queries, then keys, then values. `keeps`: the block has all rows
/// of the call, so nobody else reads its channels' history, and it brings that up to date.
__global__ void conv_kernel(Step step, DeltaNetSpec spec, uint64_t history_bytes, Rows u, Rows alpha, Rows beta,
                            Activated out, int spans, int keeps) {
    __shared__ float buffer[16];
    grid_sync();
    const int unit = blockIdx.x, d = threadIdx.x, width = spec.width,
              channels = (2 * spec.key_heads + spec.value_heads) * width;
    const int channel = unit * width + d, warps = (width + 31) / 32;
    float taps[16];
    for (int j = 0; j < spec.taps; ++j) taps[j] = spec.conv[static_cast<int64_t>(channel) * spec.taps + j];
    for (int i = 0; i < kConvRows; ++i) {
        const int row = blockIdx.y * kConvRows + i;
        if (row >= u.rows) break;
        const SpanInfo span = step.spans[step.span_of[row]];
        const float* history = reinterpret_cast<const float*>(step.part(span.slot, spec.history));
        const float* log = reinterpret_cast<const float*>(step.part(span.slot, spec.history) + history_bytes);
        float c = 0.0f;
        for (int j = 0; j < spec.taps; ++j)
            c = __fmaf_rn(taps[j],
                          conv_input(history, log, u, span.first, spec.taps, channels, span.replay,
                                     row - span.first - (spec.taps - 1) + j, channel),
                          c);
        c = silu(c);
        if (unit >= 2 * spec.key_heads) {
            const int head = unit - 2 * spec.key_heads;
            out.v[(static_cast<int64_t>(row) * spec.value_heads + head) * width + d] = c;
            if (d == 0) {
                const float g = __fmul_rn(spec.decay[head],
                                          softplus(__fadd_rn(alpha.data[row * alpha.stride + head], spec.dt[head])));
                out.gates[static_cast<int64_t>(row) * spec.value_heads + head] =
                    make_float2(exp_fixed(g), sigmoid(beta.data[row * beta.stride + head]));
            }
            continue;
        }
        // q / sqrt(sum + eps) / sqrt(width), k / sqrt(sum + eps)
        float sum = __fmul_rn(c, c);
        for (int m = min(width, 32) / 2; m > 0; m >>= 1)
            sum = __fadd_rn(sum, __shfl_xor_sync(width < 32 ? 0xffffu : 0xffffffffu, sum, m));
        if (warps > 1) {
            if ((d & 31) == 0) buffer[d >> 5] = sum;
            __syncthreads();
            sum = buffer[0];
            for (int w = 1; w < warps; ++w) sum = __fadd_rn(sum, buffer[w]);
            __syncthreads();
        }
        float y = __fdiv_rn(c, __fsqrt_rn(__fadd_rn(sum, spec.eps)));
        const bool query = unit < spec.key_heads;
        if (query) y = __fdiv_rn(y, __fsqrt_rn(static_cast<float>(width)));
        float* to = query ? out.q : out.k;
        to[(static_cast<int64_t>(row) * spec.key_heads + (query ? unit : unit - spec.key_heads)) * width + d] = y;
    }
    if (!keeps) return;
    for (int s = 0; s < spans; ++s) {
        const SpanInfo span = step.spans[s];
        auto* history = reinterpret_cast<float*>(step.part(span.slot, spec.history));
        keep_inputs(history, reinterpret_cast<float*>(step.part(span.slot, spec.history) + history_bytes), u, span,
                    spec.taps, channels, channel);
    }
}

/// Norm over the head, then the gate: a warp a head of a token; o in registers of lanes, element i * 32 + lane.
template <int Width>
__device__ void norm_gate(const float* o, const DeltaNetSpec& spec, Rows z, int row, int head, Rows values,
                          const Codes& codes, int lane) {
    constexpr int n = (Width + 31) / 32;
    float v[n], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < n; ++i) {
        v[i] = i * 32 + lane < Width ? o[i * 32 + lane] : 0.0f;
        sum = __fmaf_rn(v[i], v[i], sum);
    }
    const float mean = __fdiv_rn(warp_sum(sum), static_cast<float>(Width));
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, spec.eps)));
#pragma unroll
    for (int i = 0; i < n; ++i) {
        const int d = i * 32 + lane;
        if (d >= Width) break;
        const float gate = silu(z.data[row * z.stride + head * Width + d]);
        v[i] = __fmul_rn(__fmul_rn(__fmul_rn(v[i], factor), spec.norm[d]), gate);
        values.data[row * values.stride + head * Width + d] = v[i];
    }
    if (Width % 32 != 0 || !codes.values) return;
#pragma unroll
    for (int i = 0; i < n; ++i) {
        float a = fabsf(v[i]);
#pragma unroll
        for (int m = 16; m > 0; m >>= 1) a = max_nan(a, __shfl_xor_sync(0xffffffffu, a, m));
        float scale, inverse;
        a8_scale(a, scale, inverse);
        const int code = a8_code(v[i], inverse), block = (head * Width + i * 32) / 32;
        codes.values[static_cast<int64_t>(row) * codes.width + block * 32 + lane] = static_cast<int8_t>(code);
        int half = code;
#pragma unroll
        for (int m = 8; m > 0; m >>= 1) half += __shfl_xor_sync(0xffffffffu, half, m);
        const int other = __shfl_xor_sync(0xffffffffu, half, 16);
        if (lane == 0) {
            codes.scales[static_cast<int64_t>(block) * codes.rows + row] = scale;
            codes.half_sums[static_cast<int64_t>(block) * codes.rows + row] = make_short2(half, other);
        }
    }
}

/// Block (value head, part of its rows, span). Parts > 1 (prompts): o goes to memory and is normed by a kernel of its
/// own.
template <int Width, int Parts>
__global__ void __launch_bounds__(Width / Parts * 4)
    net_kernel(Step step, DeltaNetSpec spec, uint64_t state_bytes, uint64_t history_bytes, Rows u, Rows z, Activated a,
               Rows values, Codes codes, int keeps) {
    constexpr int rows_here = Width / Parts, threads = rows_here * 4, own = Width / 16;  // float4s of S a thread
    __shared__ float4 keys[kChunk][Width / 4], queries[kChunk][Width / 4];
    __shared__ float vs[kChunk][rows_here], outs[kChunk][rows_here], eg[kChunk], betas[kChunk], kq[kChunk];
    grid_sync();
    const int head = blockIdx.x, part = blockIdx.y, t = threadIdx.x, local = t >> 2, lane4 = t & 3,
              j = part * rows_here + local;
    const int key_head = head % spec.key_heads;
    const SpanInfo span = step.spans[blockIdx.z];
    if (span.rows == 0 && span.replay == 0) return;
    std::byte* state = step.part(span.slot, spec.state);
    float4* S = reinterpret_cast<float4*>(state) + (static_cast<int64_t>(head) * Width + j) * (Width / 4);
    const int log_row = spec.value_heads * (2 * Width + 2);  // floats
    float* log = reinterpret_cast<float*>(state + state_bytes) + head * (2 * Width + 2);

    float4 s[own];
#pragma unroll
    for (int i = 0; i < own; ++i) s[i] = S[4 * i + lane4];

    // Tokens -replay .. -1 come from the log and give nothing; 0 .. rows - 1 are the call's.
    for (int first = -span.replay; first < span.rows; first += kChunk) {
        // A window's replay is a chunk of its own: S is written after it.
        const int border = first < 0 && span.log ? 0 : span.rows;
        const int n = min(kChunk, border - first);
        __syncthreads();
        for (int i = t; i < n * Width; i += threads) {
            const int token = first + i / Width, d = i % Width;
            const bool logged = token < 0;
            const int64_t row = span.first + token;
            const float* from = log + static_cast<int64_t>(token + span.replay) * log_row;
            reinterpret_cast<float*>(keys[i / Width])[d] =
                logged ? from[d] : a.k[(row * spec.key_heads + key_head) * Width + d];
            reinterpret_cast<float*>(queries[i / Width])[d] =
                logged ? 0.0f : a.q[(row * spec.key_heads + key_head) * Width + d];
        }
        for (int i = t; i < n * rows_here; i += threads) {
            const int token = first + i / rows_here, d = part * rows_here + i % rows_here;
            const int64_t row = span.first + token;
            vs[i / rows_here][i % rows_here] =
                token < 0 ? log[static_cast<int64_t>(token + span.replay) * log_row + Width + d]
                          : a.v[(row * spec.value_heads + head) * Width + d];
        }
        if (t < n) {
            const int token = first + t;
            const float* from = log + static_cast<int64_t>(token + span.replay) * log_row + 2 * Width;
            const float2 g = token < 0 ? make_float2(from[0], from[1])
                                       : a.gates[static_cast<int64_t>(span.first + token) * spec.value_heads + head];
            eg[t] = g.x;
            betas[t] = g.y;
        }
        __syncthreads();
        // k . q of each token: eight lanes a token, a chain each, then the lanes in order of xor 1, 2, 4.
        for (int i = t; i < kChunk * 8; i += threads) {
            const int token = i >> 3, l = i & 7;
            float sum = 0.0f;
            if (token < n)
                for (int d = l * (Width / 8); d < (l + 1) * (Width / 8); ++d)
                    sum = __fmaf_rn(reinterpret_cast<const float*>(keys[token])[d],
                                    reinterpret_cast<const float*>(queries[token])[d], sum);
            const unsigned mask = threads < 32 ? (1u << threads) - 1 : 0xffffffffu;
            sum = __fadd_rn(sum, __shfl_xor_sync(mask, sum, 1));
            sum = __fadd_rn(sum, __shfl_xor_sync(mask, sum, 2));
            sum = __fadd_rn(sum, __shfl_xor_sync(mask, sum, 4));
            if (l == 0) kq[token] = sum;
        }
        __syncthreads();
        for (int token = 0; token < n; ++token) {
            float kv = 0.0f, qv = 0.0f;
#pragma unroll
            for (int i = 0; i < own; ++i) {
                const float4 k = keys[token][4 * i + lane4], q = queries[token][4 * i + lane4];
                kv = __fmaf_rn(s[i].x, k.x, kv), qv = __fmaf_rn(s[i].x, q.x, qv);
                kv = __fmaf_rn(s[i].y, k.y, kv), qv = __fmaf_rn(s[i].y, q.y, qv);
                kv = __fmaf_rn(s[i].z, k.z, kv), qv = __fmaf_rn(s[i].z, q.z, qv);
                kv = __fmaf_rn(s[i].w, k.w, kv), qv = __fmaf_rn(s[i].w, q.w, qv);
            }
            const unsigned mask = threads < 32 ? (1u << threads) - 1 : 0xffffffffu;
            kv = __fadd_rn(kv, __shfl_xor_sync(mask, kv, 1)), qv = __fadd_rn(qv, __shfl_xor_sync(mask, qv, 1));
            kv = __fadd_rn(kv, __shfl_xor_sync(mask, kv, 2)), qv = __fadd_rn(qv, __shfl_xor_sync(mask, qv, 2));
            const float e = eg[token], delta = __fmul_rn(betas[token], __fmaf_rn(-e, kv, vs[token][local]));
            if (lane4 == 0) outs[token][local] = __fmaf_rn(delta, kq[token], __fmul_rn(e, qv));
#pragma unroll
            for (int i = 0; i < own; ++i) {
                const float4 k = keys[token][4 * i + lane4];
                s[i].x = __fmaf_rn(delta, k.x, __fmul_rn(e, s[i].x));
                s[i].y = __fmaf_rn(delta, k.y, __fmul_rn(e, s[i].y));
                s[i].z = __fmaf_rn(delta, k.z, __fmul_rn(e, s[i].z));
                s[i].w = __fmaf_rn(delta, k.w, __fmul_rn(e, s[i].w));
            }
        }
        __syncthreads();
        if (Parts == 1) {
            for (int token = t >> 5; token < n; token += threads / 32)
                if (first + token >= 0)
                    norm_gate<Width>(outs[token], spec, z, span.first + first + token, head, values, codes, t & 31);
        } else {
            for (int i = t; i < n * rows_here; i += threads) {
                const int token = first + i / rows_here;
                if (token >= 0)
                    a.o[(static_cast<int64_t>(span.first + token) * spec.value_heads + head) * Width +
                        part * rows_here + i % rows_here] = outs[i / rows_here][i % rows_here];
            }
        }
        if (first < 0 && span.log) {
            // The kept rows are in: S after them is the state; what follows is a window's.
#pragma unroll
            for (int i = 0; i < own; ++i) S[4 * i + lane4] = s[i];
            first = -kChunk;  // next: token 0
        }
    }
    if (!span.log) {
#pragma unroll
        for (int i = 0; i < own; ++i) S[4 * i + lane4] = s[i];
    } else if (Parts == 1) {
        __syncthreads();
        for (int i = t; i < span.rows * Width; i += threads) {
            const int token = i / Width, d = i % Width;
            const int64_t row = span.first + token;
            log[static_cast<int64_t>(token) * log_row + d] = a.k[(row * spec.key_heads + key_head) * Width + d];
            log[static_cast<int64_t>(token) * log_row + Width + d] = a.v[(row * spec.value_heads + head) * Width + d];
            if (d == 0) {
                const float2 g = a.gates[row * spec.value_heads + head];
                log[static_cast<int64_t>(token) * log_row + 2 * Width] = g.x;
                log[static_cast<int64_t>(token) * log_row + 2 * Width + 1] = g.y;
            }
        }
    }
    if (part > 0 || !keeps) return;
    const int channels = (2 * spec.key_heads + spec.value_heads) * Width;
    auto* history = reinterpret_cast<float*>(step.part(span.slot, spec.history));
    auto* input_log = reinterpret_cast<float*>(step.part(span.slot, spec.history) + history_bytes);
    for (int d = t; d < Width; d += threads) {
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
    norm_gate<Width>(a.o + (static_cast<int64_t>(row) * spec.value_heads + head) * Width, spec, z, row, head, values,
                     codes, threadIdx.x & 31);
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

void delta_net(Queue& queue, const Step& step, const DeltaNetSpec& spec, uint64_t state_bytes, uint64_t history_bytes,
               Rows u, Rows z, Rows alpha, Rows beta, Rows values, Codes codes, int spans, std::byte* scratch) {
    const int64_t rows = u.rows, keys = int64_t{spec.key_heads} * spec.width,
                  outs = int64_t{spec.value_heads} * spec.width;
    auto* f = reinterpret_cast<float*>(scratch);
    const auto aligned = [](int64_t n) { return (n + 3) / 4 * 4; };
    Activated a{};
    a.q = f, f += aligned(rows * keys);
    a.k = f, f += aligned(rows * keys);
    a.v = f, f += aligned(rows * outs);
    a.o = f, f += aligned(rows * outs);
    a.gates = reinterpret_cast<float2*>(f);
    // One block has all rows: it keeps the history; else the recurrence does, after all blocks have read it.
    const bool conv_keeps = rows > 0 && rows <= kConvRows;
    if (rows > 0)
        launch(queue, "delta net convolution", conv_kernel,
               dim3(2 * spec.key_heads + spec.value_heads, div_up(rows, kConvRows)), spec.width, 0, step, spec,
               history_bytes, u, alpha, beta, a, spans, conv_keeps ? 1 : 0);
    const auto go = [&](auto width) {
        constexpr int w = width;
        if (rows <= kMaxWindow) {
            launch(queue, "delta net", net_kernel<w, 1>, dim3(spec.value_heads, 1, spans), w * 4, 0, step, spec,
                   state_bytes, history_bytes, u, z, a, values, codes, conv_keeps ? 0 : 1);
        } else {
            constexpr int parts = w >= 32 ? 4 : 1;
            launch(queue, "delta net", net_kernel<w, parts>, dim3(spec.value_heads, parts, spans), w / parts * 4, 0,
                   step, spec, state_bytes, history_bytes, u, z, a, values, codes, conv_keeps ? 0 : 1);
            if (parts > 1)
                launch(queue, "delta net norm", norm_gate_kernel<w>, dim3(div_up(rows * spec.value_heads, 4)), 128, 0,
                       spec, a, z, values, codes);
        }
        if (rows > 0 && w % 32 != 0 && codes.values) quantise(queue, values, codes);
    };
    switch (spec.width) {
        case 16: go(std::integral_constant<int, 16>{}); break;
        case 32: go(std::integral_constant<int, 32>{}); break;
        case 64: go(std::integral_constant<int, 64>{}); break;
        case 128: go(std::integral_constant<int, 128>{}); break;
        default: queue.keep(cudaErrorNotSupported, "delta net (head width)");
    }
}

void short_conv(Queue& queue, const Step& step, const ShortConvSpec& spec, uint64_t history_bytes, Rows bcx,
                Rows values, Codes codes, int spans) {
    launch(queue, "short convolution", short_conv_kernel, dim3(div_up(spec.width, 256), spans), 256, 0, step, spec,
           history_bytes, bcx, values);
    if (codes.values && values.rows > 0) quantise(queue, values, codes);
}

}  // namespace strata::cuda
