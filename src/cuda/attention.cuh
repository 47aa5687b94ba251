// What both forms of attention share: tensor-core products of halves, tiles of cache rows, who sees what.
#pragma once

#include <type_traits>

#include "cuda/heads.h"

namespace strata::cuda {

inline constexpr int kChunk = 256;
inline constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ void mma_half(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                         unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a2), "r"(a3), "r"(b1));
#endif
}
__device__ __forceinline__ void load_matrix4(unsigned (&r)[4], const __half* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(unsigned(__cvta_generic_to_shared(p))));
}
__device__ __forceinline__ void load_matrix4_transposed(unsigned (&r)[4], const __half* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(unsigned(__cvta_generic_to_shared(p))));
}
__device__ __forceinline__ unsigned pack(float a, float b) {
    const __half2 h = __floats2half2_rn(a, b);
    return *reinterpret_cast<const unsigned*>(&h);
}
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/// 2^(a - b) where a <= b; 0 where a is -inf, also when both are.
__device__ __forceinline__ float power(float a, float b) {
    return a == -INFINITY ? 0.0f : exp2_fast(__fsub_rn(a, b));
}

/// Copies Tile keys (or values) of one head into shared memory as halves; places outside [low, high] repeat a valid
/// row.
template <int Width, int Tile, int Stride, int Threads>
__device__ __forceinline__ void load_tile(__half* to, const std::byte* cache, const CachePart& part, int kv_head,
                                          int first, int low, int high) {
    constexpr int pieces = Width / 8;
    if (part.type == Type::f16 && part.capacity == 0 && first >= low && first + Tile - 1 <= high) {
        // All rows are there, one after the other.
        const std::byte* from = cache + static_cast<int64_t>(first) * part.row_bytes + kv_head * Width * 2;
        for (int i = threadIdx.x; i < Tile * pieces; i += Threads)
            copy_async16(to + i / pieces * Stride + i % pieces * 8,
                         from + i / pieces * part.row_bytes + i % pieces * 16);
        return;
    }
    for (int i = threadIdx.x; i < Tile * pieces; i += Threads) {
        const int r = i / pieces, piece = i % pieces;
        int p = min(max(first + r, low), high);
        if (part.capacity > 0) p %= part.capacity;
        const std::byte* row = cache + static_cast<int64_t>(p) * part.row_bytes;
        __half* place = to + r * Stride + piece * 8;
        const int at = kv_head * Width + piece * 8;
        if (part.type == Type::f16) {
            copy_async16(place, row + at * 2);
        } else if (part.type == Type::f32) {
            const float4 a = reinterpret_cast<const float4*>(row + at * 4)[0],
                         b = reinterpret_cast<const float4*>(row + at * 4)[1];
            *reinterpret_cast<uint4*>(place) =
                make_uint4(pack(a.x, a.y), pack(a.z, a.w), pack(b.x, b.y), pack(b.z, b.w));
        } else {
            const std::byte* block = row + (at / 32) * 34;
            const float s = __half2float(*reinterpret_cast<const __half*>(block));
            const auto* q = reinterpret_cast<const int8_t*>(block + 2) + at % 32;
            *reinterpret_cast<uint4*>(place) = make_uint4(pack(s * q[0], s * q[1]), pack(s * q[2], s * q[3]),
                                                          pack(s * q[4], s * q[5]), pack(s * q[6], s * q[7]));
        }
    }
}

struct Place {     // of a query row
    int row = -1;  // of the call
    int head = 0;
    int low = 0, high = -1;  // cache rows it sees
};
__device__ __forceinline__ Place place_of(const Step& step, const Attention& spec, const SpanInfo& span, int group,
                                          int index, int group_heads) {
    Place p;
    const int t = index / group_heads;
    if (t >= span.rows) return p;
    p.row = span.first + t;
    p.head = group * group_heads + index % group_heads;
    const int own = span.start + t;
    p.high = spec.own_rows ? own : span.start - 1;
    p.low = spec.window > 0 ? max(0, own - spec.window + 1) : 0;
    if (spec.look_ahead) p.high = max(p.high, step.look_ahead[p.row]);
    return p;
}

/// Partial results of answers: [chunk][row of the call][head][Width + 2], the last two m and l.
__device__ __forceinline__ float* partial_of(const Attention& spec, int rows, int heads, int width, int chunk, int row,
                                             int head) {
    return spec.partial + ((static_cast<int64_t>(chunk) * rows + row) * heads + head) * (width + 2);
}

}  // namespace strata::cuda
