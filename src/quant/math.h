// exp and what is built on it, with the same bits everywhere: one expression tree of float32 add, subtract, multiply,
// divide, fma, compare and an integer addition to the exponent (docs/numerics.md, "Functions"). Read by host and CUDA
// compilers; device code is compiled with --fmad=false. Everything is static: a file built for a wide instruction set
// keeps its own copy.
//
// The functions are templates over a lane type V: float, or a struct around a SIMD vector that has
//   a constructor from float (all lanes), operators + - * / and unary -, and the functions, found beside the struct:
//   lane_fma(a, b, c)                a * b + c rounded once
//   lane_min(a, b), lane_max(a, b)   a < b ? a : b and a > b ? a : b (minps, maxps)
//   lane_abs(a)
//   lane_select_less(a, b, x, y)     a < b ? x : y
//   lane_exponent_add(a, n)          bits of a plus (bits of n << 23), modulo 2^32
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define STRATA_LANE static inline __host__ __device__
#else
#define STRATA_LANE static inline
#endif

namespace strata {

STRATA_LANE float lane_fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}
STRATA_LANE float lane_min(float a, float b) {
    return a < b ? a : b;
}
STRATA_LANE float lane_max(float a, float b) {
    return a > b ? a : b;
}
STRATA_LANE float lane_abs(float a) {
    return __builtin_fabsf(a);
}
STRATA_LANE float lane_select_less(float a, float b, float x, float y) {
    return a < b ? x : y;
}
STRATA_LANE float lane_exponent_add(float a, float n) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(__float_as_uint(a) + (__float_as_uint(n) << 23));
#else
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, a) + (__builtin_bit_cast(uint32_t, n) << 23));
#endif
}

/// e^x, x clamped to -87 .. 87. Error below 1 ulp of the exact value; exp_fixed(0) = 1.
template <class V>
STRATA_LANE V exp_fixed(V x) {
    x = lane_min(lane_max(x, V(-87.0f)), V(87.0f));
    const V magic(0x1.8p23f);  // adding it rounds to an integer and leaves the integer in the low bits
    const V shifted = lane_fma(x, V(0x1.715476p+0f), magic);
    const V n = shifted - magic;              // rne(x / ln 2), -126 .. 126
    V r = lane_fma(n, V(-0x1.62e4p-1f), x);   // x - n ln 2, ln 2 in two parts
    r = lane_fma(n, V(-0x1.7f7d1cp-20f), r);  // |r| <= 0.3468
    V p = lane_fma(r, V(0x1.6d11fep-10f), V(0x1.120c62p-7f));
    p = lane_fma(p, r, V(0x1.555518p-5f));
    p = lane_fma(p, r, V(0x1.5554dcp-3f));
    p = lane_fma(p, r, V(0.5f));
    p = lane_fma(p, r, V(1.0f));
    p = lane_fma(p, r, V(1.0f));
    return lane_exponent_add(p, shifted);
}

/// 1 / (1 + e^-x).
template <class V>
STRATA_LANE V sigmoid(V x) {
    return V(1.0f) / (V(1.0f) + exp_fixed(-x));
}

/// x / (1 + e^-x).
template <class V>
STRATA_LANE V silu(V x) {
    return x / (V(1.0f) + exp_fixed(-x));
}

/// The tanh form of GELU, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written as x / (1 + e^(-2u)).
template <class V>
STRATA_LANE V gelu(V x) {
    const V inner = lane_fma(x * x, V(-0x1.2444f2p-4f), V(-0x1.988454p+0f));  // -2 sqrt(2/pi) (0.044715 x^2 + 1)
    return x / (V(1.0f) + exp_fixed(x * inner));
}

/// tanh x: an odd polynomial below 0.55, 1 - 2 / (e^2|x| + 1) above.
template <class V>
STRATA_LANE V tanh_fixed(V x) {
    const V z = x * x;
    V p = lane_fma(z, V(-0x1.b13538p-8f), V(0x1.5d220ep-6f));
    p = lane_fma(p, z, V(-0x1.b9a044p-5f));
    p = lane_fma(p, z, V(0x1.110feap-3f));
    p = lane_fma(p, z, V(-0x1.555554p-2f));
    const V small = lane_fma(x * z, p, x);
    const V a = lane_abs(x);
    const V large = V(1.0f) - V(2.0f) / (exp_fixed(a + a) + V(1.0f));
    return lane_select_less(a, V(0.55f), small, lane_select_less(x, V(0.0f), -large, large));
}

/// log(1 + e^x) = max(x, 0) + log1p(y), y = e^-|x|, with log1p(y) = 2 atanh(y / (2 + y)).
template <class V>
STRATA_LANE V softplus(V x) {
    const V y = exp_fixed(-lane_abs(x));
    const V s = y / (V(2.0f) + y);  // 0 .. 1/3
    const V z = s * s;
    V p = lane_fma(z, V(0x1.dbc172p-3f), V(0x1.bc86f4p-3f));
    p = lane_fma(p, z, V(0x1.24c954p-2f));
    p = lane_fma(p, z, V(0x1.9998d4p-2f));
    p = lane_fma(p, z, V(0x1.555556p-1f));
    const V log1p = lane_fma(s * z, p, s + s);
    return lane_max(x, V(0.0f)) + log1p;
}

}  // namespace strata
