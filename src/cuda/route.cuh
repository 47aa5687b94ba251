// The experts of a row from its logits, by one warp: a kernel of its own, or the first thing that the experts of a
// window do.
#pragma once

#include "cuda/common.cuh"
#include "quant/math.h"

namespace strata::cuda {

/// Order of floats as order of unsigned integers; 0, below all, for what is not a number. -0 counts as 0.
__device__ __forceinline__ unsigned order_key(float v) {
    if (v != v) return 0;
    const unsigned bits = __float_as_uint(__fadd_rn(v, 0.0f));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ unsigned warp_max(unsigned v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, v);
#else
    for (int m = 16; m > 0; m >>= 1) v = max(v, __shfl_xor_sync(0xffffffffu, v, m));
    return v;
#endif
}
__device__ __forceinline__ unsigned warp_min(unsigned v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(0xffffffffu, v);
#else
    for (int m = 16; m > 0; m >>= 1) v = min(v, __shfl_xor_sync(0xffffffffu, v, m));
    return v;
#endif
}

/// A row's logits in a warp: lane l holds experts l, l + 32, ...
template <int Held>
struct RowLogits {
    float z[Held];

    /// Past L1: what another kernel of the call wrote.
    __device__ __forceinline__ void load(const Rows& logits, int row, int lane) {
#pragma unroll
        for (int i = 0; i < Held; ++i)
            z[i] = i * 32 + lane < logits.width ? __ldcg(logits.data + row * logits.stride + i * 32 + lane) : -INFINITY;
    }
};

/// What lane r knows of rank r.
struct Chosen {
    int expert = 0;
    float weight = 0.0f;
};

/// The first `ranks` ranks' experts; their weights only where `ranks` is all that are used.
template <int Held>
__device__ __forceinline__ Chosen route_row(const RowLogits<Held>& row, int experts, const RouteSpec& spec, int ranks,
                                            int lane) {
    const bool softmax = spec.score == RouteSpec::Score::softmax;
    float largest = -INFINITY, total = 1.0f;
    if (softmax) {
#pragma unroll
        for (int i = 0; i < Held; ++i) largest = fmaxf(largest, row.z[i]);
        largest = warp_max(largest);
        // The whole softmax is needed for its own sake only where weights are not normalised, or a bias is added to it;
        // else it is a common factor of all scores.
        if (!spec.normalise || (spec.bias && !spec.bias_on_logit)) {
            total = 0.0f;
#pragma unroll
            for (int i = 0; i < Held; ++i)
                if (i * 32 + lane < experts) total = __fadd_rn(total, exp_fixed(__fsub_rn(row.z[i], largest)));
            total = warp_sum(total);
        }
    }
    const auto score = [&](float logit) {
        return softmax ? __fdiv_rn(exp_fixed(__fsub_rn(logit, largest)), total) : sigmoid(logit);
    };
    // What the choice is by. Without a bias the logits order softmax and sigmoid scores, and tell more of them apart.
    unsigned key[Held];
#pragma unroll
    for (int i = 0; i < Held; ++i) {
        float k = row.z[i];
        if (spec.bias && i * 32 + lane < experts)
            k = __fadd_rn(spec.bias_on_logit ? row.z[i] : score(row.z[i]), spec.bias[i * 32 + lane]);
        key[i] = i * 32 + lane < experts ? order_key(k) : 0;
    }

    Chosen mine;
    float logit = 0.0f;
    for (int rank = 0; rank < ranks; ++rank) {
        unsigned best = 0;
        float best_logit = 0.0f;
        int at = 0;
#pragma unroll
        for (int i = 0; i < Held; ++i)
            if (key[i] > best) best = key[i], at = i, best_logit = row.z[i];
        const unsigned highest = warp_max(best);
        // Ties go to the lower index; where logits are not numbers, to expert 0.
        const unsigned chosen = warp_min(best == highest && best > 0 ? static_cast<unsigned>(at * 32 + lane) : 0xffffu);
        const bool found = chosen < static_cast<unsigned>(experts);
        const float z = __shfl_sync(0xffffffffu, best_logit, static_cast<int>(chosen & 31));
#pragma unroll
        for (int i = 0; i < Held; ++i)
            if (chosen == static_cast<unsigned>(i * 32 + lane)) key[i] = 0;
        if (lane == rank) mine.expert = found ? static_cast<int>(chosen) : 0, logit = found ? z : 0.0f;
    }
    if (ranks < spec.used) return mine;
    float w = score(logit), sum = 0.0f;
    for (int rank = 0; rank < ranks; ++rank) sum = __fadd_rn(sum, __shfl_sync(0xffffffffu, w, rank));
    const float floor = 6.103515625e-5f;
    if (spec.normalise) w = __fdiv_rn(w, fmaxf(sum, floor));
    if (spec.scale != 1.0f) w = __fmul_rn(w, spec.scale);
    if (spec.expert_scale) w = __fmul_rn(w, spec.expert_scale[mine.expert]);
    mine.weight = w;
    return mine;
}

}  // namespace strata::cuda
