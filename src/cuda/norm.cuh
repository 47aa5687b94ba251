// RMS norm of rows by blocks of 256 threads, one order of sums wherever it stands: in a kernel of its own, or as the
// prologue of the products that read it (products of a window: docs/gpu.md).
#pragma once

#include "cuda/common.cuh"

namespace strata::cuda {

inline constexpr int kNormThreads = 256;

/// What a thread holds of a row: elements 4 (t + 256 i) .. + 3.
template <int Pieces>
struct Held {
    float4 v[Pieces];

    __device__ void load(const float* x, int width) {
#pragma unroll
        for (int p = 0; p < Pieces; ++p) {
            const int i = (p * kNormThreads + static_cast<int>(threadIdx.x)) * 4;
            v[p] = i < width ? *reinterpret_cast<const float4*>(x + i) : make_float4(0, 0, 0, 0);
        }
    }
    /// 1 / sqrt(mean(x^2) + eps): a chain over the thread's elements in ascending order, then the warps.
    __device__ float inverse_rms(int width, float eps, float* buffer) const {
        float sum = 0.0f;
#pragma unroll
        for (int p = 0; p < Pieces; ++p) {
            sum = __fmaf_rn(v[p].x, v[p].x, sum);
            sum = __fmaf_rn(v[p].y, v[p].y, sum);
            sum = __fmaf_rn(v[p].z, v[p].z, sum);
            sum = __fmaf_rn(v[p].w, v[p].w, sum);
        }
        const float mean = __fdiv_rn(block_sum<kNormThreads / 32>(sum, buffer), static_cast<float>(width));
        return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
    }
};

__device__ __forceinline__ float4 scaled(float4 v, float factor, const float4* weight) {
    v = make_float4(__fmul_rn(v.x, factor), __fmul_rn(v.y, factor), __fmul_rn(v.z, factor), __fmul_rn(v.w, factor));
    if (!weight) return v;
    const float4 w = *weight;
    return make_float4(__fmul_rn(v.x, w.x), __fmul_rn(v.y, w.y), __fmul_rn(v.z, w.z), __fmul_rn(v.w, w.w));
}

/// What a norm makes, where it is the prologue of products.
struct NormInput {
    Rows x;
    const float* weight;  // or null
    float eps;
    Rows values;  // where the normed rows and their codes go as well; data null: nowhere
    Codes codes;
};

/// Rows first .. first + Columns - 1 of the call normed into shared memory: codes [Columns][padded], scales and sums
/// [Columns][padded / 32], values [Columns][padded], each null where not wanted; zero beyond the width, up to `padded`
/// values. `weights`: the norm's, loaded before the wait. writes: to memory as well. Ends with a barrier.
template <int Pieces, int Columns>
__device__ __forceinline__ void norm_rows(const NormInput& in, const Held<Pieces>& weights, int first, int padded,
                                          float* buffer, u8* codes, float* scales, short2* sums, float* values,
                                          bool writes) {
    Held<Pieces> held[Columns];
#pragma unroll
    for (int c = 0; c < Columns; ++c) held[c].load(in.x.data + min(first + c, in.x.rows - 1) * in.x.stride, in.x.width);
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
        const float factor = held[c].inverse_rms(in.x.width, in.eps, buffer);
        const int row = first + c;
#pragma unroll
        for (int p = 0; p < Pieces; ++p) {
            const int i = (p * kNormThreads + static_cast<int>(threadIdx.x)) * 4;
            if ((p * kNormThreads + (static_cast<int>(threadIdx.x) & ~31)) * 4 >= padded) break;
            const bool inside = i < in.x.width;
            const float4 v =
                inside ? scaled(held[c].v[p], factor, in.weight ? &weights.v[p] : nullptr) : make_float4(0, 0, 0, 0);
            const A8Quad quad = make_a8(v);
            if (i < padded) {
                if (values) *reinterpret_cast<float4*>(values + c * padded + i) = v;
                if (codes) {
                    *reinterpret_cast<char4*>(codes + c * padded + i) = quad.codes;
                    if ((threadIdx.x & 7) == 0) {
                        scales[c * (padded / 32) + i / 32] = quad.scale;
                        sums[c * (padded / 32) + i / 32] = quad.half_sums;
                    }
                }
            }
            if (writes && inside && row < in.x.rows) {
                if (in.values.data) *reinterpret_cast<float4*>(in.values.data + row * in.values.stride + i) = v;
                if (in.codes.values) store_a8(in.codes, row, i >> 5, threadIdx.x & 7, quad);
            }
        }
    }
    __syncthreads();
}

}  // namespace strata::cuda
