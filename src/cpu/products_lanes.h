// One vector register of the instruction set that the including file is compiled for, seen as 32-bit lanes: lane = row
// of a tile. Decoders and multiply loops (products_*.inc.h) are written once over these names.
//
// In an anonymous namespace: the linker must not share a copy built for a wide instruction set with the rest of the
// program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "cpu/products_kernels.h"

namespace strata::cpu {
namespace {

#if defined(__AVX512F__)

using Ints = __m512i;  // & | ^ ~ act on bits
using Floats = __m512;
inline constexpr int kVector = 16;

inline Ints load_ints(const void* p) {
    return _mm512_loadu_si512(p);
}
inline void store_ints(void* p, Ints v) {
    _mm512_storeu_si512(p, v);
}
inline Floats load_floats(const float* p) {
    return _mm512_loadu_ps(p);
}
inline void store_floats(float* p, Floats v) {
    _mm512_storeu_ps(p, v);
}
inline Ints all_words(uint32_t v) {
    return _mm512_set1_epi32(static_cast<int>(v));
}
inline Ints all_bytes(int v) {
    return _mm512_set1_epi8(static_cast<char>(v));
}
inline Floats all_floats(float v) {
    return _mm512_set1_ps(v);
}
inline Ints no_ints() {
    return _mm512_setzero_si512();
}

template <int n>
Ints right(Ints v) {
    return n > 0 ? _mm512_srli_epi32(v, static_cast<unsigned>(n > 0 ? n : 0))
                 : _mm512_slli_epi32(v, static_cast<unsigned>(n > 0 ? 0 : -n));
}
/// The word that begins at bit n of a lane's low, followed by its high.
template <int n>
Ints funnel(Ints low, Ints high) {
    return n == 32 ? high : _mm512_shrdi_epi32(low, high, n % 32);
}
inline Ints subtract(Ints a, Ints b) {
    return _mm512_sub_epi32(a, b);
}
inline Ints larger(Ints a, Ints b) {
    return _mm512_max_epi32(a, b);
}
inline Ints smaller(Ints a, Ints b) {
    return _mm512_min_epi32(a, b);
}
inline Ints add_bytes(Ints a, Ints b) {
    return _mm512_add_epi8(a, b);
}
inline Ints subtract_bytes(Ints a, Ints b) {
    return _mm512_sub_epi8(a, b);
}
/// sum + a.low16 * b.low16 + a.high16 * b.high16
inline Ints multiply_pairs(Ints a, Ints b) {
    return _mm512_madd_epi16(a, b);
}
/// Byte n of every lane, with its sign.
template <int n>
Ints signed_byte(Ints v) {
    return _mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * n), 24);
}

inline Floats to_floats(Ints v) {
    return _mm512_cvtepi32_ps(v);
}
inline Ints from_floats_bits(Floats v) {
    return _mm512_castps_si512(v);
}
inline Floats floats_of_bits(Ints v) {
    return _mm512_castsi512_ps(v);
}
/// The half in the low 16 bits of every lane.
inline Floats low_halves(Ints v) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}
inline Floats multiply(Floats a, Floats b) {
    return _mm512_mul_ps(a, b);
}
inline Floats add(Floats a, Floats b) {
    return _mm512_add_ps(a, b);
}
inline Floats subtract(Floats a, Floats b) {
    return _mm512_sub_ps(a, b);
}
inline Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
}  // a * b + c
inline Floats subtract_product(Floats c, Floats a, Floats b) {
    return _mm512_fnmadd_ps(a, b, c);
}  // c - a * b

/// Sixteen bytes in every 128-bit part.
inline Ints all_parts(const void* p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
/// In every 128-bit part: byte i of the result = byte index[i] of the table's part, index 0 .. 15.
inline Ints look_up(Ints table, Ints index) {
    return _mm512_shuffle_epi8(table, index);
}
/// Byte i of every lane = bit 4 * j + i of the lane, as the bit `place`.
template <int j, int place>
Ints spread_bits(Ints v) {
    constexpr uint64_t kFirst = 0x2322212003020100;  // of bits 0 .. 3 of the low and the high lane of 64 bits
    const auto offsets = (kFirst + 0x0101010101010101 * (64 + 4 * j - place)) & 0x3f3f3f3f3f3f3f3f;
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(static_cast<long long>(offsets)), v) & all_bytes(1 << place);
}

inline __m128i load16(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

/// In every 128-bit part: out[i] = words i of in[0 .. 3].
inline void transpose_parts(const Ints (&in)[4], Ints (&out)[4]) {
    const Ints a = _mm512_unpacklo_epi32(in[0], in[1]), b = _mm512_unpackhi_epi32(in[0], in[1]);
    const Ints c = _mm512_unpacklo_epi32(in[2], in[3]), d = _mm512_unpackhi_epi32(in[2], in[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

/// out[i] = lanes of 32-bit word i of the 16 bytes at rows[lane] + at.
inline void load_words(TileRows rows, int at, Ints (&out)[4]) {
    Ints part[4];  // of rows i, i + 4, i + 8, i + 12
    for (int i = 0; i < 4; ++i) {
        Ints v = _mm512_castsi128_si512(load16(rows[i] + at));
        v = _mm512_inserti32x4(v, load16(rows[i + 4] + at), 1);
        v = _mm512_inserti32x4(v, load16(rows[i + 8] + at), 2);
        part[i] = _mm512_inserti32x4(v, load16(rows[i + 12] + at), 3);
    }
    transpose_parts(part, out);
}

/// The same of 32 bytes.
inline void load_words(TileRows rows, int at, Ints (&out)[8]) {
    const auto load32 = [&](int row) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[row] + at)); };
    Ints four[2][4];  // word w of rows 8k .. 8k+3 in part 0, of 8k+4 .. 8k+7 in part 2; word 4 + w in parts 1 and 3
    for (int k = 0; k < 2; ++k) {
        Ints part[4];
        for (int i = 0; i < 4; ++i)
            part[i] = _mm512_inserti64x4(_mm512_castsi256_si512(load32(8 * k + i)), load32(8 * k + 4 + i), 1);
        transpose_parts(part, four[k]);
    }
    for (int w = 0; w < 4; ++w) {
        out[w] = _mm512_shuffle_i32x4(four[0][w], four[1][w], 0x88);
        out[4 + w] = _mm512_shuffle_i32x4(four[0][w], four[1][w], 0xdd);
    }
}

/// Lane l of the result is make(l).
template <class Make>
Ints lanes_from(const Make& make) {
    const auto four = [&](int l) {
        __m128i v = _mm_cvtsi32_si128(static_cast<int>(make(l)));
        v = _mm_insert_epi32(v, static_cast<int>(make(l + 1)), 1);
        v = _mm_insert_epi32(v, static_cast<int>(make(l + 2)), 2);
        return _mm_insert_epi32(v, static_cast<int>(make(l + 3)), 3);
    };
    Ints v = _mm512_castsi128_si512(four(0));
    v = _mm512_inserti32x4(v, four(4), 1);
    v = _mm512_inserti32x4(v, four(8), 2);
    return _mm512_inserti32x4(v, four(12), 3);
}

/// Sums of products of codes: lane += unsigned bytes of weights times signed bytes of a column, four at a time.
/// `most` bounds the weights; on this instruction set it does not matter.
template <int most>
struct CodeSums {
    static constexpr int kDepth = 8;  // adds between two settles
    struct Weights {
        Ints codes;
    };
    static Weights weights(Ints codes) { return {codes}; }

    Ints sums;
    void start(Ints from) { sums = from; }
    void add(Weights weights, Ints column) { sums = _mm512_dpbusd_epi32(sums, weights.codes, column); }
    void settle() {}
};

#else

using Ints = __m256i;
using Floats = __m256;
inline constexpr int kVector = 8;

inline Ints load_ints(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline void store_ints(void* p, Ints v) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
inline Floats load_floats(const float* p) {
    return _mm256_loadu_ps(p);
}
inline void store_floats(float* p, Floats v) {
    _mm256_storeu_ps(p, v);
}
inline Ints all_words(uint32_t v) {
    return _mm256_set1_epi32(static_cast<int>(v));
}
inline Ints all_bytes(int v) {
    return _mm256_set1_epi8(static_cast<char>(v));
}
inline Floats all_floats(float v) {
    return _mm256_set1_ps(v);
}
inline Ints no_ints() {
    return _mm256_setzero_si256();
}

template <int n>
Ints right(Ints v) {
    return n > 0 ? _mm256_srli_epi32(v, n > 0 ? n : 0) : _mm256_slli_epi32(v, n > 0 ? 0 : -n);
}
template <int n>
Ints funnel(Ints low, Ints high) {
    return n == 32 ? high : right<n>(low) | right<n - 32>(high);
}
inline Ints subtract(Ints a, Ints b) {
    return _mm256_sub_epi32(a, b);
}
inline Ints larger(Ints a, Ints b) {
    return _mm256_max_epi32(a, b);
}
inline Ints smaller(Ints a, Ints b) {
    return _mm256_min_epi32(a, b);
}
inline Ints add_bytes(Ints a, Ints b) {
    return _mm256_add_epi8(a, b);
}
inline Ints subtract_bytes(Ints a, Ints b) {
    return _mm256_sub_epi8(a, b);
}
inline Ints multiply_pairs(Ints a, Ints b) {
    return _mm256_madd_epi16(a, b);
}
template <int n>
Ints signed_byte(Ints v) {
    return _mm256_srai_epi32(_mm256_slli_epi32(v, 24 - 8 * n), 24);
}

inline Floats to_floats(Ints v) {
    return _mm256_cvtepi32_ps(v);
}
inline Floats floats_of_bits(Ints v) {
    return _mm256_castsi256_ps(v);
}
inline Floats low_halves(Ints v) {
    const Ints words = v & all_words(0xffff);
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline Floats multiply(Floats a, Floats b) {
    return _mm256_mul_ps(a, b);
}
inline Floats add(Floats a, Floats b) {
    return _mm256_add_ps(a, b);
}
inline Floats subtract(Floats a, Floats b) {
    return _mm256_sub_ps(a, b);
}
inline Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
}
inline Floats subtract_product(Floats c, Floats a, Floats b) {
    return _mm256_fnmadd_ps(a, b, c);
}

inline Ints all_parts(const void* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline Ints look_up(Ints table, Ints index) {
    return _mm256_shuffle_epi8(table, index);
}
template <int j, int place>
Ints spread_bits(Ints v) {
    constexpr char b = j / 2;  // the byte that has the bits
    const Ints bytes =
        _mm256_shuffle_epi8(v, _mm256_setr_epi8(b, b, b, b, 4 + b, 4 + b, 4 + b, 4 + b, 8 + b, 8 + b, 8 + b, 8 + b,
                                                12 + b, 12 + b, 12 + b, 12 + b, b, b, b, b, 4 + b, 4 + b, 4 + b, 4 + b,
                                                8 + b, 8 + b, 8 + b, 8 + b, 12 + b, 12 + b, 12 + b, 12 + b));
    const Ints bits = all_words(j % 2 ? 0x80402010u : 0x08040201u);
    return _mm256_cmpeq_epi8(bytes & bits, bits) & all_bytes(1 << place);
}

inline __m128i load16(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

inline void load_words(TileRows rows, int at, Ints (&out)[4]) {
    Ints part[4];  // of rows i, i + 4
    for (int i = 0; i < 4; ++i)
        part[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(rows[i] + at)), load16(rows[i + 4] + at), 1);
    const Ints a = _mm256_unpacklo_epi32(part[0], part[1]), b = _mm256_unpackhi_epi32(part[0], part[1]);
    const Ints c = _mm256_unpacklo_epi32(part[2], part[3]), d = _mm256_unpackhi_epi32(part[2], part[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}

inline void load_words(TileRows rows, int at, Ints (&out)[8]) {
    Ints half[4];
    for (int h = 0; h < 2; ++h) {
        load_words(rows, at + 16 * h, half);
        for (int i = 0; i < 4; ++i) out[4 * h + i] = half[i];
    }
}

template <class Make>
Ints lanes_from(const Make& make) {
    const auto four = [&](int l) {
        __m128i v = _mm_cvtsi32_si128(static_cast<int>(make(l)));
        v = _mm_insert_epi32(v, static_cast<int>(make(l + 1)), 1);
        v = _mm_insert_epi32(v, static_cast<int>(make(l + 2)), 2);
        return _mm_insert_epi32(v, static_cast<int>(make(l + 3)), 3);
    };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(four(0)), four(4), 1);
}

/// Sums of products of codes: lane += unsigned bytes of weights (0 .. most) times signed bytes of a column, four at a
/// time. most 128: the weights are signed bytes. Pairs of products stay in 16 bits for as long as they fit.
template <int most>
struct CodeSums {
    static constexpr bool kSigned = most == 128;
    static constexpr int kDepth = most <= 16 ? 8 : most <= 32 ? 4 : most <= 64 ? 2 : 1;
    struct Weights {
        Ints codes, magnitudes;
    };
    static Weights weights(Ints codes) { return {codes, kSigned ? _mm256_abs_epi8(codes) : codes}; }

    Ints sums, pairs;
    void start(Ints from) {
        sums = from;
        pairs = no_ints();
    }
    void add(Weights weights, Ints column) {
        if constexpr (kSigned) column = _mm256_sign_epi8(column, weights.codes);
        const Ints products = _mm256_maddubs_epi16(weights.magnitudes, column);
        pairs = kDepth == 1 ? products : _mm256_add_epi16(pairs, products);
    }
    void settle() {
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        pairs = no_ints();
    }
};

#endif

/// Asks for the cache line of p, any address, before v is used: compilers gather bare prefetches at the start of a
/// function, where so many at once stall it.
inline Ints prefetch_before(Ints v, const std::byte* p) {
    asm("prefetcht1 %a1" : "+v"(v) : "p"(p));
    return v;
}

// Fields of the rows' blocks, one row a lane.

inline uint32_t read32(const std::byte* p) {
    uint32_t v;
    std::memcpy(&v, p, 4);
    return v;
}
inline uint32_t read16(const std::byte* p) {
    uint16_t v;
    std::memcpy(&v, p, 2);
    return v;
}

inline Ints load_word(TileRows rows, int at) {
    return lanes_from([&](int l) { return read32(rows[l] + at); });
}
inline Ints load_half_word(TileRows rows, int at) {
    return lanes_from([&](int l) { return read16(rows[l] + at); });
}
inline Ints load_byte(TileRows rows, int at) {
    return lanes_from([&](int l) { return static_cast<uint32_t>(rows[l][at]); });
}
inline Floats load_half(TileRows rows, int at) {
    return low_halves(load_half_word(rows, at));
}

/// Byte n of every lane.
template <int n>
Ints byte_of(Ints v) {
    if constexpr (n == 3) return right<24>(v);
    return right<8 * n>(v) & all_words(0xff);
}

}  // namespace
}  // namespace strata::cpu
