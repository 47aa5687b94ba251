// A head made ready and kept, by a warp: in the kernel that does it for all heads, or in the attention of answers.
#pragma once

#include "cuda/heads.h"

namespace strata::cuda {

/// A head's values in cache row `row`, from value `at` on, as the cache keeps them.
__device__ __forceinline__ void store_row(std::byte* row, Type type, int at, const float* head, int width, int lane) {
    if (type == Type::f16) {
        __half* to = reinterpret_cast<__half*>(row) + at;
        for (int i = lane; i < width; i += 32) to[i] = __float2half_rn(head[i]);
    } else if (type == Type::f32) {
        float* to = reinterpret_cast<float*>(row) + at;
        for (int i = lane; i < width; i += 32) to[i] = head[i];
    } else {  // q8_0: blocks of 32, none crosses a head
        for (int b = 0; b < width / 32; ++b) {
            const float v = head[b * 32 + lane];
            const float s = __fdiv_rn(warp_max(fabsf(v)), 127.0f);
            std::byte* block = row + (at / 32 + b) * 34;
            const int q = s > 0 ? __float2int_rn(__fdiv_rn(v, s)) : 0;
            if (lane == 0) *reinterpret_cast<__half*>(block) = __float2half_rn(s);
            reinterpret_cast<int8_t*>(block + 2)[lane] = static_cast<int8_t>(q);
        }
    }
}

/// Row `row` of a conversation's cache.
__device__ __forceinline__ std::byte* cache_place(const Step& step, const CachePart& part, int slot, int row) {
    if (part.capacity > 0) row %= part.capacity;
    return step.part(slot, part.id) + static_cast<int64_t>(row) * part.row_bytes;
}

/// mine[0 .. width) = rotary(norm(from)): norm where `normed`, times weight where given; rotary where angles
/// [cosines | sines] of `pairs` pairs are given.
__device__ __forceinline__ void prepare_head(const float* from, int width, const float* weight, bool normed, float eps,
                                             const float* angles, int pairs, float* mine, int lane) {
    if (normed) {
        float sum = 0.0f;
        for (int i = lane; i < width; i += 32) {
            mine[i] = from[i];
            sum = __fmaf_rn(mine[i], mine[i], sum);
        }
        const float mean = __fdiv_rn(warp_sum(sum), static_cast<float>(width));
        const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
        for (int i = lane; i < width; i += 32) {
            const float y = __fmul_rn(mine[i], factor);
            mine[i] = weight ? __fmul_rn(y, weight[i]) : y;
        }
    } else {
        for (int i = lane; i < width; i += 32) mine[i] = from[i];
    }
    __syncwarp();
    if (!angles) return;
    for (int i = lane; i < pairs; i += 32) {
        const float a = mine[i], b = mine[i + pairs], c = angles[i], s = angles[pairs + i];
        mine[i] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
        mine[i + pairs] = __fadd_rn(__fmul_rn(a, s), __fmul_rn(b, c));
    }
    __syncwarp();
}

}  // namespace strata::cuda
