// Sixteen floats side by side: one zmm register, two ymm registers or a plain array, whichever the file that includes
// this is compiled for. The row kernels (ops_*.inc.h) are written once over it. Every operation is a single IEEE
// operation per lane, and sums over lanes have one tree, so all three give the same bits (docs/numerics.md).
//
// In an anonymous namespace: the linker must not share a copy built for a wide instruction set with the rest of the
// program.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "quant/half.h"
#include "quant/math.h"

namespace strata::cpu {
namespace {

inline constexpr int kLanes = 16;
inline constexpr float kMinusInfinity = -__builtin_inff();

#if defined(__AVX512F__)

struct Lanes {
    __m512 v;

    Lanes() = default;
    explicit Lanes(__m512 x) : v(x) {}
    explicit Lanes(float x) : v(_mm512_set1_ps(x)) {}

    static Lanes load(const float* p) { return Lanes(_mm512_loadu_ps(p)); }
    /// The first n values, zero in the other lanes; n may be 0.
    static Lanes load(const float* p, int n) { return Lanes(_mm512_maskz_loadu_ps(first(n), p)); }
    static Lanes load_f16(const uint16_t* p) { return Lanes(_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))); }
    static Lanes load_i8(const int8_t* p) {
        return Lanes(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p))));
    }
    void store(float* p) const { _mm512_storeu_ps(p, v); }
    void store(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }
    void store_f16(uint16_t* p) const {
        _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    /// Integral values in -128 .. 127.
    void store_i8(int8_t* p) const { _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v))); }

    friend Lanes operator+(Lanes a, Lanes b) { return Lanes(_mm512_add_ps(a.v, b.v)); }
    friend Lanes operator-(Lanes a, Lanes b) { return Lanes(_mm512_sub_ps(a.v, b.v)); }
    friend Lanes operator*(Lanes a, Lanes b) { return Lanes(_mm512_mul_ps(a.v, b.v)); }
    friend Lanes operator/(Lanes a, Lanes b) { return Lanes(_mm512_div_ps(a.v, b.v)); }
    Lanes operator-() const { return Lanes(_mm512_xor_ps(v, _mm512_set1_ps(-0.0f))); }

    friend Lanes lane_fma(Lanes a, Lanes b, Lanes c) { return Lanes(_mm512_fmadd_ps(a.v, b.v, c.v)); }
    friend Lanes lane_min(Lanes a, Lanes b) { return Lanes(_mm512_min_ps(a.v, b.v)); }
    friend Lanes lane_max(Lanes a, Lanes b) { return Lanes(_mm512_max_ps(a.v, b.v)); }
    friend Lanes lane_abs(Lanes a) { return Lanes(_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)); }
    friend Lanes lane_select_less(Lanes a, Lanes b, Lanes x, Lanes y) {
        return Lanes(_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v));
    }
    friend Lanes lane_exponent_add(Lanes a, Lanes n) {
        return Lanes(_mm512_castsi512_ps(
            _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(_mm512_castps_si512(n.v), 23))));
    }
    /// The larger bit pattern; of values without sign: the larger value, a NaN above all.
    friend Lanes lane_max_bits(Lanes a, Lanes b) {
        return Lanes(_mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v))));
    }
    /// x in lanes [from, to), y in the others; 0 <= from, to <= 16.
    friend Lanes lane_range(int from, int to, Lanes x, Lanes y) {
        const auto mask = static_cast<__mmask16>(from < to ? first(to) & ~first(from) : 0);
        return Lanes(_mm512_mask_blend_ps(mask, y.v, x.v));
    }

    /// Lanes added up: l and l + 8, then l and l + 4, l and l + 2, l and l + 1.
    float sum() const {
        const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
        return sum8(a);
    }
    float max_bits() const {
        return float_from_bits(static_cast<uint32_t>(_mm512_reduce_max_epi32(_mm512_castps_si512(v))));
    }
    float max() const {
        const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
        const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
        return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
    }

  private:
    static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
    static float sum8(__m256 a) {
        const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
        return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
    }
};

/// In place: lane j of rows[i] and lane i of rows[j] change places.
inline void transpose16(Lanes rows[16]) {
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 8; ++i) {
        a[2 * i] = _mm512_unpacklo_ps(rows[2 * i].v, rows[2 * i + 1].v);
        a[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i].v, rows[2 * i + 1].v);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
        const auto pd = [&](int j) { return _mm512_castps_pd(a[4 * i + j]); };
        b[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(0), pd(2)));
        b[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(0), pd(2)));
        b[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(1), pd(3)));
        b[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(1), pd(3)));
    }
    // b[4g + c] holds, in its 128-bit part q, rows 4g .. 4g+3 of column 4q + c.
#pragma GCC unroll 16
    for (int c = 0; c < 4; ++c) {
        const __m512 low0 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);        // columns c, 8 + c of rows 0..7
        const __m512 low1 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);        // columns 4 + c, 12 + c
        const __m512 high0 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);  // the same of rows 8..15
        const __m512 high1 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
        rows[c].v = _mm512_shuffle_f32x4(low0, high0, 0x88);
        rows[8 + c].v = _mm512_shuffle_f32x4(low0, high0, 0xdd);
        rows[4 + c].v = _mm512_shuffle_f32x4(low1, high1, 0x88);
        rows[12 + c].v = _mm512_shuffle_f32x4(low1, high1, 0xdd);
    }
}

/// sums[i] = x[i].sum(), all together.
inline void sum_each(const Lanes (&x)[8], float* sums) {
    __m512 a[4], b[2];
    for (int i = 0; i < 4; ++i)  // l and l + 8: two sums of eight lanes
        a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x[2 * i].v, x[2 * i + 1].v, 0x44),
                             _mm512_shuffle_f32x4(x[2 * i].v, x[2 * i + 1].v, 0xee));
    for (int i = 0; i < 2; ++i)  // l and l + 4: four sums of four lanes
        b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
    const __m512d p = _mm512_castps_pd(b[0]), q = _mm512_castps_pd(b[1]);
    const __m512 c =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(p, q)), _mm512_castpd_ps(_mm512_unpackhi_pd(p, q)));
    const __m512 d = _mm512_add_ps(c, _mm512_movehdup_ps(c));  // sum i in lane 4 i, sum 4 + i in lane 4 i + 2
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm256_storeu_ps(sums, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, d)));
}

#elif defined(__AVX2__)

struct Lanes {
    __m256 a, b;  // lanes 0..7, 8..15

    Lanes() = default;
    Lanes(__m256 x, __m256 y) : a(x), b(y) {}
    explicit Lanes(float x) : a(_mm256_set1_ps(x)), b(a) {}

    static Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
    /// The first n values, zero in the other lanes; n may be 0.
    static Lanes load(const float* p, int n) {
        return {_mm256_maskload_ps(p, first(n)), n > 8 ? _mm256_maskload_ps(p + 8, first(n - 8)) : _mm256_setzero_ps()};
    }
    static Lanes load_f16(const uint16_t* p) {
        return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
    }
    static Lanes load_i8(const int8_t* p) {
        const __m128i x = _mm_loadu_si128((const __m128i*)p);
        return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
    }
    void store(float* p) const {
        _mm256_storeu_ps(p, a);
        _mm256_storeu_ps(p + 8, b);
    }
    void store(float* p, int n) const {
        _mm256_maskstore_ps(p, first(n), a);
        if (n > 8) _mm256_maskstore_ps(p + 8, first(n - 8), b);
    }
    void store_f16(uint16_t* p) const {
        _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    /// Integral values in -128 .. 127.
    void store_i8(int8_t* p) const {
        const __m256i words =
            _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b)), 0xd8);
        _mm_storeu_si128((__m128i*)p,
                         _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    }

    friend Lanes operator+(Lanes x, Lanes y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
    friend Lanes operator-(Lanes x, Lanes y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
    friend Lanes operator*(Lanes x, Lanes y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
    friend Lanes operator/(Lanes x, Lanes y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
    Lanes operator-() const {
        const __m256 sign = _mm256_set1_ps(-0.0f);
        return {_mm256_xor_ps(a, sign), _mm256_xor_ps(b, sign)};
    }

    friend Lanes lane_fma(Lanes x, Lanes y, Lanes z) {
        return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
    }
    friend Lanes lane_min(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
    friend Lanes lane_max(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
    friend Lanes lane_abs(Lanes x) {
        const __m256 sign = _mm256_set1_ps(-0.0f);
        return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
    }
    friend Lanes lane_select_less(Lanes p, Lanes q, Lanes x, Lanes y) {
        return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)),
                _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ))};
    }
    friend Lanes lane_exponent_add(Lanes x, Lanes n) {
        const auto add = [](__m256 p, __m256 q) {
            return _mm256_castsi256_ps(
                _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(q), 23)));
        };
        return {add(x.a, n.a), add(x.b, n.b)};
    }
    /// The larger bit pattern; of values without sign: the larger value, a NaN above all.
    friend Lanes lane_max_bits(Lanes x, Lanes y) {
        const auto larger = [](__m256 p, __m256 q) {
            return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(p), _mm256_castps_si256(q)));
        };
        return {larger(x.a, y.a), larger(x.b, y.b)};
    }
    /// x in lanes [from, to), y in the others; 0 <= from, to <= 16.
    friend Lanes lane_range(int from, int to, Lanes x, Lanes y) {
        const auto pick = [&](int base, __m256 p, __m256 q) {
            const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(base));
            const __m256i in = _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(from - 1)),
                                                _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane));
            return _mm256_blendv_ps(q, p, _mm256_castsi256_ps(in));
        };
        return {pick(0, x.a, y.a), pick(8, x.b, y.b)};
    }

    /// Lanes added up: l and l + 8, then l and l + 4, l and l + 2, l and l + 1.
    float sum() const {
        const __m256 s = _mm256_add_ps(a, b);
        const __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
        const __m128 u = _mm_add_ps(t, _mm_movehl_ps(t, t));
        return _mm_cvtss_f32(_mm_add_ss(u, _mm_movehdup_ps(u)));
    }
    float max_bits() const {
        const __m256i s = _mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b));
        __m128i t = _mm_max_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
        t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
        t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1));
        return float_from_bits(static_cast<uint32_t>(_mm_cvtsi128_si32(t)));
    }
    float max() const {
        const __m256 s = _mm256_max_ps(a, b);
        const __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
        const __m128 u = _mm_max_ps(t, _mm_movehl_ps(t, t));
        return _mm_cvtss_f32(_mm_max_ss(u, _mm_movehdup_ps(u)));
    }

  private:
    static __m256i first(int n) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
};

/// sums[i] = x[i].sum(), all together.
inline void sum_each(const Lanes (&x)[4], float* sums) {
    __m256 a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = _mm256_add_ps(x[i].a, x[i].b);  // l and l + 8
    for (int i = 0; i < 2; ++i)                                        // l and l + 4: two sums of four lanes
        b[i] = _mm256_add_ps(_mm256_permute2f128_ps(a[2 * i], a[2 * i + 1], 0x20),
                             _mm256_permute2f128_ps(a[2 * i], a[2 * i + 1], 0x31));
    const __m256d p = _mm256_castps_pd(b[0]), q = _mm256_castps_pd(b[1]);
    const __m256 c =
        _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(p, q)), _mm256_castpd_ps(_mm256_unpackhi_pd(p, q)));
    const __m256 d = _mm256_add_ps(c, _mm256_movehdup_ps(c));  // sums 0, 2, 1, 3 in lanes 0, 2, 4, 6
    const __m256i order = _mm256_setr_epi32(0, 4, 2, 6, 0, 0, 0, 0);
    _mm_storeu_ps(sums, _mm256_castps256_ps128(_mm256_permutevar8x32_ps(d, order)));
}

inline void transpose8(__m256 r[8]) {
    __m256 a[8], b[8];
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
        b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    for (int c = 0; c < 4; ++c) {
        r[c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x20);
        r[4 + c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x31);
    }
}

/// In place: lane j of rows[i] and lane i of rows[j] change places.
inline void transpose16(Lanes rows[16]) {
    __m256 q[4][8];  // quarters: rows 0..7 low and high lanes, rows 8..15 low and high lanes
    for (int i = 0; i < 8; ++i) {
        q[0][i] = rows[i].a;
        q[1][i] = rows[i].b;
        q[2][i] = rows[8 + i].a;
        q[3][i] = rows[8 + i].b;
    }
    for (auto& quarter : q) transpose8(quarter);
    for (int i = 0; i < 8; ++i) {
        rows[i] = {q[0][i], q[2][i]};
        rows[8 + i] = {q[1][i], q[3][i]};
    }
}

#else

struct Lanes {
    float v[kLanes];

    Lanes() = default;
    explicit Lanes(float x) {
        for (float& lane : v) lane = x;
    }

    static Lanes load(const float* p) {
        Lanes r;
        std::memcpy(r.v, p, sizeof r.v);
        return r;
    }
    /// The first n values, zero in the other lanes; n may be 0.
    static Lanes load(const float* p, int n) {
        Lanes r(0.0f);
        std::memcpy(r.v, p, static_cast<size_t>(n) * sizeof(float));
        return r;
    }
    static Lanes load_f16(const uint16_t* p) {
        return each([&](int l) { return float_from_f16(p[l]); });
    }
    static Lanes load_i8(const int8_t* p) {
        return each([&](int l) { return static_cast<float>(p[l]); });
    }
    void store(float* p) const { std::memcpy(p, v, sizeof v); }
    void store(float* p, int n) const { std::memcpy(p, v, static_cast<size_t>(n) * sizeof(float)); }
    void store_f16(uint16_t* p) const {
        for (int l = 0; l < kLanes; ++l) p[l] = f16_from_float(v[l]);
    }
    /// Integral values in -128 .. 127.
    void store_i8(int8_t* p) const {
        for (int l = 0; l < kLanes; ++l) p[l] = static_cast<int8_t>(v[l]);
    }

    friend Lanes operator+(Lanes a, Lanes b) {
        return each([&](int l) { return a.v[l] + b.v[l]; });
    }
    friend Lanes operator-(Lanes a, Lanes b) {
        return each([&](int l) { return a.v[l] - b.v[l]; });
    }
    friend Lanes operator*(Lanes a, Lanes b) {
        return each([&](int l) { return a.v[l] * b.v[l]; });
    }
    friend Lanes operator/(Lanes a, Lanes b) {
        return each([&](int l) { return a.v[l] / b.v[l]; });
    }
    Lanes operator-() const {
        return each([&](int l) { return -v[l]; });
    }

    friend Lanes lane_fma(Lanes a, Lanes b, Lanes c) {
        return each([&](int l) { return std::fma(a.v[l], b.v[l], c.v[l]); });
    }
    friend Lanes lane_min(Lanes a, Lanes b) {
        return each([&](int l) { return a.v[l] < b.v[l] ? a.v[l] : b.v[l]; });
    }
    friend Lanes lane_max(Lanes a, Lanes b) {
        return each([&](int l) { return a.v[l] > b.v[l] ? a.v[l] : b.v[l]; });
    }
    friend Lanes lane_abs(Lanes a) {
        return each([&](int l) { return std::fabs(a.v[l]); });
    }
    friend Lanes lane_select_less(Lanes a, Lanes b, Lanes x, Lanes y) {
        return each([&](int l) { return a.v[l] < b.v[l] ? x.v[l] : y.v[l]; });
    }
    friend Lanes lane_exponent_add(Lanes a, Lanes n) {
        return each([&](int l) { return float_from_bits(float_bits(a.v[l]) + (float_bits(n.v[l]) << 23)); });
    }
    /// The larger bit pattern; of values without sign: the larger value, a NaN above all.
    friend Lanes lane_max_bits(Lanes a, Lanes b) {
        return each([&](int l) { return float_bits(a.v[l]) > float_bits(b.v[l]) ? a.v[l] : b.v[l]; });
    }
    /// x in lanes [from, to), y in the others; 0 <= from, to <= 16.
    friend Lanes lane_range(int from, int to, Lanes x, Lanes y) {
        return each([&](int l) { return from <= l && l < to ? x.v[l] : y.v[l]; });
    }

    /// Lanes added up: l and l + 8, then l and l + 4, l and l + 2, l and l + 1.
    float sum() const {
        float s[kLanes];
        std::memcpy(s, v, sizeof s);
        for (int half = 8; half > 0; half /= 2)
            for (int l = 0; l < half; ++l) s[l] += s[l + half];
        return s[0];
    }
    float max_bits() const {
        uint32_t largest = 0;
        for (float lane : v) largest = float_bits(lane) > largest ? float_bits(lane) : largest;
        return float_from_bits(largest);
    }
    float max() const {
        float s[kLanes];
        std::memcpy(s, v, sizeof s);
        for (int half = 8; half > 0; half /= 2)
            for (int l = 0; l < half; ++l) s[l] = s[l] > s[l + half] ? s[l] : s[l + half];
        return s[0];
    }

  private:
    template <class F>
    static Lanes each(F f) {
        Lanes r;
        for (int l = 0; l < kLanes; ++l) r.v[l] = f(l);
        return r;
    }
};

/// In place: lane j of rows[i] and lane i of rows[j] change places.
inline void transpose16(Lanes rows[16]) {
    for (int i = 0; i < kLanes; ++i)
        for (int j = 0; j < i; ++j) {
            const float lane = rows[i].v[j];
            rows[i].v[j] = rows[j].v[i];
            rows[j].v[i] = lane;
        }
}

#endif

/// One half as a float.
inline float half_to_float(uint16_t half) {
#if defined(__AVX2__)
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
#else
    return float_from_f16(half);
#endif
}

/// sums[i] = x[i].sum().
template <int N>
inline void sum_each(const Lanes (&x)[N], float* sums) {
    for (int i = 0; i < N; ++i) sums[i] = x[i].sum();
}

/// Sum of n products in the order of every reduction over values: lane l adds elements 16 i + l by fma, then the lanes'
/// tree.
inline float dot(const float* a, const float* b, int n) {
    Lanes sum(0.0f);
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) sum = lane_fma(Lanes::load(a + i), Lanes::load(b + i), sum);
    if (i < n) sum = lane_fma(Lanes::load(a + i, n - i), Lanes::load(b + i, n - i), sum);
    return sum.sum();
}

/// f(i, lanes of x from i) for all of x, stored to y; y may be x.
template <class F>
inline void map_row(const float* x, float* y, int n, F f) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) f(Lanes::load(x + i), i, kLanes).store(y + i);
    if (i < n) f(Lanes::load(x + i, n - i), i, n - i).store(y + i, n - i);
}

}  // namespace
}  // namespace strata::cpu
