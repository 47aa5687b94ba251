// A tile of 128 outputs by 64 tokens on int8 tensor cores, with the bits of the scalar reference.
//
// One m16n8k32 multiplies exactly one block of 32 inputs. Its C operand is the bit pattern of 1.5 * 2^23, so the
// integer sum comes out as a float, 12,582,912 + P, exact; one fma subtracts and scales (docs/numerics.md, "Tensor
// cores"). Eight warps of 16 rows by 64 tokens, so each weight is decoded once; weights and codes come through two
// stages of shared memory.
#pragma once

#include "cuda/bricks.cuh"

namespace strata::cuda {

inline constexpr int kTileRows = 128, kTileTokens = 64;
inline constexpr float kMagic = 12582912.0f;
inline constexpr int kMagicBits = 0x4B400000;

template <Brick B>
struct Tile {
    static constexpr bool minima = B == Brick::q4_k || B == Brick::q5_k || B == Brick::x8;
    static constexpr int weights = 4 * BrickInfo<B>::bytes;
    static constexpr int code_row = 272;  // 256 and a chunk: rows do not meet in one bank
    static constexpr int codes = kTileTokens * code_row;
    static constexpr int plane = 8 * kTileTokens * 4;
    static constexpr int sums = B == Brick::x8 ? 2 * plane : minima ? plane : 0;
    static constexpr int stage = weights + codes + plane + sums;
    static constexpr int scale_table = B == Brick::q8_0 || B == Brick::x8 ? 0 : 8 * 8 * 16 * 8;
    static constexpr int shared(int stages) { return stages * stage + scale_table; }
};

#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void mma_k32(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(kMagicBits));
}
__device__ __forceinline__ void mma_k16(int (&d)[4], unsigned a0, unsigned a1, unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b), "r"(kMagicBits));
}
#else
// sm_75 multiplies 8 x 8 x 16: rows g and g + 8 are two products of their own.
__device__ __forceinline__ void mma_8x8(int& d0, int& d1, unsigned a, unsigned b, int c0, int c1) {
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
                 : "=r"(d0), "=r"(d1)
                 : "r"(a), "r"(b), "r"(c0), "r"(c1));
}
__device__ __forceinline__ void mma_k16(int (&d)[4], unsigned a0, unsigned a1, unsigned b) {
    mma_8x8(d[0], d[1], a0, b, kMagicBits, kMagicBits);
    mma_8x8(d[2], d[3], a1, b, kMagicBits, kMagicBits);
}
__device__ __forceinline__ void mma_k32(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    mma_8x8(d[0], d[1], a[0], b0, kMagicBits, kMagicBits);
    mma_8x8(d[2], d[3], a[1], b0, kMagicBits, kMagicBits);
    mma_8x8(d[0], d[1], a[2], b1, d[0], d[1]);
    mma_8x8(d[2], d[3], a[3], b1, d[2], d[3]);
}
#endif
__device__ __forceinline__ void load_matrix4(unsigned (&r)[4], const void* shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(unsigned(__cvta_generic_to_shared(shared))));
}

/// The A fragment of block b for rows (row, row + 8) of a brick in shared memory: word q of the block's two chunks.
/// `raw` keeps the words that neighbouring blocks share.
template <Brick B>
__device__ __forceinline__ void block_fragment(const unsigned* words, int b, unsigned (&raw)[4], unsigned (&a)[4]) {
    const auto load = [&](int chunk, unsigned(&to)[4]) {
        to[0] = words[chunk * 128];
        to[1] = words[chunk * 128 + 32];
        to[2] = words[chunk * 128 + 128];
        to[3] = words[chunk * 128 + 160];
    };
    if constexpr (B == Brick::q8_0) {
        load(1 + 2 * b, a);
    } else if constexpr (B == Brick::x8) {
        load(2 * b, a);
    } else if constexpr (B == Brick::q4_k || B == Brick::q5_k) {
        constexpr int base = B == Brick::q4_k ? 1 : 3;
        if (!(b & 1)) load(base + b, raw);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = (b & 1 ? raw[i] >> 4 : raw[i]) & 0x0f0f0f0f;
        if constexpr (B == Brick::q5_k) {
            unsigned high[4];
            load(1, high);
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] |= ((high[i] >> b) & 0x01010101) << 4;
        }
    } else {
        const int k = b >> 2, p = b & 3;
        unsigned low[4], high[4];
        load(4 * k + 2 * (p & 1), low);
        load(8 + 2 * k, high);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            a[i] = minus_32(((p >> 1 ? low[i] >> 4 : low[i]) & 0x0f0f0f0f) | high_pair(high[i], p));
    }
}

/// y[j][i] of the thread: rows (lane / 4) and + 8 of the warp's 16, columns 8 j + 2 (lane % 4) and + 1; i = row half *
/// 2 + column. group: the 32-row group of bricks that the thread copies, one of four by thread / 64 (warp w multiplies
/// group w / 2, rows 16 (w % 2)..); tokens: 64 rows of x in shared memory, all valid (the caller drops what it does not
/// want); steps: 8-token steps in use.
template <Brick B, int Stages>
__device__ __forceinline__ void tile_product(float (&y)[8][4], u8* shared, const u8* group, const Codes& x,
                                             const int* tokens, int segments, int steps) {
    using L = Tile<B>;
    constexpr int bytes = BrickInfo<B>::bytes;
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5, g = lane >> 2, q = lane & 3;
    float2* table = reinterpret_cast<float2*>(shared + Stages * L::stage) + warp * 128;  // [block][16 rows]

    short2 sums[2];  // of the stage in flight: its float form is stored when its copies are waited for
    const auto start_stage = [&](int s) {
        u8* to = shared + (s % Stages) * L::stage;
        const u8* from = group + static_cast<int64_t>(s) * bytes;
        for (int i = t & 63; i < bytes / 16; i += 64) copy_async16(to + (t >> 6) * bytes + i * 16, from + i * 16);
#pragma unroll
        for (int pass = 0; pass < 4; ++pass) {
            const int token = pass * 16 + (t >> 4), at = s * 256 + (t & 15) * 16;
            u8* place = to + L::weights + token * L::code_row + (t & 15) * 16;
            if (at < x.width)
                copy_async16(place, x.values + static_cast<int64_t>(tokens[token]) * x.width + at);
            else
                *reinterpret_cast<uint4*>(place) = make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int pass = 0; pass < 2; ++pass) {
            const int i = t + pass * 256, block = s * 8 + (i >> 6), token = i & 63;
            float* place = reinterpret_cast<float*>(to + L::weights + L::codes) + i;
            const int64_t at = static_cast<int64_t>(block) * x.rows + tokens[token];
            const bool inside = block * 32 < x.width;
            if (inside)
                copy_async4(place, x.scales + at);
            else
                *place = 0.0f;
            if constexpr (L::minima) sums[pass] = inside ? x.half_sums[at] : make_short2(0, 0);
        }
    };
    const auto finish_stage = [&](int s) {
        if constexpr (L::minima) {
            float* place =
                reinterpret_cast<float*>(shared + (s % Stages) * L::stage + L::weights + L::codes + L::plane);
#pragma unroll
            for (int pass = 0; pass < 2; ++pass) {
                const int i = t + pass * 256;
                if constexpr (B == Brick::x8) {
                    place[i] = static_cast<float>(sums[pass].x);
                    place[512 + i] = static_cast<float>(sums[pass].y);
                } else {
                    place[i] = static_cast<float>(sums[pass].x + sums[pass].y);
                }
            }
        }
    };

#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) y[j][i] = 0.0f;
    if (Stages > 1) start_stage(0);
    copy_commit();
    for (int s = 0; s < segments; ++s) {
        if (Stages == 1) {
            if (s > 0) __syncthreads();
            start_stage(s);
            copy_commit();
        }
        copy_wait<0>();
        finish_stage(s);
        __syncthreads();
        if (Stages > 1) {
            if (s + 1 < segments) start_stage(s + 1);
            copy_commit();
        }

        const u8* stage = shared + (s % Stages) * L::stage;
        const u8* brick = stage + (warp >> 1) * bytes;
        const int r0 = (warp & 1) * 16;
        uint4 h0, h1;  // q8_0: the rows' eight half scales
        float D0 = 0, D1 = 0;
        if constexpr (B == Brick::q8_0) {
            h0 = *reinterpret_cast<const uint4*>(brick + (r0 + g) * 16);
            h1 = *reinterpret_cast<const uint4*>(brick + (r0 + g + 8) * 16);
        } else if constexpr (B == Brick::q4_k || B == Brick::q5_k) {
            // (D s, -E mu) of 16 rows and 8 blocks: lanes 0..15 make blocks 0..3, lanes 16..31 blocks 4..7.
            const uint4 header = *reinterpret_cast<const uint4*>(brick + (r0 + (lane & 15)) * 16);
            const KScales k = k_scales(header);
            const float D = half_bits(header.x & 0xffff), E = -half_bits(header.x >> 16);
            const int upper = lane >> 4;
            const unsigned scale = upper ? k.s1 : k.s0, minimum = upper ? k.m1 : k.m0;
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 4; ++i)
                table[(upper * 4 + i) * 16 + (lane & 15)] =
                    make_float2(__fmul_rn(D, static_cast<float>(byte_of(scale, i))),
                                __fmul_rn(E, static_cast<float>(byte_of(minimum, i))));
            __syncwarp();
        } else if constexpr (B == Brick::q6_k) {
            const uint4 scale = *reinterpret_cast<const uint4*>(brick + 12 * 512 + (r0 + (lane & 15)) * 16);
            const int upper = lane >> 4;
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const unsigned pair = word_of(scale, upper * 2 + (i >> 1)) >> (16 * (i & 1));
                table[(upper * 4 + i) * 16 + (lane & 15)] = make_float2(
                    static_cast<float>(static_cast<int8_t>(pair)), static_cast<float>(static_cast<int8_t>(pair >> 8)));
            }
            __syncwarp();
            D0 = half_bits(*reinterpret_cast<const unsigned short*>(brick + 13 * 512 + (r0 + g) * 2));
            D1 = half_bits(*reinterpret_cast<const unsigned short*>(brick + 13 * 512 + (r0 + g + 8) * 2));
        }

        float c[8][4];
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) c[j][i] = 0.0f;
        const unsigned* words = reinterpret_cast<const unsigned*>(brick) + (r0 + g) * 4 + q;
        const u8* code_row =
            stage + L::weights + (((lane >> 4) << 3) + (lane & 7)) * L::code_row + ((lane >> 3) & 1) * 16;
        const float* planes = reinterpret_cast<const float*>(stage + L::weights + L::codes);
        unsigned raw[4];
#pragma unroll
        for (int b = 0; b < 8; ++b) {
            unsigned a[4];
            block_fragment<B>(words, b, raw, a);
            float ws0 = 0, ws1 = 0, wm0 = 0, wm1 = 0, s10 = 0, s11 = 0, mu00 = 0, mu01 = 0, mu10 = 0, mu11 = 0;
            if constexpr (B == Brick::q8_0) {
                ws0 = half_bits((word_of(h0, b >> 1) >> (16 * (b & 1))) & 0xffff);
                ws1 = half_bits((word_of(h1, b >> 1) >> (16 * (b & 1))) & 0xffff);
            } else if constexpr (B == Brick::q4_k || B == Brick::q5_k) {
                const float2 v0 = table[b * 16 + g], v1 = table[b * 16 + g + 8];
                ws0 = v0.x, wm0 = v0.y, ws1 = v1.x, wm1 = v1.y;
            } else if constexpr (B == Brick::q6_k) {
                const float2 v0 = table[b * 16 + g], v1 = table[b * 16 + g + 8];
                ws0 = v0.x, s10 = v0.y, ws1 = v1.x, s11 = v1.y;
            } else {
                const auto bytes_at = [&](int chunk, int row) {
                    return *reinterpret_cast<const unsigned short*>(brick + chunk * 512 + (r0 + row) * 16 + 2 * b);
                };
                const auto float_at = [&](int chunk, int row) {
                    return *reinterpret_cast<const float*>(brick + (chunk + (b >> 2)) * 512 + (r0 + row) * 16 +
                                                           4 * (b & 3));
                };
                const unsigned sa = bytes_at(20, g), sb = bytes_at(20, g + 8), ma = bytes_at(21, g),
                               mb = bytes_at(21, g + 8);
                ws0 = static_cast<int8_t>(sa), s10 = static_cast<int8_t>(sa >> 8);
                ws1 = static_cast<int8_t>(sb), s11 = static_cast<int8_t>(sb >> 8);
                mu00 = static_cast<float>(ma & 0xff), mu01 = static_cast<float>(ma >> 8);
                mu10 = static_cast<float>(mb & 0xff), mu11 = static_cast<float>(mb >> 8);
                D0 = float_at(16, g), D1 = float_at(16, g + 8);
                wm0 = -float_at(18, g), wm1 = -float_at(18, g + 8);
            }
            const float bias0 = __fmul_rn(-kMagic, ws0), bias1 = __fmul_rn(-kMagic, ws1);
#pragma unroll
            for (int pair = 0; pair < 4; ++pair) {
                if (2 * pair >= steps) break;
                unsigned codes[4];
                load_matrix4(codes, code_row + pair * 16 * L::code_row + b * 32);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int j = pair * 2 + half;
                    const float2 d = *reinterpret_cast<const float2*>(planes + b * 64 + j * 8 + 2 * q);
                    float r[4];
                    if constexpr (B == Brick::q6_k || B == Brick::x8) {
                        int f0[4], f1[4];
                        mma_k16(f0, a[0], a[1], codes[2 * half]);
                        mma_k16(f1, a[2], a[3], codes[2 * half + 1]);
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const float u = __fmaf_rn(__int_as_float(f0[i]), i < 2 ? ws0 : ws1, i < 2 ? bias0 : bias1);
                            const float v = __fadd_rn(__int_as_float(f1[i]), -kMagic);
                            r[i] = __fmul_rn(i < 2 ? D0 : D1, __fmaf_rn(v, i < 2 ? s10 : s11, u));
                        }
                        if constexpr (B == Brick::x8) {
                            const float2 t0 = *reinterpret_cast<const float2*>(planes + 512 + b * 64 + j * 8 + 2 * q);
                            const float2 t1 = *reinterpret_cast<const float2*>(planes + 1024 + b * 64 + j * 8 + 2 * q);
                            r[0] = __fmaf_rn(wm0, __fmaf_rn(mu01, t1.x, __fmul_rn(mu00, t0.x)), r[0]);
                            r[1] = __fmaf_rn(wm0, __fmaf_rn(mu01, t1.y, __fmul_rn(mu00, t0.y)), r[1]);
                            r[2] = __fmaf_rn(wm1, __fmaf_rn(mu11, t1.x, __fmul_rn(mu10, t0.x)), r[2]);
                            r[3] = __fmaf_rn(wm1, __fmaf_rn(mu11, t1.y, __fmul_rn(mu10, t0.y)), r[3]);
                        }
                    } else {
                        int f[4];
                        mma_k32(f, a, codes[2 * half], codes[2 * half + 1]);
                        r[0] = __fmaf_rn(__int_as_float(f[0]), ws0, bias0);
                        r[1] = __fmaf_rn(__int_as_float(f[1]), ws0, bias0);
                        r[2] = __fmaf_rn(__int_as_float(f[2]), ws1, bias1);
                        r[3] = __fmaf_rn(__int_as_float(f[3]), ws1, bias1);
                        if constexpr (L::minima) {
                            const float2 T = *reinterpret_cast<const float2*>(planes + 512 + b * 64 + j * 8 + 2 * q);
                            r[0] = __fmaf_rn(wm0, T.x, r[0]);
                            r[1] = __fmaf_rn(wm0, T.y, r[1]);
                            r[2] = __fmaf_rn(wm1, T.x, r[2]);
                            r[3] = __fmaf_rn(wm1, T.y, r[3]);
                        }
                    }
                    c[j][0] = __fmaf_rn(d.x, r[0], c[j][0]);
                    c[j][1] = __fmaf_rn(d.y, r[1], c[j][1]);
                    c[j][2] = __fmaf_rn(d.x, r[2], c[j][2]);
                    c[j][3] = __fmaf_rn(d.y, r[3], c[j][3]);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) y[j][i] = __fadd_rn(y[j][i], c[j][i]);
    }
}

}  // namespace strata::cuda
