// Norms, codes, sums and lookups: each a pass over its rows. Floor: bytes read and written over the memory's rate; for
// a window of guesses they are latency, about a microsecond each.
#include <cfloat>

#include "cuda/bricks.cuh"
#include "cuda/rows.h"
#include "quant/math.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 256;

/// 1 / sqrt(mean(x^2) + eps) of a row: thread t sums elements 4 (t + 256 i) .. + 3 in ascending order, then the warps.
__device__ float inverse_rms(const float* x, int width, float eps, float* buffer) {
    float sum = 0.0f;
    for (int i = threadIdx.x * 4; i < width; i += kThreads * 4) {
        const float4 v = *reinterpret_cast<const float4*>(x + i);
        sum = __fmaf_rn(v.x, v.x, sum);
        sum = __fmaf_rn(v.y, v.y, sum);
        sum = __fmaf_rn(v.z, v.z, sum);
        sum = __fmaf_rn(v.w, v.w, sum);
    }
    const float mean = __fdiv_rn(block_sum<kThreads / 32>(sum, buffer), static_cast<float>(width));
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

__device__ float4 scaled(float4 v, float factor, const float* weight, int i) {
    v = make_float4(__fmul_rn(v.x, factor), __fmul_rn(v.y, factor), __fmul_rn(v.z, factor), __fmul_rn(v.w, factor));
    if (!weight) return v;
    const float4 w = *reinterpret_cast<const float4*>(weight + i);
    return make_float4(__fmul_rn(v.x, w.x), __fmul_rn(v.y, w.y), __fmul_rn(v.z, w.z), __fmul_rn(v.w, w.w));
}

__global__ void __launch_bounds__(kThreads)
    norm_kernel(Rows x, const float* weight, float eps, Rows values, Codes codes) {
    __shared__ float buffer[kThreads / 32];
    grid_sync();
    const int row = blockIdx.x;
    const float* from = x.data + row * x.stride;
    const float factor = inverse_rms(from, x.width, eps, buffer);
    // Whole warps stay in the loop: a block of codes is made by eight lanes together. Widths are multiples of 32.
    for (int i0 = (threadIdx.x & ~31) * 4; i0 < x.width; i0 += kThreads * 4) {
        const int i = i0 + (threadIdx.x & 31) * 4;
        const bool inside = i < x.width;
        const float4 v =
            inside ? scaled(*reinterpret_cast<const float4*>(from + i), factor, weight, i) : make_float4(0, 0, 0, 0);
        if (inside && values.data) *reinterpret_cast<float4*>(values.data + row * values.stride + i) = v;
        if (codes.values) write_a8(codes, row, i >> 5, threadIdx.x & 7, v, inside);
    }
}

__global__ void __launch_bounds__(kThreads) add_norm_kernel(Rows residual, Rows x, const float* weight, float eps) {
    __shared__ float buffer[kThreads / 32];
    grid_sync();
    const int row = blockIdx.x;
    const float* from = x.data + row * x.stride;
    const float factor = inverse_rms(from, x.width, eps, buffer);
    for (int i = threadIdx.x * 4; i < x.width; i += kThreads * 4) {
        const float4 v = scaled(*reinterpret_cast<const float4*>(from + i), factor, weight, i);
        float4* to = reinterpret_cast<float4*>(residual.data + row * residual.stride + i);
        const float4 r = *to;
        *to = make_float4(__fadd_rn(r.x, v.x), __fadd_rn(r.y, v.y), __fadd_rn(r.z, v.z), __fadd_rn(r.w, v.w));
    }
}

/// A warp takes four blocks of 32 of one row.
__global__ void __launch_bounds__(kThreads) quantise_kernel(Rows x, Codes codes) {
    grid_sync();
    const int per_row = (x.width + 127) / 128, unit = blockIdx.x * (kThreads / 32) + (threadIdx.x >> 5);
    const int row = unit / per_row, i = (unit % per_row) * 128 + (threadIdx.x & 31) * 4;
    if (row >= x.rows) return;
    const bool inside = i < x.width;
    const float4 v = inside ? *reinterpret_cast<const float4*>(x.data + row * x.stride + i) : make_float4(0, 0, 0, 0);
    write_a8(codes, row, i >> 5, threadIdx.x & 7, v, inside);
}

enum class Each { add, scale, cap };

template <Each E>
__global__ void __launch_bounds__(kThreads) each_kernel(Rows to, Rows from, float factor, const float* weight) {
    grid_sync();
    const int64_t n = static_cast<int64_t>(to.rows) * to.width;
    for (int64_t k = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; k < n;
         k += static_cast<int64_t>(gridDim.x) * kThreads) {
        const int row = static_cast<int>(k / to.width), i = static_cast<int>(k % to.width);
        float& v = to.data[row * to.stride + i];
        if constexpr (E == Each::add)
            v = __fadd_rn(v, from.data[row * from.stride + i]);
        else if constexpr (E == Each::scale)
            v = weight ? __fmul_rn(__fmul_rn(v, factor), weight[i]) : __fmul_rn(v, factor);
        else
            v = __fmul_rn(factor, tanh_fixed(__fdiv_rn(v, factor)));
    }
}

__global__ void __launch_bounds__(kThreads) gather_kernel(GatherList which, Rows in, Rows out) {
    grid_sync();
    const float* from = in.data + which.row[blockIdx.x] * in.stride;
    float* to = out.data + blockIdx.x * out.stride;
    for (int i = threadIdx.x * 4; i < in.width; i += kThreads * 4)
        *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(from + i);
}

template <Brick B>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(Step step, const u8* table, int vocabulary, float scale, Rows out) {
    grid_sync();
    const int row = blockIdx.x, segments = (out.width + 255) / 256;
    float* to = out.data + row * out.stride;
    const int picture = step.picture[row];
    if (picture >= 0) {
        for (int i = threadIdx.x; i < out.width; i += kThreads)
            to[i] = step.picture_rows[static_cast<int64_t>(picture) * out.width + i];
        return;
    }
    const int token = min(max(step.tokens[row], 0), vocabulary - 1);
    const u8* bricks = table + static_cast<int64_t>(token / 32) * segments * BrickInfo<B>::bytes;
    for (int i = threadIdx.x; i < out.width; i += kThreads)
        to[i] = __fmul_rn(
            brick_weight<B>(bricks + static_cast<int64_t>(i / 256) * BrickInfo<B>::bytes, token % 32, i % 256), scale);
}

__global__ void __launch_bounds__(kThreads)
    embed_float_kernel(Step step, const u8* table, Type type, int vocabulary, float scale, Rows out) {
    grid_sync();
    const int row = blockIdx.x;
    float* to = out.data + row * out.stride;
    const int picture = step.picture[row], token = min(max(step.tokens[row], 0), vocabulary - 1);
    for (int i = threadIdx.x; i < out.width; i += kThreads) {
        const int64_t at = static_cast<int64_t>(token) * out.width + i;
        float v;
        if (picture >= 0)
            v = step.picture_rows[static_cast<int64_t>(picture) * out.width + i];
        else if (type == Type::f32)
            v = reinterpret_cast<const float*>(table)[at];
        else if (type == Type::f16)
            v = __half2float(reinterpret_cast<const __half*>(table)[at]);
        else
            v = __uint_as_float(static_cast<unsigned>(reinterpret_cast<const uint16_t*>(table)[at]) << 16);
        to[i] = picture >= 0 ? v : __fmul_rn(v, scale);
    }
}

__global__ void rope_kernel(Step step, const double* frequency, const uint8_t* axis, int pairs, Rows out) {
    grid_sync();
    const int row = blockIdx.x;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        const double angle = step.positions[row * 3 + axis[i]] * frequency[i];
        double sine, cosine;
        sincos(angle, &sine, &cosine);
        out.data[row * out.stride + i] = static_cast<float>(cosine);
        out.data[row * out.stride + pairs + i] = static_cast<float>(sine);
    }
}

/// A warp a row; lane l holds experts l, l + 32, ... (at most 32 of them: 1,024 experts).
__global__ void __launch_bounds__(128) route_kernel(Rows logits, RouteSpec spec, Routing out) {
    grid_sync();
    const int row = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= logits.rows) return;
    const float* z = logits.data + row * logits.stride;
    const int experts = logits.width;

    float largest = -FLT_MAX, total = 0.0f;
    if (spec.score == RouteSpec::Score::softmax) {
        for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, z[e]);
        largest = warp_max(largest);
        for (int e = lane; e < experts; e += 32) total = __fadd_rn(total, exp_fixed(__fsub_rn(z[e], largest)));
        total = warp_sum(total);
    }
    const auto score = [&](int e) {
        return spec.score == RouteSpec::Score::softmax ? __fdiv_rn(exp_fixed(__fsub_rn(z[e], largest)), total)
                                                       : sigmoid(z[e]);
    };
    // What the choice is by. Without a bias the logits order softmax and sigmoid scores, and tell more of them apart.
    const auto key = [&](int e) {
        if (!spec.bias) return z[e];
        return __fadd_rn(spec.bias_on_logit ? z[e] : score(e), spec.bias[e]);
    };

    unsigned taken = 0;  // this lane's experts, by e / 32
    float sum = 0.0f;
    for (int rank = 0; rank < spec.used; ++rank) {
        float best = -FLT_MAX;
        int chosen = INT32_MAX;
        for (int e = lane, i = 0; e < experts; e += 32, ++i) {
            if (taken >> i & 1) continue;
            const float v = key(e);
            if (chosen == INT32_MAX || v > best) best = v, chosen = e;
        }
#pragma unroll
        for (int m = 16; m > 0; m >>= 1) {
            const float other = __shfl_xor_sync(0xffffffffu, best, m);
            const int e = __shfl_xor_sync(0xffffffffu, chosen, m);
            if (e != INT32_MAX && (chosen == INT32_MAX || other > best || (other == best && e < chosen)))
                best = other, chosen = e;
        }
        if (chosen % 32 == lane) taken |= 1u << (chosen / 32);
        const float s = score(chosen);
        sum = __fadd_rn(sum, s);
        if (lane == 0) {
            out.experts[row * spec.used + rank] = chosen;
            out.weights[row * spec.used + rank] = s;
        }
    }
    __syncwarp();
    const float floor = 6.103515625e-5f;
    for (int rank = lane; rank < spec.used; rank += 32) {
        float w = out.weights[row * spec.used + rank];
        if (spec.normalise) w = __fdiv_rn(w, fmaxf(sum, floor));
        if (spec.scale != 1.0f) w = __fmul_rn(w, spec.scale);
        if (spec.expert_scale) w = __fmul_rn(w, spec.expert_scale[out.experts[row * spec.used + rank]]);
        out.weights[row * spec.used + rank] = w;
    }
}

dim3 blocks(int64_t n) {
    return dim3(static_cast<unsigned>(n));
}

template <Each E>
void each(Queue& queue, Rows to, Rows from, float factor, const float* weight) {
    const int64_t n = static_cast<int64_t>(to.rows) * to.width;
    launch(queue, "elementwise", each_kernel<E>, blocks(div_up(n, kThreads * 4)), kThreads, 0, to, from, factor,
           weight);
}

}  // namespace

void norm(Queue& queue, Rows x, const float* weight, float eps, Rows values, Codes codes) {
    launch(queue, "norm", norm_kernel, blocks(x.rows), kThreads, 0, x, weight, eps, values, codes);
}

void add_norm(Queue& queue, Rows residual, Rows x, const float* weight, float eps) {
    launch(queue, "norm", add_norm_kernel, blocks(x.rows), kThreads, 0, residual, x, weight, eps);
}

void quantise(Queue& queue, Rows x, Codes codes) {
    const int64_t units = static_cast<int64_t>(x.rows) * div_up(x.width, 128);
    launch(queue, "quantise", quantise_kernel, blocks(div_up(units, kThreads / 32)), kThreads, 0, x, codes);
}

void add(Queue& queue, Rows to, Rows from) {
    each<Each::add>(queue, to, from, 1.0f, nullptr);
}
void scale(Queue& queue, Rows x, float factor, const float* weight) {
    each<Each::scale>(queue, x, x, factor, weight);
}
void soft_cap(Queue& queue, Rows x, float cap) {
    each<Each::cap>(queue, x, x, cap, nullptr);
}

void gather(Queue& queue, const GatherList& which, int count, Rows in, Rows out) {
    launch(queue, "gather", gather_kernel, blocks(count), kThreads, 0, which, in, out);
}

void embed(Queue& queue, const Step& step, const Matrix& table, float scale, Rows out) {
    const auto* data = reinterpret_cast<const u8*>(table.data);
    if (!type_info(table.type).quantised) {
        launch(queue, "embedding", embed_float_kernel, blocks(out.rows), kThreads, 0, step, data, table.type,
               table.rows, scale, out);
        return;
    }
    with_brick(brick_of(table.type), [&](auto b) {
        launch(queue, "embedding", embed_kernel<b>, blocks(out.rows), kThreads, 0, step, data, table.rows, scale, out);
    });
}

void rope_table(Queue& queue, const Step& step, const double* frequency, const uint8_t* axis, int pairs, Rows out) {
    launch(queue, "rotary angles", rope_kernel, blocks(out.rows), 64, 0, step, frequency, axis, pairs, out);
}

void route(Queue& queue, Rows logits, const RouteSpec& spec, Routing out) {
    launch(queue, "routing", route_kernel, blocks(div_up(logits.rows, 4)), 128, 0, logits, spec, out);
}

}  // namespace strata::cuda
