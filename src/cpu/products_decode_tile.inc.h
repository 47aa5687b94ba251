// Whole tiles: a type's decoder over all rows, to a panel or to floats.

#include "cpu/products_kernels.h"
#include "cpu/products_lanes.h"

namespace strata::cpu {
namespace {

// ---- a tile

/// after_block(b) is called where a block of a type with blocks of 32 is done.
template <Type type, class Out, class AfterBlock>
void decode_rows(TileRows rows, int blocks, Out& out, const AfterBlock& after_block) {
    if constexpr (type == Type::q2_k) {
        decode_q2_k(rows, out);
    } else if constexpr (type == Type::q3_k) {
        decode_q3_k(rows, out);
    } else if constexpr (type == Type::q4_k) {
        decode_q4_k(rows, out);
    } else if constexpr (type == Type::q5_k) {
        decode_q5_k(rows, out);
    } else if constexpr (type == Type::q6_k) {
        decode_q6_k(rows, out);
    } else if constexpr (type == Type::iq4_xs) {
        decode_iq4_xs(rows, out);
    } else if constexpr (type == Type::iq1_s) {
        decode_iq1_s(rows, out);
    } else if constexpr (type == Type::iq1_m) {
        decode_iq1_m(rows, out);
    } else if constexpr (type == Type::iq2_xxs) {
        decode_iq2_xxs(rows, out);
    } else if constexpr (type == Type::iq2_xs) {
        decode_iq2_xs(rows, out);
    } else if constexpr (type == Type::iq2_s) {
        decode_iq2_s(rows, out);
    } else if constexpr (type == Type::iq3_xxs) {
        decode_iq3_xxs(rows, out);
    } else if constexpr (type == Type::iq3_s) {
        decode_iq3_s(rows, out);
    } else {
        if constexpr (type == Type::mxfp4) {
            if (blocks == kSegmentBlocks) return decode_mxfp4_segment(rows, out, after_block);
        }
        int b = 0;
        if constexpr (type == Type::q8_0)
            for (; b + 1 < blocks; b += 2) decode_q8_0_pair(rows, b, out, after_block);
        for (; b < blocks; ++b) {
            decode_block32<type>(rows, block_bytes(type) * b, b, out);
            after_block(b);
        }
    }
}

template <Type type>
[[gnu::flatten]] void decode_tile(TileRows rows, int blocks, Panel& panel) {
    for (int row = 0; row < kTileRows; row += kVector) {
        PanelRows out{panel, row};
        decode_rows<type>(rows.from(row), blocks, out, [](int) {});
    }
}

// ---- times one column

/// An out that multiplies codes by one column as they come, without a panel: the blocks of a segment (or one, of a type
/// with blocks of 32) have their sums in registers.
template <TermKind kind, CodeForm form, int kBlocks, int kBytes>
struct ColumnRows {
    static constexpr bool kHalves = kind == TermKind::halves || kind == TermKind::halves_minimum;
    static constexpr int kParts = kHalves ? 2 : 1;

    const int8_t* column;
    const float* scales;
    const int16_t* half_sums;
    const std::byte* ahead;
    Floats sum = all_floats(0);
    CodeSums<form.most> products[kBlocks][kParts];
    int adds[kBlocks][kParts];
    Floats block_scale[kBlocks], block_minimum[kBlocks], block_half_scale[kBlocks][2], block_half_minimum[kBlocks][2];

    static int place(int block) { return kBlocks == 1 ? 0 : block; }

    void codes(int block, int quad, Ints v) {
        const int b = place(block), part = kHalves ? quad / 4 : 0;
        auto& its = products[b][part];
        if (quad % (8 / kParts) == 0) {
            const uint32_t offsets = !kHalves    ? factors(-form.offset, -form.offset)
                                     : part == 0 ? factors(-form.offset, 0)
                                                 : factors(0, -form.offset);
            its.start(form.offset == 0 ? no_ints()
                                       : multiply_pairs(column_word(half_sums + 2 * block), all_words(offsets)));
            adds[b][part] = 0;
        }
        v = ask_ahead(block, quad, v);
        its.add(CodeSums<form.most>::weights(v), column_word(column + 32 * block + 4 * quad));
        if (++adds[b][part] % CodeSums<form.most>::kDepth == 0 || adds[b][part] == 8 / kParts) its.settle();
    }
    /// Asks for the lines of `ahead` that stand for these codes, just before the codes are used.
    Ints ask_ahead(int block, int quad, Ints v) const {
        constexpr int kCalls = 8 * kBlocks, kLines = (kVector * kBytes + 63) / 64;
        const int call = 8 * place(block) + quad;
        const std::byte* from = kBlocks == 1 ? ahead + block * kVector * kBytes : ahead;
        for (int line = call * kLines / kCalls; line < (call + 1) * kLines / kCalls; ++line)
            v = prefetch_before(v, from + 64 * line);
        return v;
    }
    void scale(int block, Floats v) { block_scale[place(block)] = v; }
    void minimum(int block, Floats v) { block_minimum[place(block)] = v; }
    void half_scale(int block, int half, Floats v) { block_half_scale[place(block)][half] = v; }
    void half_minimum(int block, int half, Floats v) { block_half_minimum[place(block)][half] = v; }

    /// Takes the block into the sum; in ascending order.
    void finish(int block) {
        const int b = place(block);
        Floats t;
        if constexpr (!kHalves)
            t = multiply(block_scale[b], to_floats(products[b][0].sums));
        else
            t = multiply(block_scale[b],
                         multiply_add(block_half_scale[b][1], to_floats(products[b][1].sums),
                                      multiply(block_half_scale[b][0], to_floats(products[b][0].sums))));
        const auto column_sum = [&](uint32_t parts) {
            return to_floats(multiply_pairs(column_word(half_sums + 2 * block), all_words(parts)));
        };
        if constexpr (kind == TermKind::minimum) t = subtract_product(t, block_minimum[b], column_sum(factors(1, 1)));
        if constexpr (kind == TermKind::halves_minimum) {
            const Floats m = multiply_add(block_half_minimum[b][1], column_sum(factors(0, 1)),
                                          multiply(block_half_minimum[b][0], column_sum(factors(1, 0))));
            t = subtract_product(t, block_minimum[b], m);
        }
        sum = multiply_add(all_floats(scales[block]), t, sum);
    }
};

template <Type type>
[[gnu::flatten]] void multiply_tile_once(TileRows rows, int blocks, const int8_t* codes, const float* scales,
                                         const int16_t* half_sums, const std::byte* ahead, bool first, float* y) {
    constexpr bool kSuper = super_block(type);
    constexpr int kBytes = block_bytes(type);
    for (int row = 0; row < kTileRows; row += kVector) {
        ColumnRows<term_kind(type), code_form<type>(), kSuper ? 8 : 1, kBytes> out{codes, scales, half_sums, ahead};
        ahead += kVector * kBytes * (kSuper ? 1 : blocks);
        decode_rows<type>(rows.from(row), blocks, out, [&](int b) { out.finish(b); });
        if constexpr (kSuper) repeat<8>([&](auto b) { out.finish(b); });
        store_floats(y + row, first ? out.sum : add(load_floats(y + row), out.sum));
    }
}

// ---- to floats

/// A decoded panel as floats: quant/dequantise.h, value for value.
template <TermKind kind, CodeForm form>
void panel_to_floats(const Panel& panel, int blocks, float (*weights)[kTileRows]) {
    constexpr bool kHalves = kind == TermKind::halves || kind == TermKind::halves_minimum;
    constexpr bool kMinimum = kind == TermKind::minimum || kind == TermKind::halves_minimum;
    for (int b = 0; b < blocks; ++b)
        for (int row = 0; row < kTileRows; row += kVector)
            for (int half = 0; half < 2; ++half) {
                Floats scale = load_floats(panel.scale[b] + row);
                if constexpr (kHalves) scale = multiply(scale, load_floats(panel.half_scale[b][half] + row));
                Floats minimum = all_floats(0);
                if constexpr (kMinimum) minimum = load_floats(panel.minimum[b] + row);
                if constexpr (kind == TermKind::halves_minimum)
                    minimum = multiply(minimum, load_floats(panel.half_minimum[b][half] + row));
                for (int quad = 8 * b + 4 * half; quad < 8 * b + 4 * half + 4; ++quad) {
                    Ints codes = load_ints(panel.codes[quad][row]);
                    repeat<4>([&](auto i) {
                        Ints code;
                        if constexpr (form.most == 128)
                            code = signed_byte<i>(codes);
                        else
                            code = subtract(byte_of<i>(codes), all_words(form.offset));
                        Floats value = multiply(scale, to_floats(code));
                        if constexpr (kMinimum) value = subtract(value, minimum);
                        store_floats(weights[4 * quad + i] + row, value);
                    });
                }
            }
}

template <Type type>
void decode_tile_float(TileRows rows, int inputs, float (*weights)[kTileRows]) {
    Panel codes;
    decode_tile<type>(rows, inputs / 32, codes);
    panel_to_floats<term_kind(type), code_form<type>()>(codes, inputs / 32, weights);
}

/// F32, F16 and BF16; the last inputs that do not fill 16 bytes one by one.
template <Type type>
void decode_tile_plain(TileRows rows, int inputs, float (*weights)[kTileRows]) {
    constexpr int kBytes = type == Type::f32 ? 4 : 2, kStep = 16 / kBytes;
    const int whole = inputs / kStep * kStep;
    for (int row = 0; row < kTileRows; row += kVector)
        for (int i = 0; i < whole; i += kStep) {
            Ints words[4];
            load_words(rows.from(row), kBytes * i, words);
            for (int w = 0; w < 4; ++w) {
                float(*to)[kTileRows] = weights + i + w * 4 / kBytes;
                if constexpr (type == Type::f32) {
                    store_floats(to[0] + row, floats_of_bits(words[w]));
                } else if constexpr (type == Type::f16) {
                    store_floats(to[0] + row, low_halves(words[w]));
                    store_floats(to[1] + row, low_halves(right<16>(words[w])));
                } else {
                    store_floats(to[0] + row, floats_of_bits(right<-16>(words[w])));
                    store_floats(to[1] + row, floats_of_bits(words[w] & all_words(0xffff0000)));
                }
            }
        }
    for (int i = whole; i < inputs; ++i)
        for (int row = 0; row < kTileRows; ++row) {
            const std::byte* p = rows[row] + kBytes * i;
            if constexpr (type == Type::f32)
                weights[i][row] = float_from_bits(read32(p));
            else if constexpr (type == Type::f16)
                weights[i][row] = float_from_f16(static_cast<uint16_t>(read16(p)));
            else
                weights[i][row] = float_from_bf16(static_cast<uint16_t>(read16(p)));
        }
}

}  // namespace
}  // namespace strata::cpu
