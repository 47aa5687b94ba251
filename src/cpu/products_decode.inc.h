// Decoders: a segment of a tile from file blocks to a panel, written once for all instruction sets. Fields of 16 or 8
// rows are transposed as they are, still packed; unpacking then works on all rows at once, and scales come out one row
// a lane. Layouts: quant/canonical.cpp says the same for one block at a time. Names of packing orders:
// docs/quantising.md.

#include "cpu/products_kernels.h"
#include "cpu/products_lanes.h"

namespace strata::cpu {
namespace {

// Decoders hand what they find to an `out`, block by block: codes(block, quad, four codes of every row), the quads of a
// half after its first one, and the scales of the block's TermKind. They are unrolled, so that an out may keep its
// blocks in registers.

/// An out that fills kVector rows of a panel.
struct PanelRows {
    Panel& panel;
    int row;

    void codes(int block, int quad, Ints v) const { store_ints(panel.codes[8 * block + quad][row], v); }
    void scale(int block, Floats v) const { store_floats(panel.scale[block] + row, v); }
    void minimum(int block, Floats v) const { store_floats(panel.minimum[block] + row, v); }
    void half_scale(int block, int half, Floats v) const { store_floats(panel.half_scale[block][half] + row, v); }
    void half_minimum(int block, int half, Floats v) const { store_floats(panel.half_minimum[block][half] + row, v); }
};

/// How decoders put codes of a type: CodeForm of products_multiply.inc.h.
template <Type type>
constexpr CodeForm code_form() {
    constexpr bool kWide = kVector == 16;  // any unsigned byte will do
    constexpr CodeForm kAnyByte = kWide ? CodeForm{128, 255} : CodeForm{0, 128};
    switch (type) {
        case Type::q4_0: return {8, 15};
        case Type::q5_0: return {16, 31};
        case Type::q4_1:
        case Type::q4_k: return {0, 15};
        case Type::q5_1:
        case Type::q5_k: return {0, 31};
        case Type::q2_k: return {0, 3};
        case Type::q3_k: return {4, 7};
        case Type::q6_k: return {32, 63};
        case Type::mxfp4: return {12, 24};
        case Type::iq1_s:
        case Type::iq1_m: return {16, 25};
        case Type::iq2_xxs:
        case Type::iq2_xs:
        case Type::iq2_s: return {64, 107};
        case Type::iq3_xxs: return {64, 126};
        case Type::iq3_s: return {16, 31};
        default: return kAnyByte;
    }
}

/// Blocks of 256 values; false: of 32.
constexpr bool super_block(Type type) {
    switch (type) {
        case Type::q4_0:
        case Type::q4_1:
        case Type::q5_0:
        case Type::q5_1:
        case Type::q8_0:
        case Type::iq4_nl:
        case Type::mxfp4: return false;
        default: return true;
    }
}

/// Bytes of a block in a file.
constexpr int block_bytes(Type type) {
    switch (type) {
        case Type::mxfp4: return 17;
        case Type::q4_0:
        case Type::iq4_nl: return 18;
        case Type::q4_1: return 20;
        case Type::q5_0: return 22;
        case Type::q5_1: return 24;
        case Type::q8_0: return 34;
        case Type::q2_k: return 84;
        case Type::q3_k: return 110;
        case Type::q4_k: return 144;
        case Type::q5_k: return 176;
        case Type::q6_k: return 210;
        case Type::iq1_s: return 50;
        case Type::iq1_m: return 56;
        case Type::iq2_xxs: return 66;
        case Type::iq2_xs: return 74;
        case Type::iq2_s: return 82;
        case Type::iq3_xxs: return 98;
        case Type::iq3_s: return 110;
        case Type::iq4_xs: return 136;
        default: return 0;
    }
}

inline Ints nibbles(Ints v) {
    return v & all_bytes(15);
}
inline Ints high_nibbles(Ints v) {
    return right<4>(v) & all_bytes(15);
}

template <int i>
inline constexpr std::integral_constant<int, i> constant{};

/// f(constant 0) .. f(constant n - 1).
template <int n, class F>
inline void repeat(const F& f) {
    [&]<int... i>(std::integer_sequence<int, i...>) {
        (f(constant<i>), ...);
    }
    (std::make_integer_sequence<int, n>{});
}

// ---- blocks of 32

/// 32 nibbles in 16 bytes, low ones first (SPLIT32), each put through map.
template <class Out, class Map>
void split32(const Ints (&words)[4], int block, Out& out, const Map& map) {
    repeat<4>([&](auto i) { out.codes(block, i, map(nibbles(words[i]))); });
    repeat<4>([&](auto i) { out.codes(block, 4 + i, map(high_nibbles(words[i]))); });
}
template <class Out, class Map>
void split32(TileRows rows, int at, int block, Out& out, const Map& map) {
    Ints words[4];
    load_words(rows, at, words);
    split32(words, block, out, map);
}

inline Ints same(Ints v) {
    return v;
}

/// mxfp4_scale of the exponent in every lane.
inline Floats mxfp4_scales(Ints exponent) {
    const Ints normal = right<-23>(subtract(exponent, all_words(1)));
    const Ints subnormal = right<-21>(subtract(smaller(exponent, all_words(1)), all_words(~0u)));
    return floats_of_bits(larger(normal, subnormal));
}

/// Table of 16 values, as codes of the type.
template <Type type>
Ints code_table(const std::array<int8_t, 16>& values) {
    int8_t codes[16];
    for (int i = 0; i < 16; ++i)
        codes[i] = static_cast<int8_t>(values[static_cast<size_t>(i)] + code_form<type>().offset);
    return all_parts(codes);
}

template <Type type, class Out>
void decode_block32(TileRows rows, int at, int block, Out& out) {
    if constexpr (type == Type::q8_0) {
        out.scale(block, load_half(rows, at));
        Ints words[8];
        load_words(rows, at + 2, words);
        repeat<8>([&](auto quad) { out.codes(block, quad, words[quad] ^ all_bytes(code_form<type>().offset)); });
    } else if constexpr (type == Type::q4_0) {
        out.scale(block, load_half(rows, at));
        split32(rows, at + 2, block, out, same);
    } else if constexpr (type == Type::iq4_nl) {
        const Ints table = code_table<type>(kValuesNl);
        out.scale(block, load_half(rows, at));
        split32(rows, at + 2, block, out, [&](Ints v) { return look_up(table, v); });
    } else if constexpr (type == Type::mxfp4) {
        const Ints table = code_table<type>(kValuesE2m1);
        out.scale(block, mxfp4_scales(load_byte(rows, at)));
        split32(rows, at + 1, block, out, [&](Ints v) { return look_up(table, v); });
    } else if constexpr (type == Type::q4_1) {
        const Ints head = load_word(rows, at);  // d, m
        out.scale(block, low_halves(head));
        out.minimum(block, subtract(all_floats(0), low_halves(right<16>(head))));
        split32(rows, at + 4, block, out, same);
    } else {  // q5_0, q5_1
        constexpr int kHead = type == Type::q5_0 ? 2 : 4;
        if constexpr (type == Type::q5_0) {
            out.scale(block, load_half(rows, at));
        } else {
            const Ints head = load_word(rows, at);
            out.scale(block, low_halves(head));
            out.minimum(block, subtract(all_floats(0), low_halves(right<16>(head))));
        }
        const Ints fifth = load_word(rows, at + kHead);
        Ints words[4];
        load_words(rows, at + kHead + 4, words);
        repeat<4>([&](auto i) { out.codes(block, i, nibbles(words[i]) | spread_bits<i, 4>(fifth)); });
        repeat<4>([&](auto i) { out.codes(block, 4 + i, high_nibbles(words[i]) | spread_bits<4 + i, 4>(fifth)); });
    }
}

/// Two blocks of Q8_0, 34 bytes each: the halves come out of the words around them.
template <class Out, class AfterBlock>
void decode_q8_0_pair(TileRows rows, int block, Out& out, const AfterBlock& after_block) {
    const int at = 34 * block;
    const Ints offset = all_bytes(code_form<Type::q8_0>().offset);
    Ints first[8], middle[4], second[8];
    load_words(rows, at, first);
    load_words(rows, at + 20, middle);  // of which the fourth is new: the end of the first block, d of the second
    load_words(rows, at + 36, second);
    out.scale(block, low_halves(first[0]));
    repeat<8>([&](auto quad) {
        out.codes(block, quad, funnel<16>(first[quad], quad < 7 ? first[(quad + 1) % 8] : middle[3]) ^ offset);
    });
    after_block(block);
    out.scale(block + 1, low_halves(right<16>(middle[3])));
    repeat<8>([&](auto quad) { out.codes(block + 1, quad, second[quad] ^ offset); });
    after_block(block + 1);
}

/// Eight blocks of MXFP4, 17 bytes each: scales and codes come out of the same words, as single bytes cost more to load
/// than all the rest. after_block(b) where a block is done.
template <class Out, class AfterBlock>
void decode_mxfp4_segment(TileRows rows, Out& out, const AfterBlock& after_block) {
    const Ints table = code_table<Type::mxfp4>(kValuesE2m1);
    repeat<2>([&](auto half) {  // 68 bytes hold four blocks
        constexpr int kHalf = half, kFirst = 68 * kHalf;
        Ints first[8], second[8], last[4];
        load_words(rows, kFirst, first);
        load_words(rows, kFirst + 32, second);
        load_words(rows, kFirst + 52, last);  // of which the fourth is new
        const auto word = [&](int i) { return i < 8 ? first[i] : i < 16 ? second[i - 8] : last[3]; };
        repeat<4>([&](auto b) {
            constexpr int kBlock = 4 * kHalf + b, kWord = 4 * b, kBits = 8 * b;
            out.scale(kBlock, mxfp4_scales(byte_of<b>(word(kWord))));
            Ints words[4];
            repeat<4>([&](auto i) { words[i] = funnel<kBits + 8>(word(kWord + i), word(kWord + i + 1)); });
            split32(words, kBlock, out, [&](Ints v) { return look_up(table, v); });
            after_block(kBlock);
        });
    });
}

// ---- super-blocks of 256

/// d, dmin and the 6-bit scales and minima of Q4_K and Q5_K.
template <class Out>
void decode_k_scales(TileRows rows, Out& out) {
    Ints head[4];  // d and dmin; scales; minima; the rest
    load_words(rows, 0, head);
    const Floats d = low_halves(head[0]), dmin = low_halves(right<16>(head[0]));
    const Ints s[2] = {head[1] & all_bytes(63), nibbles(head[3]) | (right<2>(head[1]) & all_bytes(0x30))};
    const Ints mu[2] = {head[2] & all_bytes(63), high_nibbles(head[3]) | (right<2>(head[2]) & all_bytes(0x30))};
    repeat<8>([&](auto b) {
        out.scale(b, multiply(d, to_floats(byte_of<b % 4>(s[b / 4]))));
        out.minimum(b, multiply(dmin, to_floats(byte_of<b % 4>(mu[b / 4]))));
    });
}

template <class Out>
void decode_q4_k(TileRows rows, Out& out) {
    decode_k_scales(rows, out);
    repeat<4>([&](auto run) {  // RUN64: 32 bytes hold an even block low, the next one high
        Ints words[8];
        load_words(rows, 16 + 32 * run, words);
        repeat<8>([&](auto quad) {
            out.codes(2 * run, quad, nibbles(words[quad]));
            out.codes(2 * run + 1, quad, high_nibbles(words[quad]));
        });
    });
}

/// Bit `bit` of every byte, as the bit `place`.
template <int bit, int place>
Ints move_bit(Ints v) {
    return right<bit - place>(v) & all_bytes(1 << place);
}

template <class Out>
void decode_q5_k(TileRows rows, Out& out) {
    decode_k_scales(rows, out);
    Ints fifth[8];  // BITS256: bit b of a byte belongs to block b
    load_words(rows, 16, fifth);
    repeat<4>([&](auto run) {
        Ints words[8];
        load_words(rows, 48 + 32 * run, words);
        repeat<8>([&](auto quad) {
            out.codes(2 * run, quad, nibbles(words[quad]) | move_bit<2 * run, 4>(fifth[quad]));
            out.codes(2 * run + 1, quad, high_nibbles(words[quad]) | move_bit<2 * run + 1, 4>(fifth[quad]));
        });
    });
}

template <class Out>
void decode_q6_k(TileRows rows, Out& out) {
    Ints s[4];
    load_words(rows, 192, s);
    const Floats d = load_half(rows, 208);
    repeat<8>([&](auto b) {
        out.scale(b, d);
        repeat<2>([&](auto half) { out.half_scale(b, half, to_floats(signed_byte<(2 * b + half) % 4>(s[b / 2]))); });
    });
    repeat<2>([&](auto run) {  // 128 values: 64 bytes of nibbles (RUN128N), 32 of bit pairs (RUN128C)
        Ints first[8], second[8], two[8];
        load_words(rows, 64 * run, first);
        load_words(rows, 64 * run + 32, second);
        load_words(rows, 128 + 32 * run, two);
        repeat<8>([&](auto quad) {
            const Ints high = all_bytes(0x30);
            out.codes(4 * run, quad, nibbles(first[quad]) | (right<-4>(two[quad]) & high));
            out.codes(4 * run + 1, quad, nibbles(second[quad]) | (right<-2>(two[quad]) & high));
            out.codes(4 * run + 2, quad, high_nibbles(first[quad]) | (two[quad] & high));
            out.codes(4 * run + 3, quad, high_nibbles(second[quad]) | (right<2>(two[quad]) & high));
        });
    });
}

template <class Out>
void decode_q2_k(TileRows rows, Out& out) {
    Ints pairs[4];
    load_words(rows, 0, pairs);
    const Ints head = load_word(rows, 80);
    const Floats d = low_halves(head), dmin = low_halves(right<16>(head));
    repeat<8>([&](auto b) {
        out.scale(b, d);
        out.minimum(b, dmin);
        repeat<2>([&](auto half) {
            const Ints pair = byte_of<(2 * b + half) % 4>(pairs[b / 2]);
            out.half_scale(b, half, to_floats(pair & all_words(15)));
            out.half_minimum(b, half, to_floats(right<4>(pair)));
        });
    });
    repeat<2>([&](auto run) {  // RUN128C
        Ints words[8];
        load_words(rows, 16 + 32 * run, words);
        repeat<8>([&](auto quad) {
            repeat<4>([&](auto p) { out.codes(4 * run + p, quad, right<2 * p>(words[quad]) & all_bytes(3)); });
        });
    });
}

template <class Out>
void decode_q3_k(TileRows rows, Out& out) {
    Ints a[4];  // the twelve bytes of scales in words 1 .. 3
    load_words(rows, 92, a);
    const Floats d = load_half(rows, 108);
    const Ints high = all_bytes(0x30);
    const Ints s[4] = {nibbles(a[1]) | (right<-4>(a[3]) & high), nibbles(a[2]) | (right<-2>(a[3]) & high),
                       high_nibbles(a[1]) | (a[3] & high), high_nibbles(a[2]) | (right<2>(a[3]) & high)};
    repeat<8>([&](auto b) {
        out.scale(b, d);
        repeat<2>([&](auto half) {
            out.half_scale(b, half, to_floats(subtract(byte_of<(2 * b + half) % 4>(s[b / 2]), all_words(32))));
        });
    });
    Ints third[8];  // BITS256
    load_words(rows, 0, third);
    repeat<2>([&](auto run) {
        Ints words[8];
        load_words(rows, 32 + 32 * run, words);
        repeat<8>([&](auto quad) {
            repeat<4>([&](auto p) {
                out.codes(4 * run + p, quad,
                          (right<2 * p>(words[quad]) & all_bytes(3)) | move_bit<4 * run + p, 2>(third[quad]));
            });
        });
    });
}

template <class Out>
void decode_iq4_xs(TileRows rows, Out& out) {
    const Ints table = code_table<Type::iq4_xs>(kValuesNl);
    const Ints head = load_word(rows, 0), low = load_word(rows, 4);  // d, two high bits of each scale; four low bits
    const Floats d = low_halves(head);
    repeat<8>([&](auto b) {
        const Ints s = (right<4 * b>(low) & all_words(15)) | (right<16 + 2 * b - 4>(head) & all_words(0x30));
        out.scale(b, multiply(d, to_floats(subtract(s, all_words(32)))));
    });
    repeat<8>([&](auto b) { split32(rows, 8 + 16 * b, b, out, [&](Ints v) { return look_up(table, v); }); });
}

}  // namespace
}  // namespace strata::cpu
