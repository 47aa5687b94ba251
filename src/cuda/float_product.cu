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
    __device__ static F32 at(const std::byte* data) { return {reinterpret_cast<const float*>(data)}; }
    __device__ float4 load(int64_t i) const { return *reinterpret_cast<const float4*>(p + i); }
};
struct F16 {
    const __half* p;
    __device__ static F16 at(const std::byte* data) { return {reinterpret_cast<const __half*>(data)}; }
    __device__ float4 load(int64_t i) const {
        const uint2 v = *reinterpret_cast<const uint2*>(p + i);
        return make_float4(half_bits(v.x & 0xffff), half_bits(v.x >> 16), half_bits(v.y & 0xffff),
                           half_bits(v.y >> 16));
    }
};
struct Bf16 {
    const uint16_t* p;
    __device__ static Bf16 at(const std::byte* data) { return {reinterpret_cast<const uint16_t*>(data)}; }
    __device__ float4 load(int64_t i) const {
        const uint2 v = *reinterpret_cast<const uint2*>(p + i);
        return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16),
                           __uint_as_float(v.y & 0xffff0000u));
    }
};

constexpr int kMaxJobs = 4;

/// Matrices of one type and width that share an input.
struct Jobs {
    const std::byte* weights[kMaxJobs];
    float* out[kMaxJobs];
    int64_t out_stride[kMaxJobs];
    int rows[kMaxJobs];
    int end_unit[kMaxJobs];  // running count of units of R rows
    const float* scale[kMaxJobs];
    int count;
};

template <class W, int R, int T, int Ahead>
__global__ void __launch_bounds__(256) float_kernel(Jobs jobs, int cols, Rows x, int add) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, t0 = blockIdx.y * T;
    int unit = blockIdx.x * 8 + warp, job = 0;
    grid_sync();
    if (unit >= jobs.end_unit[jobs.count - 1]) return;
    while (unit >= jobs.end_unit[job]) ++job;
    if (job > 0) unit -= jobs.end_unit[job - 1];
    const W weights = W::at(jobs.weights[job]);
    const int r0 = unit * R, rows = jobs.rows[job];
    float chain[R][T];
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
        for (int t = 0; t < T; ++t) chain[r][t] = 0.0f;
    const auto fold = [&](const float4(&w)[R], const float4(&v)[T]) {
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
            for (int t = 0; t < T; ++t) {
                chain[r][t] = __fmaf_rn(w[r].x, v[t].x, chain[r][t]);
                chain[r][t] = __fmaf_rn(w[r].y, v[t].y, chain[r][t]);
                chain[r][t] = __fmaf_rn(w[r].z, v[t].z, chain[r][t]);
                chain[r][t] = __fmaf_rn(w[r].w, v[t].w, chain[r][t]);
            }
    };
    const auto load = [&](int i, float4(&w)[R], float4(&v)[T]) {
#pragma unroll
        for (int r = 0; r < R; ++r) w[r] = weights.load(int64_t(min(r0 + r, rows - 1)) * cols + i);
#pragma unroll
        for (int t = 0; t < T; ++t)
            v[t] = *reinterpret_cast<const float4*>(x.data + int64_t(min(t0 + t, x.rows - 1)) * x.stride + i);
    };
    int i = 4 * lane;
    // Several steps' loads before their sums: a warp has little else to hide their latency.
    for (; i + 3 + 128 * (Ahead - 1) < cols; i += 128 * Ahead) {
        float4 w[Ahead][R], v[Ahead][T];
#pragma unroll
        for (int a = 0; a < Ahead; ++a) load(i + 128 * a, w[a], v[a]);
#pragma unroll
        for (int a = 0; a < Ahead; ++a) fold(w[a], v[a]);
    }
    for (; i + 3 < cols; i += 128) {
        float4 w[R], v[T];
        load(i, w, v);
        fold(w, v);
    }
    const float* scale = jobs.scale[job];
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
        for (int t = 0; t < T; ++t) {
            const float y = warp_sum(chain[r][t]);
            if (lane != 0 || r0 + r >= rows || t0 + t >= x.rows) continue;
            float* to = jobs.out[job] + int64_t(t0 + t) * jobs.out_stride[job] + r0 + r;
            const float scaled = scale ? __fmul_rn(y, scale[0]) : y;
            *to = add ? __fadd_rn(*to, scaled) : scaled;
        }
}

template <class W>
void run(Queue& queue, Rows x, std::span<const Product> products, bool add) {
    const auto go = [&](auto rows_a_warp, auto tokens, auto ahead) {
        Jobs jobs{};
        int units = 0;
        for (const Product& p : products) {
            const int i = jobs.count++;
            units += div_up(p.matrix.rows, rows_a_warp);
            jobs.weights[i] = p.matrix.data;
            jobs.out[i] = p.out.data;
            jobs.out_stride[i] = p.out.stride;
            jobs.rows[i] = p.matrix.rows;
            jobs.end_unit[i] = units;
            jobs.scale[i] = p.matrix.scales;
        }
        const dim3 grid(static_cast<unsigned>(div_up(units, 8)), static_cast<unsigned>(div_up(x.rows, tokens)));
        launch(queue, "float product", float_kernel<W, rows_a_warp, tokens, ahead>, grid, 256, 0, jobs,
               products[0].matrix.cols, x, add ? 1 : 0);
    };
    if (x.rows <= 2)
        go(std::integral_constant<int, 1>{}, std::integral_constant<int, 1>{}, std::integral_constant<int, 8>{});
    else if (x.rows <= 16)
        go(std::integral_constant<int, 1>{}, std::integral_constant<int, 4>{}, std::integral_constant<int, 2>{});
    else
        go(std::integral_constant<int, 4>{}, std::integral_constant<int, 8>{}, std::integral_constant<int, 1>{});
}

}  // namespace

void float_product(Queue& queue, Rows x, std::span<const Product> products, bool add) {
    for (size_t first = 0; first < products.size();) {
        const Type type = products[first].matrix.type;
        size_t last = first;
        while (last < products.size() && last - first < kMaxJobs && products[last].matrix.type == type) ++last;
        const auto same = products.subspan(first, last - first);
        if (type == Type::f32)
            run<F32>(queue, x, same, add);
        else if (type == Type::f16)
            run<F16>(queue, x, same, add);
        else
            run<Bf16>(queue, x, same, add);
        first = last;
    }
}

}  // namespace strata::cuda
