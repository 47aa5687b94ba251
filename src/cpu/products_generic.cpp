#include "cpu/products_generic.h"

#include <utility>

#include "quant/canonical.h"
#include "quant/dequantise.h"

namespace strata::cpu {
namespace {

void put_block(const CanonicalBlock& w, TermKind kind, bool two_scales, int offset, int block, int row, Panel& panel) {
    for (int i = 0; i < 32; ++i) panel.codes[8 * block + i / 4][row][i % 4] = static_cast<uint8_t>(w.q[i] + offset);
    if (kind == TermKind::plain || kind == TermKind::minimum) {
        panel.scale[block][row] = w.d[0] * static_cast<float>(w.s[0]);
        panel.minimum[block][row] = w.e * static_cast<float>(w.mu[0]);
        return;
    }
    panel.scale[block][row] = two_scales ? 1 : w.d[0];
    panel.minimum[block][row] = w.e;
    for (int half = 0; half < 2; ++half) {
        panel.half_scale[block][half][row] = two_scales ? w.d[half] : static_cast<float>(w.s[half]);
        panel.half_minimum[block][half][row] = static_cast<float>(w.mu[half]);
    }
}

template <Type type, int offset>
void decode(TileRows rows, int blocks, Panel& panel) {
    static const BlockDecoder decode_block = block_decoder(type);
    static const TypeInfo& info = type_info(type);
    const int step = static_cast<int>(info.block) / 32;
    for (int row = 0; row < kTileRows; ++row) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(rows[row]);
        CanonicalBlock weights[kMaxCanonicalBlocks];
        for (int first = 0; first < blocks; first += step, bytes += info.bytes) {
            decode_block(bytes, weights);
            for (int i = 0; i < step; ++i)
                put_block(weights[i], term_kind(type), type == Type::nvfp4, offset, first + i, row, panel);
        }
    }
}

template <Type type>
void decode_float(TileRows rows, int inputs, float (*weights)[kTileRows]) {
    for (int row = 0; row < kTileRows; ++row) {
        float values[kSegmentInputs];
        dequantise_row(type, rows[row], inputs, values);
        for (int i = 0; i < inputs; ++i) weights[i][row] = values[i];
    }
}

struct Functions {
    DecodeFunction decode[2] = {};
    DecodeFloatFunction decode_float = nullptr;
};

template <int... code>
constexpr std::array<Functions, kTypes> functions(std::integer_sequence<int, code...>) {
    return {Functions{{decode<static_cast<Type>(code), 0>, decode<static_cast<Type>(code), 128>},
                      decode_float<static_cast<Type>(code)>}...};
}

constexpr std::array<Functions, kTypes> kFunctions = functions(std::make_integer_sequence<int, kTypes>{});

}  // namespace

DecodeFunction generic_decode(Type type, int offset) {
    if (!block_decoder(type)) return nullptr;
    return kFunctions[static_cast<size_t>(type)].decode[offset != 0];
}

DecodeFloatFunction generic_decode_float(Type type) {
    return kFunctions[static_cast<size_t>(type)].decode_float;
}

}  // namespace strata::cpu
