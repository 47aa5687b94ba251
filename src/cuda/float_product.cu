// y[r] = W[r] . x with float weights and unrounded activations: routers, decays, gates, matrices of float files.
//
// One order for answers and prompts: lane l of a warp owns inputs 128 i + 4 l .. + 3 (i ascending), one fma chain an
// output, then the lanes are added by xor-shuffles 16, 8, 4, 2, 1. A warp holds Rows x Tokens chains, so weights and
// activations are read once for several outputs.
#include "cuda/products.h"

namespace strata::cuda {
namespace {

struct F32 {
    const float* p;
    __device__ float4 load(int64_t i) const { return *reinterpret_cast<const float4*>(p + i); }
};
struct F16 {
    const __half* p;
    __device__ float4 load(int64_t i) const {
        const uint2 v = *reinterpret_cast<const uint2*>(p + i);
        return make_float4(half_bits(v.x & 0xffff), half_bits(v.x >> 16), half_bits(v.y & 0xffff),
                           half_bits(v.y >> 16));
    }
};
struct Bf16 {
    const uint16_t* p;
    __device__ float4 load(int64_t i) const {
        const uint2 v = *reinterpret_cast<const uint2*>(p + i);
        return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16),
                           __uint_as_float(v.y & 0xffff0000u));
    }
};

template <class W, int R, int T>
__global__ void __launch_bounds__(256)
    float_kernel(W weights, int rows, int cols, Rows x, float* out, int64_t out_stride, const float* scale, int add) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int r0 = (blockIdx.x * 8 + warp) * R, t0 = blockIdx.y * T;
    grid_sync();
    if (r0 >= rows) return;
    float chain[R][T];
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
        for (int t = 0; t < T; ++t) chain[r][t] = 0.0f;
    int i = 4 * lane;
    for (; i + 3 < cols; i += 128) {
        float4 w[R], v[T];
#pragma unroll
        for (int r = 0; r < R; ++r) w[r] = weights.load(int64_t(min(r0 + r, rows - 1)) * cols + i);
#pragma unroll
        for (int t = 0; t < T; ++t)
            v[t] = *reinterpret_cast<const float4*>(x.data + int64_t(min(t0 + t, x.rows - 1)) * x.stride + i);
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
            for (int t = 0; t < T; ++t) {
                chain[r][t] = __fmaf_rn(w[r].x, v[t].x, chain[r][t]);
                chain[r][t] = __fmaf_rn(w[r].y, v[t].y, chain[r][t]);
                chain[r][t] = __fmaf_rn(w[r].z, v[t].z, chain[r][t]);
                chain[r][t] = __fmaf_rn(w[r].w, v[t].w, chain[r][t]);
            }
    }
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
        for (int t = 0; t < T; ++t) {
            const float y = warp_sum(chain[r][t]);
            if (lane != 0 || r0 + r >= rows || t0 + t >= x.rows) continue;
            float* to = out + int64_t(t0 + t) * out_stride + r0 + r;
            const float scaled = scale ? __fmul_rn(y, scale[0]) : y;
            *to = add ? __fadd_rn(*to, scaled) : scaled;
        }
}

template <class W>
void run(Queue& queue, W weights, const Matrix& m, Rows x, Rows out, bool add) {
    const auto go = [&](auto rows_a_warp, auto tokens) {
        const dim3 grid(static_cast<unsigned>(div_up(m.rows, 8 * rows_a_warp)),
                        static_cast<unsigned>(div_up(x.rows, tokens)));
        launch(queue, "float product", float_kernel<W, rows_a_warp, tokens>, grid, 256, 0, weights, m.rows, m.cols, x,
               out.data, out.stride, m.scales, add ? 1 : 0);
    };
    if (x.rows <= 2)
        go(std::integral_constant<int, 1>{}, std::integral_constant<int, 1>{});
    else if (x.rows <= 16)
        go(std::integral_constant<int, 1>{}, std::integral_constant<int, 4>{});
    else
        go(std::integral_constant<int, 4>{}, std::integral_constant<int, 8>{});
}

}  // namespace

void float_product(Queue& queue, Rows x, const Product& product, bool add) {
    const Matrix& m = product.matrix;
    if (m.type == Type::f32)
        run(queue, F32{reinterpret_cast<const float*>(m.data)}, m, x, product.out, add);
    else if (m.type == Type::f16)
        run(queue, F16{reinterpret_cast<const __half*>(m.data)}, m, x, product.out, add);
    else
        run(queue, Bf16{reinterpret_cast<const uint16_t*>(m.data)}, m, x, product.out, add);
}

}  // namespace strata::cuda
