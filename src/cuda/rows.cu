// Norms, codes, sums and lookups: each a pass over its rows. Floor: bytes read and written over the memory's rate; for
// a window of guesses they are latency, about a microsecond each.
#include <type_traits>

#include "cuda/bricks.cuh"
#include "cuda/norm.cuh"
#include "cuda/route.cuh"
#include "cuda/rows.h"
#include "quant/math.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = kNormThreads;

template <int Pieces>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(Rows x, const float* weight, float eps, Rows values, Codes codes) {
    __shared__ float buffer[kThreads / 32];
    // The weights are on their way before the rows are there.
    grid_release();
    Held<Pieces> held, weights;
    if (weight) weights.load(weight, x.width);
    grid_wait();
    const int row = blockIdx.x;
    held.load(x.data + row * x.stride, x.width);
    const float factor = held.inverse_rms(x.width, eps, buffer);
#pragma unroll
    for (int p = 0; p < Pieces; ++p) {
        // Whole warps go on together: a block of codes is made by eight lanes.
        const int i = (p * kThreads + static_cast<int>(threadIdx.x)) * 4;
        if ((p * kThreads + (static_cast<int>(threadIdx.x) & ~31)) * 4 >= x.width) break;
        const bool inside = i < x.width;
        const float4 v = inside ? scaled(held.v[p], factor, weight ? &weights.v[p] : nullptr) : make_float4(0, 0, 0, 0);
        if (inside && values.data) *reinterpret_cast<float4*>(values.data + row * values.stride + i) = v;
        if (codes.values) write_a8(codes, row, i >> 5, threadIdx.x & 7, v, inside);
    }
}

template <int Pieces>
__global__ void __launch_bounds__(kThreads) add_norm_kernel(Rows residual, Rows x, const float* weight, float eps) {
    __shared__ float buffer[kThreads / 32];
    grid_sync();
    const int row = blockIdx.x;
    Held<Pieces> held;
    held.load(x.data + row * x.stride, x.width);
    const float factor = held.inverse_rms(x.width, eps, buffer);
#pragma unroll
    for (int p = 0; p < Pieces; ++p) {
        const int i = (p * kThreads + static_cast<int>(threadIdx.x)) * 4;
        if (i >= x.width) break;
        const float4 v = scaled(held.v[p], factor, weight ? reinterpret_cast<const float4*>(weight + i) : nullptr);
        float4* to = reinterpret_cast<float4*>(residual.data + row * residual.stride + i);
        const float4 r = *to;
        *to = make_float4(__fadd_rn(r.x, v.x), __fadd_rn(r.y, v.y), __fadd_rn(r.z, v.z), __fadd_rn(r.w, v.w));
    }
}

/// f with the pieces a thread must hold for rows of this width: the same sums whatever their number.
template <class F>
bool with_pieces(int width, F&& f) {
    const int pieces = div_up(width, kThreads * 4);
    if (pieces <= 2)
        f(std::integral_constant<int, 2>{});
    else if (pieces <= 4)
        f(std::integral_constant<int, 4>{});
    else if (pieces <= 16)
        f(std::integral_constant<int, 16>{});
    else
        return false;
    return true;
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

/// A warp a row.
template <int Held>
__global__ void __launch_bounds__(128) route_kernel(Rows logits, RouteSpec spec, Routing out) {
    grid_sync();
    const int row = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= logits.rows) return;
    RowLogits<Held> held;
    held.load(logits, row, lane);
    const Chosen mine = route_row<Held>(held, logits.width, spec, spec.used, lane);
    if (lane >= spec.used) return;
    out.experts[row * spec.used + lane] = mine.expert;
    out.weights[row * spec.used + lane] = mine.weight;
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
    if (!with_pieces(x.width, [&](auto pieces) {
            launch(queue, "norm", norm_kernel<pieces>, blocks(x.rows), kThreads, 0, x, weight, eps, values, codes);
        }))
        queue.keep(cudaErrorNotSupported, "norm (rows wider than 16,384)");
}

void add_norm(Queue& queue, Rows residual, Rows x, const float* weight, float eps) {
    if (!with_pieces(x.width, [&](auto pieces) {
            launch(queue, "norm", add_norm_kernel<pieces>, blocks(x.rows), kThreads, 0, residual, x, weight, eps);
        }))
        queue.keep(cudaErrorNotSupported, "norm (rows wider than 16,384)");
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
    const auto go = [&](auto held) {
        launch(queue, "routing", route_kernel<held>, blocks(div_up(logits.rows, 4)), 128, 0, logits, spec, out);
    };
    if (spec.used > 32 || logits.width > 1024)
        queue.keep(cudaErrorNotSupported, "routing (over 1,024 experts, or 32 of a row)");
    else if (logits.width <= 64)
        go(std::integral_constant<int, 2>{});
    else if (logits.width <= 256)
        go(std::integral_constant<int, 8>{});
    else
        go(std::integral_constant<int, 32>{});
}

}  // namespace strata::cuda
