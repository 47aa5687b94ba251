// The row kernels of the operations that are not weight products, one table for each instruction set. The kernels are
// written once (ops_*.inc.h) over Lanes; ops_scalar.cpp, ops_avx2.cpp and ops_avx512.cpp compile them. All tables give
// the same bits. Kernels know nothing of calls, conversations or threads: ops_*.cpp split the work and call them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/simd.h"
#include "device/device.h"

namespace strata::cpu {

struct AttentionBlock;  // ops_attention.h
struct SoftmaxSums;
struct DeltaRows;  // ops_delta_net.h

/// Heads are at most this wide.
inline constexpr int kMaxHeadWidth = 1024;
/// Convolutions have at most this many taps.
inline constexpr int kMaxTaps = 16;
/// Widths of heads inside attention and of rows of a delta net's state are whole multiples of this, padded where they
/// are not.
inline constexpr int kLaneCount = 16;

struct OpKernels {
    // Rows of n values (ops_rows.inc.h).

    /// out = x * (1 / sqrt(mean(x^2) + eps)) * weight; weight null: ones. out may be x.
    void (*norm)(const float* x, const float* weight, float eps, int n, float* out);
    /// residual += norm(x).
    void (*add_norm)(float* residual, const float* x, const float* weight, float eps, int n);
    /// A8; n a multiple of 32.
    void (*quantise)(const float* x, int n, int8_t* values, float* scales, int16_t* half_sums);
    /// to += from.
    void (*add)(float* to, const float* from, int n);
    /// x = x * factor * weight; weight null: ones.
    void (*scale)(float* x, float factor, const float* weight, int n);
    void (*soft_cap)(float* x, float cap, int n);
    /// x = x * sigmoid(gates).
    void (*gate)(float* x, const float* gates, int n);
    /// to = a * b.
    void (*multiply)(const float* a, const float* b, int n, float* to);
    float (*dot)(const float* a, const float* b, int n);
    /// Sum of e^(x - max), max the largest of x: the denominator of a softmax over a vocabulary.
    double (*exp_sum)(const float* x, float max, int n);

    // Heads and caches (ops_rows.inc.h).

    /// Turns the pairs (i, i + pairs) of x by the angles of table, [pairs cosines | pairs sines].
    void (*rotate)(float* x, const float* table, int pairs);
    /// Values to a row of a cache: f32, f16 or q8_0 (n a multiple of 32).
    void (*store)(Type type, const float* x, int n, std::byte* to);

    /// spec.used experts of one row. scores: 3 * experts floats of scratch.
    void (*route)(const float* logits, int experts, const RouteSpec& spec, float* scores, int32_t* chosen,
                  float* weights);

    // Attention (ops_attention.inc.h).

    void (*attend)(const AttentionBlock& block);
    /// total takes in the sums of later cache rows.
    void (*merge)(SoftmaxSums total, SoftmaxSums part, int width);
    /// The head's output from its sums; sink: null or the head's.
    void (*finish_head)(SoftmaxSums sums, const float* sink, int width, float* out);

    // Delta net and short convolution (ops_delta_net.inc.h).

    /// out[c] = silu(sum over taps j of conv[j * stride + c] * rows[j][c]).
    void (*conv_silu)(const float* const* rows, const float* conv, int64_t stride, int taps, int n, float* out);
    /// out[c] = gates[c] * the same sum.
    void (*conv_gate)(const float* const* rows, const float* conv, int64_t stride, int taps, const float* gates, int n,
                      float* out);
    /// x = x / sqrt(sum(x^2) + eps) * factor.
    void (*unit)(float* x, float eps, float factor, int n);
    /// decay = e^(rate * softplus(alpha + dt)), strength = sigmoid(beta), of each head.
    void (*delta_gates)(const float* alpha, const float* beta, const float* rate, const float* dt, int heads,
                        float* decay, float* strength);
    void (*delta_rows)(const DeltaRows& rows);
    /// out = norm(x; weight) * silu(z). out may be x.
    void (*norm_silu)(const float* x, const float* weight, float eps, const float* z, int n, float* out);
};

const OpKernels& ops_scalar();
const OpKernels& ops_avx2();
const OpKernels& ops_avx512();

/// The table of an instruction set; this machine must have it.
inline const OpKernels& op_kernels(Simd simd) {
    switch (simd) {
        case Simd::avx512: return ops_avx512();
        case Simd::avx2: return ops_avx2();
        case Simd::scalar: break;
    }
    return ops_scalar();
}

}  // namespace strata::cpu
