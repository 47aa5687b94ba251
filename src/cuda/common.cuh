// What every kernel uses: launches with programmatic dependence, loads with a stated cache policy, warp reductions, the
// step.
//
// Rule of all kernels of a call (docs/gpu.md, "Order"): wait before the first read or write of anything that another
// kernel of the call touches. Before the wait a kernel may load weights, the step, and what it alone writes in a call
// (a layer's recurrent state, cache rows of earlier calls). So the next kernel may start while the last one drains
// (programmatic dependent launch), and all earlier ones are complete after the wait. A kernel that releases the next
// one only after its own wait lets that one read, before its wait, what was complete before this one.
#pragma once

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "device/device.h"

namespace strata::cuda {

using u8 = uint8_t;

// ---- launches
// ----------------------------------------------------------------------------------------------------------

/// Lets the next kernel start and waits for the previous one: first statement of a kernel, or right after its weight
/// loads.
__device__ __forceinline__ void grid_release() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void grid_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void grid_sync() {
    grid_release();
    grid_wait();
}

// ---- loads
// -------------------------------------------------------------------------------------------------------------

/// 16 bytes of weights, not kept in L1. Volatile, and not the read-only path: the compiler would sink such loads below
/// the wait to save registers, and they would no longer run ahead.
__device__ __forceinline__ uint4 load_weights(const void* p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
__device__ __forceinline__ unsigned load_weights16(const void* p) {
    unsigned short v;
    asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    return v;
}

/// Asynchronous copies to shared memory where the card has them (sm_80 and later), else plain ones.
__device__ __forceinline__ void copy_async16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(shared))),
                 "l"(global));
#else
    *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}
__device__ __forceinline__ void copy_async4(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(unsigned(__cvta_generic_to_shared(shared))),
                 "l"(global));
#else
    *static_cast<uint32_t*>(shared) = *static_cast<const uint32_t*>(global);
#endif
}
__device__ __forceinline__ void copy_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}
template <int Pending>
__device__ __forceinline__ void copy_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending));
#endif
}

__device__ __forceinline__ float half_bits(unsigned bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
__device__ __forceinline__ int byte_of(unsigned word, int i) {
    return (word >> (8 * i)) & 0xff;
}

// ---- reductions of one fixed order
// -----------------------------------------------------------------------------------------

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int m = 16; m > 0; m >>= 1) v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, m));
    return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int m = 16; m > 0; m >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, m));
    return v;
}
/// Sum over the block's warps in ascending order; `buffer` holds a float a warp.
template <int Warps>
__device__ __forceinline__ float block_sum(float v, float* buffer) {
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) buffer[threadIdx.x >> 5] = v;
    __syncthreads();
    float sum = buffer[0];
#pragma unroll
    for (int w = 1; w < Warps; ++w) sum = __fadd_rn(sum, buffer[w]);
    __syncthreads();
    return sum;
}

// ---- A8
// ------------------------------------------------------------------------------------------------------------------

/// Rows of A8 on the card: codes [rows, width]; scales and half sums as planes [width / 32][rows], so that a tile of
/// tokens reads them in one piece.
struct Codes {
    int8_t* values = nullptr;
    float* scales = nullptr;      // [width / 32][rows]
    short2* half_sums = nullptr;  // [width / 32][rows], sums of 16 codes
    int rows = 0;
    int width = 0;
};
inline Codes codes_of(const QuantisedRows& q) {
    return {q.values, q.scales, reinterpret_cast<short2*>(q.half_sums), q.rows, q.width};
}

/// Scale and its reciprocal of a block whose largest magnitude is a (docs/numerics.md, A8). NaN and infinity show in d.
__device__ __forceinline__ void a8_scale(float a, float& d, float& inverse) {
    const bool zero = a < 1e-30f;
    const bool finite = a <= 3.402823466e38f;
    d = zero ? 0.0f : finite ? __fdiv_rn(a, 127.0f) : __int_as_float(0x7fffffff);
    inverse = zero || !finite ? 0.0f : __fdiv_rn(127.0f, a);
}
__device__ __forceinline__ int a8_code(float x, float inverse) {
    return inverse == 0.0f ? 0 : __float2int_rn(__fmul_rn(x, inverse));
}

/// Max that lets NaN through (fmaxf would hide it).
__device__ __forceinline__ float max_nan(float a, float b) {
    return a > b || a != a ? a : b;
}

/// Four values of a block of 32 as codes, with what the block's first lane stores of it.
struct A8Quad {
    char4 codes;
    float scale;
    short2 half_sums;  // right in the block's first lane
};

/// Eight neighbouring lanes hold a block of 32 values, four each, in order. All lanes of the warp take part.
__device__ __forceinline__ A8Quad make_a8(float4 v) {
    float a = max_nan(max_nan(fabsf(v.x), fabsf(v.y)), max_nan(fabsf(v.z), fabsf(v.w)));
#pragma unroll
    for (int m = 4; m > 0; m >>= 1) a = max_nan(a, __shfl_xor_sync(0xffffffffu, a, m));
    A8Quad quad;
    float inverse;
    a8_scale(a, quad.scale, inverse);
    const int q0 = a8_code(v.x, inverse), q1 = a8_code(v.y, inverse), q2 = a8_code(v.z, inverse),
              q3 = a8_code(v.w, inverse);
    quad.codes = make_char4(q0, q1, q2, q3);
    int sum = q0 + q1 + q2 + q3;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    quad.half_sums = make_short2(sum, __shfl_xor_sync(0xffffffffu, sum, 4));
    return quad;
}
__device__ __forceinline__ void store_a8(const Codes& out, int row, int block, int lane8, const A8Quad& quad) {
    reinterpret_cast<char4*>(out.values + int64_t(row) * out.width + block * 32)[lane8] = quad.codes;
    if (lane8 == 0) {
        out.scales[int64_t(block) * out.rows + row] = quad.scale;
        out.half_sums[int64_t(block) * out.rows + row] = quad.half_sums;
    }
}
/// Both; lanes that are not `live` write nothing.
__device__ __forceinline__ void write_a8(const Codes& out, int row, int block, int lane8, float4 v, bool live = true) {
    const A8Quad quad = make_a8(v);
    if (live) store_a8(out, row, block, lane8, quad);
}
/// A warp holds a block of 32 values, lane l the l-th: writes its codes.
__device__ __forceinline__ void write_a8_lanes(const Codes& out, int row, int block, int lane, float v) {
    float a = fabsf(v);
#pragma unroll
    for (int m = 16; m > 0; m >>= 1) a = max_nan(a, __shfl_xor_sync(0xffffffffu, a, m));
    float scale, inverse;
    a8_scale(a, scale, inverse);
    const int code = a8_code(v, inverse);
    out.values[static_cast<int64_t>(row) * out.width + block * 32 + lane] = static_cast<int8_t>(code);
    int half = code;
#pragma unroll
    for (int m = 8; m > 0; m >>= 1) half += __shfl_xor_sync(0xffffffffu, half, m);
    const int other = __shfl_xor_sync(0xffffffffu, half, 16);
    if (lane == 0) {
        out.scales[static_cast<int64_t>(block) * out.rows + row] = scale;
        out.half_sums[static_cast<int64_t>(block) * out.rows + row] = make_short2(half, other);
    }
}

// ---- the step: what a recorded call reads anew each time
// --------------------------------------------------------------------

struct SpanInfo {
    int slot;   // of the conversation's parts in the table
    int first;  // row of the call
    int rows;
    int start;   // rows the conversation had before
    int replay;  // logged rows that blocks take in first
    int log;     // blocks stay as they are, rows go to the log
    int pad[2];
};

/// Where a call's facts lie in device memory; kernels get this by value, its pointers never change.
struct Step {
    const int32_t* tokens;      // [rows]
    const int32_t* positions;   // [rows][3]
    const int32_t* span_of;     // [rows]
    const int32_t* picture;     // [rows]: row of picture_rows, or -1
    const int32_t* look_ahead;  // [rows]: last cache row of the picture a row belongs to, or -1
    const SpanInfo* spans;
    const float* picture_rows;
    std::byte* const* parts;  // [slots][parts_per_slot]
    int parts_per_slot;

    __device__ std::byte* part(int slot, int id) const { return parts[slot * parts_per_slot + id]; }
    /// Row of the conversation's caches where row t of the call lies.
    __device__ int cache_row(int t) const {
        const SpanInfo& s = spans[span_of[t]];
        return s.start + t - s.first;
    }
};

}  // namespace strata::cuda
