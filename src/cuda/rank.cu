// The largest logit of a row and its probability. Blocks take stretches of fixed borders, so a row's bits do not depend
// on its company; one block adds the stretches up in order. Floor: the rows' bytes over the memory's rate (they lie in
// L2).
#include "cuda/rank.h"
#include "quant/math.h"

namespace strata::cuda {
namespace {

constexpr int kThreads = 256, kStretch = 2048;  // logits of a block

/// Of a stretch: its largest logit, whose it is, and the sum of e^(logit - largest).
struct Part {
    float largest;
    int token;
    float sum;
};

/// The larger of two, ties to the lower token. NaN never wins.
__device__ __forceinline__ void take_larger(float& largest, int& token, float other, int other_token) {
    if (other > largest || (other == largest && other_token < token)) largest = other, token = other_token;
}

__global__ void __launch_bounds__(kThreads) stretch_kernel(Rows logits, Part* parts) {
    __shared__ float warp_largest[kThreads / 32], buffer[kThreads / 32];
    __shared__ int warp_token[kThreads / 32];
    constexpr int n = kStretch / kThreads;
    const int row = blockIdx.y, first = blockIdx.x * kStretch, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    grid_sync();
    float v[n], largest = -INFINITY;
    int token = INT32_MAX;
#pragma unroll
    for (int i = 0; i < n; ++i) {
        const int at = first + i * kThreads + static_cast<int>(threadIdx.x);
        v[i] = at < logits.width ? logits.data[row * logits.stride + at] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < n; ++i)
        if (v[i] > largest) largest = v[i], token = first + i * kThreads + static_cast<int>(threadIdx.x);
#pragma unroll
    for (int m = 16; m > 0; m >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, largest, m);
        take_larger(largest, token, other, __shfl_xor_sync(0xffffffffu, token, m));
    }
    if (lane == 0) warp_largest[warp] = largest, warp_token[warp] = token;
    __syncthreads();
    for (int w = 0; w < kThreads / 32; ++w) take_larger(largest, token, warp_largest[w], warp_token[w]);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < n; ++i)
        if (v[i] > -INFINITY) sum = __fadd_rn(sum, exp_fixed(__fsub_rn(v[i], largest)));
    sum = block_sum<kThreads / 32>(sum, buffer);
    if (threadIdx.x == 0) parts[row * gridDim.x + blockIdx.x] = {largest, token, sum};
}

/// A warp a row: lane l adds stretches l, l + 32, ...
__global__ void __launch_bounds__(32) join_kernel(const Part* parts, int count, Likeliest* out) {
    grid_sync();
    const Part* of_row = parts + blockIdx.x * count;
    float largest = -INFINITY, sum = 0.0f;
    int token = INT32_MAX;
    for (int i = threadIdx.x; i < count; i += 32) take_larger(largest, token, of_row[i].largest, of_row[i].token);
#pragma unroll
    for (int m = 16; m > 0; m >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, largest, m);
        take_larger(largest, token, other, __shfl_xor_sync(0xffffffffu, token, m));
    }
    for (int i = threadIdx.x; i < count; i += 32)
        if (of_row[i].sum > 0.0f) sum = __fmaf_rn(of_row[i].sum, exp_fixed(__fsub_rn(of_row[i].largest, largest)), sum);
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = {token == INT32_MAX ? 0 : token, sum > 0.0f ? fminf(__fdiv_rn(1.0f, sum), 1.0f) : 0.0f};
}

}  // namespace

uint64_t rank_scratch(int rows, int width) {
    return static_cast<uint64_t>(rows) * static_cast<uint64_t>(div_up(width, kStretch)) * sizeof(Part);
}

void rank(Queue& queue, Rows logits, Likeliest* out, std::byte* scratch) {
    auto* parts = reinterpret_cast<Part*>(scratch);
    const int stretches = div_up(logits.width, kStretch);
    launch(queue, "likeliest token", stretch_kernel,
           dim3(static_cast<unsigned>(stretches), static_cast<unsigned>(logits.rows)), kThreads, 0, logits, parts);
    launch(queue, "likeliest token", join_kernel, dim3(static_cast<unsigned>(logits.rows)), 32, 0, parts, stretches,
           out);
}

}  // namespace strata::cuda
