// How quantised weights lie in the card's memory, and the mat-vec's inner product over one brick.
//
// A brick is 32 rows by 256 inputs of one matrix. Its 16-byte chunks are interleaved over the rows, [chunk][row][16
// bytes], so a warp whose lane is a row reads 512 contiguous bytes an instruction and a tensor-core fragment finds its
// words without bank conflicts. A matrix is bricks ordered [32-row group][segment of 256 inputs]; rows and inputs are
// padded with zeros, which add nothing (docs/numerics.md).
//
// Q8_0, Q4_K, Q5_K and Q6_K keep their file's bits, regrouped. Every other type is kept as X8: its exact canonical
// form, int8 codes and the block's integers and floats; larger, but the same product bit for bit.
#pragma once

#include <type_traits>

#include "cuda/common.cuh"

namespace strata::cuda {

enum class Brick { q8_0, q4_k, q5_k, q6_k, x8 };

/// Chunks a row: what is where.
///   q8_0  0: eight half scales; 1 + 2b, 2 + 2b: codes of block b
///   q4_k  0: d, dmin, twelve scale bytes; 1 + 2k, 2 + 2k: run k, block 2k in the low and 2k + 1 in the high nibbles
///   q5_k  0: as q4_k; 1, 2: high bits, bit b of a byte belongs to block b; 3 + 2k, 4 + 2k: runs as q4_k
///   q6_k  0..7: low nibbles; 8..11: high bit pairs; 12: sixteen group scales; then a plane of 32 half d
///   x8    2b, 2b + 1: codes of block b; 16, 17: D of eight blocks; 18, 19: E; 20: s of sixteen groups; 21: mu of
///   sixteen groups
template <Brick>
struct BrickInfo;
template <>
struct BrickInfo<Brick::q8_0> {
    static constexpr int chunks = 17, bytes = 17 * 512, file_bytes = 272;
};
template <>
struct BrickInfo<Brick::q4_k> {
    static constexpr int chunks = 9, bytes = 9 * 512, file_bytes = 144;
};
template <>
struct BrickInfo<Brick::q5_k> {
    static constexpr int chunks = 11, bytes = 11 * 512, file_bytes = 176;
};
template <>
struct BrickInfo<Brick::q6_k> {
    static constexpr int chunks = 13, bytes = 13 * 512 + 64, file_bytes = 210;
};
template <>
struct BrickInfo<Brick::x8> {
    static constexpr int chunks = 22, bytes = 22 * 512, file_bytes = 352;
};

inline Brick brick_of(Type type) {
    switch (type) {
        case Type::q8_0: return Brick::q8_0;
        case Type::q4_k: return Brick::q4_k;
        case Type::q5_k: return Brick::q5_k;
        case Type::q6_k: return Brick::q6_k;
        default: return Brick::x8;
    }
}
inline int brick_bytes(Brick brick) {
    switch (brick) {
        case Brick::q8_0: return BrickInfo<Brick::q8_0>::bytes;
        case Brick::q4_k: return BrickInfo<Brick::q4_k>::bytes;
        case Brick::q5_k: return BrickInfo<Brick::q5_k>::bytes;
        case Brick::q6_k: return BrickInfo<Brick::q6_k>::bytes;
        default: return BrickInfo<Brick::x8>::bytes;
    }
}

/// Calls f with the brick's type as a constant.
template <class F>
void with_brick(Brick brick, F&& f) {
    switch (brick) {
        case Brick::q8_0: f(std::integral_constant<Brick, Brick::q8_0>{}); break;
        case Brick::q4_k: f(std::integral_constant<Brick, Brick::q4_k>{}); break;
        case Brick::q5_k: f(std::integral_constant<Brick, Brick::q5_k>{}); break;
        case Brick::q6_k: f(std::integral_constant<Brick, Brick::q6_k>{}); break;
        case Brick::x8: f(std::integral_constant<Brick, Brick::x8>{}); break;
    }
}

// ---- decoding, shared by the mat-vec and the tiles
// ---------------------------------------------------------------------------

/// Eight scales and eight minima of a Q4_K or Q5_K header, a byte each: s[0..3], s[4..7], mu[0..3], mu[4..7].
struct KScales {
    unsigned s0, s1, m0, m1;
};
__device__ __forceinline__ KScales k_scales(uint4 header) {
    return {header.y & 0x3f3f3f3f, (header.w & 0x0f0f0f0f) | ((header.y >> 2) & 0x30303030), header.z & 0x3f3f3f3f,
            ((header.w >> 4) & 0x0f0f0f0f) | ((header.z >> 2) & 0x30303030)};
}
/// Bits 2p, 2p + 1 of each byte of h, moved to bits 4, 5.
__device__ __forceinline__ unsigned high_pair(unsigned h, int p) {
    return (p == 0 ? h << 4 : p == 1 ? h << 2 : p == 2 ? h : h >> 2) & 0x30303030;
}
/// Six-bit codes 0..63 to signed -32..31, four at once.
__device__ __forceinline__ unsigned minus_32(unsigned codes) {
    return ((codes | 0x80808080) - 0x20202020) ^ 0x80808080;
}

/// A row's share of a brick in registers: all loads issued before the first use.
template <Brick B>
struct Fragment {
    uint4 chunk[BrickInfo<B>::chunks];
    unsigned d;  // q6_k
};
template <Brick B>
__device__ __forceinline__ void load_fragment(Fragment<B>& f, const u8* brick, int row) {
#pragma unroll
    for (int c = 0; c < BrickInfo<B>::chunks; ++c) f.chunk[c] = load_weights(brick + c * 512 + row * 16);
    if constexpr (B == Brick::q6_k) f.d = load_weights16(brick + 13 * 512 + row * 2);
}

/// Low (high = 0) or high (1) nibbles of sixteen bytes.
__device__ __forceinline__ uint4 nibbles(uint4 v, int high) {
    const unsigned m = 0x0f0f0f0f;
    const int n = 4 * high;
    return make_uint4((v.x >> n) & m, (v.y >> n) & m, (v.z >> n) & m, (v.w >> n) & m);
}
__device__ __forceinline__ uint4 or_bits(uint4 v, uint4 h, int bit) {
    const unsigned m = 0x01010101;
    return make_uint4(v.x | (((h.x >> bit) & m) << 4), v.y | (((h.y >> bit) & m) << 4), v.z | (((h.z >> bit) & m) << 4),
                      v.w | (((h.w >> bit) & m) << 4));
}
__device__ __forceinline__ uint4 six_bits(uint4 low, uint4 high, int pair) {
    return make_uint4(minus_32(low.x | high_pair(high.x, pair)), minus_32(low.y | high_pair(high.y, pair)),
                      minus_32(low.z | high_pair(high.z, pair)), minus_32(low.w | high_pair(high.w, pair)));
}

/// Codes of block b of a row: inputs 0..15 in x, 16..31 in y.
template <Brick B>
__device__ __forceinline__ void block_codes(const Fragment<B>& f, int b, uint4& x, uint4& y) {
    if constexpr (B == Brick::q8_0) {
        x = f.chunk[1 + 2 * b];
        y = f.chunk[2 + 2 * b];
    } else if constexpr (B == Brick::x8) {
        x = f.chunk[2 * b];
        y = f.chunk[2 * b + 1];
    } else if constexpr (B == Brick::q4_k) {
        x = nibbles(f.chunk[1 + (b & ~1)], b & 1);
        y = nibbles(f.chunk[2 + (b & ~1)], b & 1);
    } else if constexpr (B == Brick::q5_k) {
        x = or_bits(nibbles(f.chunk[3 + (b & ~1)], b & 1), f.chunk[1], b);
        y = or_bits(nibbles(f.chunk[4 + (b & ~1)], b & 1), f.chunk[2], b);
    } else {
        const int k = b >> 2, p = b & 3;  // run of 128, block within it
        x = six_bits(nibbles(f.chunk[4 * k + 2 * (p & 1)], p >> 1), f.chunk[8 + 2 * k], p);
        y = six_bits(nibbles(f.chunk[4 * k + 2 * (p & 1) + 1], p >> 1), f.chunk[9 + 2 * k], p);
    }
}

__device__ __forceinline__ int dot16(uint4 a, int4 b, int c) {
    c = __dp4a(static_cast<int>(a.x), b.x, c);
    c = __dp4a(static_cast<int>(a.y), b.y, c);
    c = __dp4a(static_cast<int>(a.z), b.z, c);
    return __dp4a(static_cast<int>(a.w), b.w, c);
}
__device__ __forceinline__ unsigned word_of(uint4 v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// Chain of one segment of one row (docs/numerics.md, "The canonical product") for Columns tokens: c[j] = sum over the
/// blocks in order of d_b * RN(D * I) - ... . codes: int4 [column][16 a segment, column_stride apart]; scales and half
/// sums [column][8 a segment].
template <Brick B, int Columns>
__device__ __forceinline__ void segment_dot(const Fragment<B>& f, const int4* codes, int code_stride,
                                            const float* scales, const short2* sums, int sum_stride,
                                            float (&c)[Columns]) {
#pragma unroll
    for (int j = 0; j < Columns; ++j) c[j] = 0.0f;
    float D = 0, E = 0;
    KScales k{};
    if constexpr (B == Brick::q4_k || B == Brick::q5_k) {
        D = half_bits(f.chunk[0].x & 0xffff);
        E = half_bits(f.chunk[0].x >> 16);
        k = k_scales(f.chunk[0]);
    } else if constexpr (B == Brick::q6_k) {
        D = half_bits(f.d);
    }
#pragma unroll
    for (int b = 0; b < 8; ++b) {
        uint4 x, y;
        block_codes<B>(f, b, x, y);
#pragma unroll
        for (int j = 0; j < Columns; ++j) {
            const int4* a = codes + j * code_stride + 2 * b;
            const float d = scales[j * sum_stride + b];
            if constexpr (B == Brick::q8_0) {
                const int P = dot16(y, a[1], dot16(x, a[0], 0));
                const float D8 = half_bits((word_of(f.chunk[0], b >> 1) >> (16 * (b & 1))) & 0xffff);
                c[j] = __fmaf_rn(d, __fmul_rn(D8, static_cast<float>(P)), c[j]);
            } else if constexpr (B == Brick::q4_k || B == Brick::q5_k) {
                const int P = dot16(y, a[1], dot16(x, a[0], 0));
                const int s = byte_of(b < 4 ? k.s0 : k.s1, b & 3), mu = byte_of(b < 4 ? k.m0 : k.m1, b & 3);
                const short2 h = sums[j * sum_stride + b];
                float t = __fmul_rn(D, static_cast<float>(s * P));
                t = __fmaf_rn(-E, static_cast<float>(mu * (h.x + h.y)), t);
                c[j] = __fmaf_rn(d, t, c[j]);
            } else if constexpr (B == Brick::q6_k) {
                const unsigned s = word_of(f.chunk[12], b >> 1) >> (16 * (b & 1));
                const int I =
                    static_cast<int8_t>(s) * dot16(x, a[0], 0) + static_cast<int8_t>(s >> 8) * dot16(y, a[1], 0);
                c[j] = __fmaf_rn(d, __fmul_rn(D, static_cast<float>(I)), c[j]);
            } else {
                const unsigned s = word_of(f.chunk[20], b >> 1) >> (16 * (b & 1)),
                               mu = word_of(f.chunk[21], b >> 1) >> (16 * (b & 1));
                const short2 h = sums[j * sum_stride + b];
                const int I =
                    static_cast<int8_t>(s) * dot16(x, a[0], 0) + static_cast<int8_t>(s >> 8) * dot16(y, a[1], 0);
                const int M = static_cast<int>(mu & 0xff) * h.x + static_cast<int>((mu >> 8) & 0xff) * h.y;
                const float Db = __uint_as_float(word_of(f.chunk[16 + (b >> 2)], b & 3));
                const float Eb = __uint_as_float(word_of(f.chunk[18 + (b >> 2)], b & 3));
                float t = __fmul_rn(Db, static_cast<float>(I));
                t = __fmaf_rn(-Eb, static_cast<float>(M), t);
                c[j] = __fmaf_rn(d, t, c[j]);
            }
        }
    }
}

/// One weight as a float, exact (rounded once where there is a minimum): for embeddings.
template <Brick B>
__device__ __forceinline__ float brick_weight(const u8* brick, int row, int i) {
    const int b = i >> 5, r = i & 31;
    const auto byte = [&](int chunk, int at) { return brick[chunk * 512 + row * 16 + at]; };
    const auto half_at = [&](int chunk, int at) { return half_bits(byte(chunk, at) | (byte(chunk, at + 1) << 8)); };
    const auto float_at = [&](int chunk, int at) {
        return *reinterpret_cast<const float*>(brick + chunk * 512 + row * 16 + at);
    };
    if constexpr (B == Brick::q8_0) {
        return __fmul_rn(half_at(0, 2 * b),
                         static_cast<float>(static_cast<int8_t>(byte(1 + 2 * b + (r >> 4), r & 15))));
    } else if constexpr (B == Brick::q4_k || B == Brick::q5_k) {
        const uint4 header = *reinterpret_cast<const uint4*>(brick + row * 16);
        const KScales k = k_scales(header);
        const int base = B == Brick::q4_k ? 1 : 3;
        int q = (byte(base + (b & ~1) + (r >> 4), r & 15) >> (4 * (b & 1))) & 15;
        if (B == Brick::q5_k) q |= ((byte(1 + (r >> 4), r & 15) >> b) & 1) << 4;
        const int s = byte_of(b < 4 ? k.s0 : k.s1, b & 3), mu = byte_of(b < 4 ? k.m0 : k.m1, b & 3);
        return __fsub_rn(__fmul_rn(half_bits(header.x & 0xffff), static_cast<float>(s * q)),
                         __fmul_rn(half_bits(header.x >> 16), static_cast<float>(mu)));
    } else if constexpr (B == Brick::q6_k) {
        const int k = b >> 2, p = b & 3;
        const int low = (byte(4 * k + 2 * (p & 1) + (r >> 4), r & 15) >> (4 * (p >> 1))) & 15;
        const int high = (byte(8 + 2 * k + (r >> 4), r & 15) >> (2 * p)) & 3;
        const int s = static_cast<int8_t>(byte(12, i >> 4));
        const float d = half_bits(*reinterpret_cast<const unsigned short*>(brick + 13 * 512 + row * 2));
        return __fmul_rn(d, static_cast<float>(s * (low + 16 * high - 32)));
    } else {
        const int q = static_cast<int8_t>(byte(2 * b + (r >> 4), r & 15)), s = static_cast<int8_t>(byte(20, i >> 4));
        const float t = __fmul_rn(float_at(16 + (b >> 2), 4 * (b & 3)), static_cast<float>(s * q));
        return __fsub_rn(t, __fmul_rn(float_at(18 + (b >> 2), 4 * (b & 3)), static_cast<float>(byte(21, i >> 4))));
    }
}

/// Permutes file rows into bricks. raw: [rows][row_bytes], `cols` inputs (for x8: raw is [rows][segments][352] made by
/// the host); out: ceil(rows / 32) * ceil(cols / 256) bricks, padding zeroed.
void make_bricks(Brick brick, const u8* raw, int64_t row_bytes, int rows, int cols, u8* out, cudaStream_t stream);

}  // namespace strata::cuda
