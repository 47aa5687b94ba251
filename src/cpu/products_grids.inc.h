// Decoders of the grid types (IQ1, IQ2, IQ3), written once over two operations that each instruction set does its own
// way: looking up grid vectors and negating codes where sign bits are set. AVX-512 keeps a grid as two tables of bytes
// and looks up 64 indices at once with byte permutes; AVX2 loads grid vectors one by one. Neither gathers.

#include "cpu/products_kernels.h"
#include "cpu/products_lanes.h"

namespace strata::cpu {
namespace {

/// A grid of n vectors of `values` (4 or 8) codes.
template <int n, int values>
struct Grid {
#if defined(__AVX512F__)
    alignas(64) uint8_t first[n];   // packed levels of values 0, 1 (of 4) or 0 .. 3 (of 8)
    alignas(64) uint8_t second[n];  // of the others
    alignas(64) uint8_t codes[64];  // of levels; further bits of the index do not matter
#else
    std::conditional_t<values == 8, uint64_t, uint32_t> vectors[n];
#endif

    /// packed: the grid of quant/grids.h; code(level): what stands for a level in panels.
    template <class Code>
    Grid(const std::array<uint16_t, n>& packed, const Code& code) {
        constexpr int kBits = values == 8 ? 2 : 3, kLevels = values == 8 ? 3 : 8;
#if defined(__AVX512F__)
        constexpr int kHalf = kBits * values / 2;
        for (size_t i = 0; i < n; ++i) {
            first[i] = static_cast<uint8_t>(packed[i] & ((1 << kHalf) - 1));
            second[i] = static_cast<uint8_t>(packed[i] >> kHalf);
        }
        for (int i = 0; i < 64; ++i) {
            const int level = i & ((1 << kBits) - 1);
            codes[i] = static_cast<uint8_t>(level < kLevels ? code(level) : 0);
        }
#else
        for (size_t i = 0; i < n; ++i) {
            vectors[i] = 0;
            for (int j = 0; j < values; ++j) {
                const int level = packed[i] >> kBits * j & ((1 << kBits) - 1);
                vectors[i] |= static_cast<decltype(vectors[i] + 0)>(level < kLevels ? code(level) : 0) << 8 * j;
            }
        }
#endif
    }
};

#if defined(__AVX512F__)

/// table[index] of 64 bytes; bits[i] are bit 7 + i of the indices, index has the lower ones.
template <int n>
Ints look_up_bytes(const uint8_t* table, Ints index, const __mmask64* bits) {
    if constexpr (n == 128) {
        return _mm512_permutex2var_epi8(load_ints(table), index, load_ints(table + 64));
    } else {
        constexpr int kBit = n == 256 ? 0 : n == 512 ? 1 : n == 1024 ? 2 : 3;
        return _mm512_mask_blend_epi8(bits[kBit], look_up_bytes<n / 2>(table, index, bits),
                                      look_up_bytes<n / 2>(table + n / 2, index, bits));
    }
}

/// Offsets of bytes 0 .. 3 of both lanes of 64 bits.
inline Ints byte_offsets(int a, int b, int c, int d) {
    const auto word = static_cast<uint64_t>(a | b << 8 | c << 16 | d << 24);
    return _mm512_set1_epi64(static_cast<long long>(word | (word + 0x20202020) << 32));
}

/// Vectors of four indices a lane, index e = byte e of low + 256 * (the low bits of byte e of high): put(quad, codes).
template <int n, int values, class Put>
void grid_quads(const Grid<n, values>& grid, Ints low, Ints high, const Put& put) {
    const __mmask64 bits[4] = {_mm512_movepi8_mask(low), _mm512_test_epi8_mask(high, all_bytes(1)),
                               _mm512_test_epi8_mask(high, all_bytes(2)), _mm512_test_epi8_mask(high, all_bytes(4))};
    const Ints first = look_up_bytes<n>(grid.first, low, bits);
    const Ints second = look_up_bytes<n>(grid.second, low, bits);
    const Ints codes = load_ints(grid.codes);
    repeat<4>([&](auto e) {
        if constexpr (values == 8) {
            const Ints offsets = byte_offsets(8 * e, 8 * e + 2, 8 * e + 4, 8 * e + 6);
            put(constant<2 * e>, _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(offsets, first), codes));
            put(constant<2 * e + 1>, _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(offsets, second), codes));
        } else {
            const Ints offsets = byte_offsets(8 * e, 8 * e + 3, 8 * e, 8 * e + 3);
            const Ints levels = _mm512_mask_multishift_epi64_epi8(_mm512_multishift_epi64_epi8(offsets, first),
                                                                  0xcccccccccccccccc, offsets, second);
            put(constant<e>, _mm512_permutexvar_epi8(levels, codes));
        }
    });
}

/// The codes q + offset of a quad, q negated where the quad's bit of the lane is set.
template <int quad, int offset>
Ints negate(Ints codes, Ints signs) {
    const Ints which = byte_offsets(4 * quad, 4 * quad + 1, 4 * quad + 2, 4 * quad + 3);
    const __mmask64 negative = _mm512_bitshuffle_epi64_mask(signs, which);
    return _mm512_mask_sub_epi8(codes, negative, all_bytes(2 * offset), codes);
}

/// Signs of eight values from fields of seven bits in every byte: the eighth makes their number even.
inline Ints signs_of_fields(Ints fields) {
    constexpr long long kMatrix = 0x010204081020407f;  // bits 0 .. 6 as they are, bit 7 their parity
    return _mm512_gf2p8affine_epi64_epi8(fields, _mm512_set1_epi64(kMatrix), 0);
}

/// The four fields of seven bits at bits 0, 7, 14, 21 of a lane, a byte each (the eighth bits are of no meaning).
inline Ints seven_bit_fields(Ints words) {
    return _mm512_multishift_epi64_epi8(byte_offsets(0, 7, 14, 21), words);
}

#else

template <int n, int values, class Put>
void grid_quads(const Grid<n, values>& grid, Ints low, Ints high, const Put& put) {
    const Ints top = high & all_bytes(n / 256 - 1);
    alignas(32) uint16_t index[2][16];  // of rows 0, 1, 4, 5 and of rows 2, 3, 6, 7, four a row
    store_ints(index[0], _mm256_unpacklo_epi8(low, top));
    store_ints(index[1], _mm256_unpackhi_epi8(low, top));
    const auto at = [&](int row, int e) {
        return grid.vectors + index[row / 2 % 2][8 * (row / 4) + 4 * (row % 2) + e];
    };
    repeat<4>([&](auto e) {
        if constexpr (values == 8) {
            const auto two = [&](int row) {
                const __m128d v = _mm_load_sd(reinterpret_cast<const double*>(at(row, e)));
                return _mm_loadh_pd(v, reinterpret_cast<const double*>(at(row + 1, e)));
            };
            const __m256 a = _mm256_castpd_ps(_mm256_insertf128_pd(_mm256_castpd128_pd256(two(0)), two(4), 1));
            const __m256 b = _mm256_castpd_ps(_mm256_insertf128_pd(_mm256_castpd128_pd256(two(2)), two(6), 1));
            put(constant<2 * e>, _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)));
            put(constant<2 * e + 1>, _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));
        } else {
            put(constant<e>, lanes_from([&](int row) { return *at(row, e); }));
        }
    });
}

template <int quad, int offset>
Ints negate(Ints codes, Ints signs) {
    constexpr char b = quad / 2;
    const __m128i from = _mm_setr_epi8(b, b, b, b, 4 + b, 4 + b, 4 + b, 4 + b, 8 + b, 8 + b, 8 + b, 8 + b, 12 + b,
                                       12 + b, 12 + b, 12 + b);
    const Ints bits = all_words(quad % 2 ? 0x80402010u : 0x08040201u);
    const Ints negative = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(signs, _mm256_broadcastsi128_si256(from)) & bits, bits);
    // 2 * offset - code = code xor (2 * offset - 1), plus 1: no code is 0 or above 2 * offset - 1
    static_assert(offset == 64 || offset == 16);
    return _mm256_sub_epi8(codes ^ (negative & all_bytes(2 * offset - 1)), negative);
}

inline Ints signs_of_fields(Ints fields) {
    fields = fields & all_bytes(0x7f);
    const Ints folded = (fields ^ right<4>(fields)) & all_bytes(15);
    const Ints parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    return fields | look_up(parity, folded);
}

inline Ints seven_bit_fields(Ints words) {
    return (words & all_words(0x7f)) | (right<-1>(words) & all_words(0x7f00)) |
           (right<-2>(words) & all_words(0x7f0000)) | (right<-3>(words) & all_words(0x7f000000));
}

#endif

/// 2 n + 1 as a float.
inline Floats odd_scale(Ints n) {
    return multiply_add(to_floats(n), all_floats(2), all_floats(1));
}

/// Scales 2 n + 1 of both halves of a block, n in the nibbles of a byte.
template <int byte, class Out>
void odd_half_scales(Ints words, int block, Out& out) {
    const Ints pair = byte_of<byte>(words);
    out.half_scale(block, 0, odd_scale(pair & all_words(15)));
    out.half_scale(block, 1, odd_scale(right<4>(pair)));
}

constexpr auto kCodeIq2 = [](int level) { return kLevelsIq2[static_cast<size_t>(level)] + 64; };
constexpr auto kCodeIq3Xxs = [](int level) { return kLevelsIq3Xxs[static_cast<size_t>(level)] + 64; };
constexpr auto kCodeIq3S = [](int level) { return kLevelsIq3S[static_cast<size_t>(level)] + 16; };
constexpr auto kCodeIq1 = [](int level) { return 8 * kLevelsIq1[static_cast<size_t>(level)] + 16; };

template <class Out>
void decode_iq2_xxs(TileRows rows, Out& out) {
    static const Grid<256, 8> grid(kGridIq2Xxs, kCodeIq2);
    const Floats d = multiply(load_half(rows, 0), all_floats(0.125f));
    repeat<4>([&](auto two) {  // blocks 2 two and 2 two + 1: indices, then signs and scale
        Ints words[4];
        load_words(rows, 2 + 16 * two, words);
        repeat<2>([&](auto i) {
            constexpr int kBlock = 2 * two + i;
            const Ints signs = signs_of_fields(seven_bit_fields(words[2 * i + 1]));
            out.scale(kBlock, multiply(d, odd_scale(right<28>(words[2 * i + 1]))));
            grid_quads(grid, words[2 * i], no_ints(),
                       [&](auto quad, Ints codes) { out.codes(kBlock, quad, negate<quad, 64>(codes, signs)); });
        });
    });
}

template <class Out>
void decode_iq2_xs(TileRows rows, Out& out) {
    static const Grid<512, 8> grid(kGridIq2Xs, kCodeIq2);
    const Floats d = multiply(load_half(rows, 0), all_floats(0.125f));
    const Ints scales[2] = {load_word(rows, 66), load_word(rows, 70)};
    constexpr int8_t kLowHigh[16] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
    const Ints low_high = all_parts(kLowHigh);
    repeat<4>([&](auto two) {
        Ints words[4];  // two 16-bit words each: nine bits of index, seven of signs
        load_words(rows, 2 + 16 * two, words);
        repeat<2>([&](auto i) {
            constexpr int kBlock = 2 * two + i;
            const Ints first = look_up(words[2 * i], low_high), second = look_up(words[2 * i + 1], low_high);
            const Ints low = (first & all_words(0xffff)) | right<-16>(second);
            const Ints high = right<16>(first) | (second & all_words(0xffff0000));
            const Ints signs = signs_of_fields(right<1>(high));
            out.scale(kBlock, d);
            odd_half_scales<kBlock % 4>(scales[kBlock / 4], kBlock, out);
            grid_quads(grid, low, high,
                       [&](auto quad, Ints codes) { out.codes(kBlock, quad, negate<quad, 64>(codes, signs)); });
        });
    });
}

template <class Out>
void decode_iq2_s(TileRows rows, Out& out) {
    static const Grid<1024, 8> grid(kGridIq2S, kCodeIq2);
    const Floats d = multiply(load_half(rows, 0), all_floats(0.125f));
    Ints tail[4];  // high bits of indices in words 0 and 1, scales in words 2 and 3
    load_words(rows, 66, tail);
    repeat<2>([&](auto four) {
        Ints low[4], signs[4];
        load_words(rows, 2 + 16 * four, low);
        load_words(rows, 34 + 16 * four, signs);
        repeat<4>([&](auto i) {
            constexpr int kBlock = 4 * four + i;
            const Ints bits = byte_of<i>(tail[four]);  // two for each index
            const Ints nibble_apart = (bits | right<-12>(bits)) & all_words(0x000f000f);
            const Ints high = (nibble_apart | right<-6>(nibble_apart)) & all_words(0x03030303);
            out.scale(kBlock, d);
            odd_half_scales<i>(tail[2 + four], kBlock, out);
            grid_quads(grid, low[i], high,
                       [&](auto quad, Ints codes) { out.codes(kBlock, quad, negate<quad, 64>(codes, signs[i])); });
        });
    });
}

template <class Out>
void decode_iq3_xxs(TileRows rows, Out& out) {
    static const Grid<256, 4> grid(kGridIq3Xxs, kCodeIq3Xxs);
    const Floats d = multiply(load_half(rows, 0), all_floats(0.25f));
    repeat<2>([&](auto four) {
        Ints tail[4];  // signs and scale of a block each
        load_words(rows, 66 + 16 * four, tail);
        repeat<2>([&](auto two) {
            Ints index[4];  // eight indices a block
            load_words(rows, 2 + 32 * four + 16 * two, index);
            repeat<2>([&](auto i) {
                constexpr int kBlock = 4 * four + 2 * two + i;
                const Ints word = tail[2 * two + i];
                const Ints signs = signs_of_fields(seven_bit_fields(word));
                out.scale(kBlock, multiply(d, odd_scale(right<28>(word))));
                repeat<2>([&](auto half) {
                    grid_quads(grid, index[2 * i + half], no_ints(), [&](auto quad, Ints codes) {
                        out.codes(kBlock, 4 * half + quad, negate<4 * half + quad, 64>(codes, signs));
                    });
                });
            });
        });
    });
}

template <class Out>
void decode_iq3_s(TileRows rows, Out& out) {
    static const Grid<512, 4> grid(kGridIq3S, kCodeIq3S);
    const Floats d = load_half(rows, 0);
    const Ints ninth[2] = {load_word(rows, 66), load_word(rows, 70)};
    const Ints scales = load_word(rows, 106);
    repeat<2>([&](auto four) {
        Ints signs[4];
        load_words(rows, 74 + 16 * four, signs);
        repeat<2>([&](auto two) {
            Ints index[4];
            load_words(rows, 2 + 32 * four + 16 * two, index);
            repeat<2>([&](auto i) {
                constexpr int kPlace = 2 * two + i, kBlock = 4 * four + kPlace;
                out.scale(kBlock, multiply(d, odd_scale(right<4 * kBlock>(scales) & all_words(15))));
                repeat<2>([&](auto half) {
                    grid_quads(grid, index[2 * i + half], spread_bits<2 * kPlace + half, 0>(ninth[four]),
                               [&](auto quad, Ints codes) {
                                   out.codes(kBlock, 4 * half + quad,
                                             negate<4 * half + quad, 16>(codes, signs[kPlace]));
                               });
                });
            });
        });
    });
}

/// A block of IQ1: indices, their high bits and the deltas (1 or -1) of its four vectors, a byte each.
template <class Out>
void decode_iq1_block(Ints low, Ints high, Ints deltas, int block, Out& out) {
    static const Grid<2048, 8> grid(kGridIq1, kCodeIq1);
    grid_quads(grid, low, high, [&](auto quad, Ints codes) {
        constexpr int8_t b = quad / 2;
        constexpr int8_t kFrom[16] = {b,     b,     b,     b,     4 + b,  4 + b,  4 + b,  4 + b,
                                      8 + b, 8 + b, 8 + b, 8 + b, 12 + b, 12 + b, 12 + b, 12 + b};
        out.codes(block, quad, add_bytes(codes, look_up(deltas, all_parts(kFrom))));
    });
}

template <class Out>
void decode_iq1_s(TileRows rows, Out& out) {
    const Floats d = multiply(load_half(rows, 0), all_floats(0.125f));
    Ints heads[4];  // two blocks each: 3 high bits of four indices, 3 of the scale, the sign of delta
    load_words(rows, 34, heads);
    repeat<2>([&](auto four) {
        Ints low[4];
        load_words(rows, 2 + 16 * four, low);
        repeat<4>([&](auto i) {
            constexpr int kBlock = 4 * four + i;
            const Ints head = right<16 * (kBlock % 2)>(heads[kBlock / 2]);
            const Ints high = (head & all_words(7)) | (right<-5>(head) & all_words(0x700)) |
                              (right<-10>(head) & all_words(0x70000)) | (right<-15>(head) & all_words(0x7000000));
            const Ints minus = subtract(no_ints(), right<15>(head) & all_words(1));
            out.scale(kBlock, multiply(d, odd_scale(right<12>(head) & all_words(7))));
            decode_iq1_block(low[i], high, minus | all_bytes(1), kBlock, out);
        });
    });
}

template <class Out>
void decode_iq1_m(TileRows rows, Out& out) {
    const Ints words[2] = {load_word(rows, 48), load_word(rows, 52)};  // v0, v1; v2, v3
    const Ints half = (right<12>(words[0]) & all_words(0xf)) | (right<24>(words[0]) & all_words(0xf0)) |
                      (right<4>(words[1]) & all_words(0xf00)) | (right<16>(words[1]) & all_words(0xf000));
    const Floats d = multiply(low_halves(half), all_floats(0.125f));
    Ints heads[4];  // a nibble for each vector: 3 high bits of its index, the sign of its delta
    load_words(rows, 32, heads);
    repeat<2>([&](auto four) {
        Ints low[4];
        load_words(rows, 16 * four, low);
        repeat<4>([&](auto i) {
            constexpr int kBlock = 4 * four + i;
            const Ints head = right<16 * (kBlock % 2)>(heads[kBlock / 2]) & all_words(0xffff);
            const Ints bytes_apart = (head | right<-8>(head)) & all_words(0x00ff00ff);
            const Ints nibble_bytes = (bytes_apart | right<-4>(bytes_apart)) & all_bytes(15);
            const Ints minus = right<2>(nibble_bytes & all_bytes(8));  // 2 where delta is -1
            out.scale(kBlock, d);
            repeat<2>([&](auto part) {
                constexpr int kGroup = 2 * kBlock + part, kShift = 16 * (kGroup / 4 % 2) + 3 * (kGroup % 4);
                out.half_scale(kBlock, part, odd_scale(right<kShift>(words[kGroup / 8]) & all_words(7)));
            });
            decode_iq1_block(low[i], nibble_bytes & all_bytes(7), subtract_bytes(all_bytes(1), minus), kBlock, out);
        });
    });
}

}  // namespace
}  // namespace strata::cpu
