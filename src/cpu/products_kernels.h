// The seam between products and instruction sets: what is computed per tile of weights, once for scalar code, AVX2 and
// AVX-512. docs/numerics.md defines the products; every table below gives the bits of quant/dot.h.
//
// The idea. A tile is 32 rows of a matrix. A segment of it (256 inputs) is decoded into a panel: small integers, rows
// side by side, four inputs of a row together, so that one vector register holds four inputs of 8 or 16 rows and one
// instruction multiplies them by four inputs of a token. Lanes are rows: a row's float sums never leave their lane,
// which is the canonical order. One token or five hundred, every product is "decode a segment, multiply it by columns".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/simd.h"
#include "device/device.h"
#include "quant/types.h"

namespace strata::cpu {

inline constexpr int kTileRows = 32;
inline constexpr int kSegmentInputs = 256;
inline constexpr int kSegmentBlocks = 8;
inline constexpr int kGroupColumns = 4;  // columns of a multiply call at most
inline constexpr int kTypes = 43;        // type codes

/// How a type's canonical form w = d * s * q - e * mu enters a block's term t (docs/numerics.md):
enum class TermKind {
    plain,           // scale = d * s:                     t = scale * P
    minimum,         // and minimum = e * mu:              t = fma(-minimum, T, t)
    halves,          // half_scale = s of 16, scale = d:   t = scale * fma(half_scale[1], P1, half_scale[0] * P0)
    halves_minimum,  // and half_minimum = mu, minimum = e: t = fma(-minimum, fma(half_minimum[1], T1, half_minimum[0] *
                     // T0), t)
};

constexpr TermKind term_kind(Type type) {
    switch (type) {
        case Type::q4_1:
        case Type::q5_1:
        case Type::q4_k:
        case Type::q5_k: return TermKind::minimum;
        case Type::q3_k:
        case Type::q6_k:
        case Type::iq2_xs:
        case Type::iq2_s:
        case Type::iq1_m:
        case Type::nvfp4: return TermKind::halves;  // NVFP4: half_scale = d of 16, scale = 1
        case Type::q2_k: return TermKind::halves_minimum;
        default: return TermKind::plain;
    }
}

/// A decoded segment of a tile of quantised weights. Which of the float fields are in use: TermKind.
struct alignas(64) Panel {
    uint8_t codes[kSegmentInputs / 4][kTileRows][4];  // q, or q plus the offset of the table's own multiply functions
    float scale[kSegmentBlocks][kTileRows];
    float minimum[kSegmentBlocks][kTileRows];
    float half_scale[kSegmentBlocks][2][kTileRows];
    float half_minimum[kSegmentBlocks][2][kTileRows];
};

/// A segment of a tile as floats, an input's rows side by side.
struct alignas(64) FloatPanel {
    float weights[kSegmentInputs][kTileRows];
};

/// The 32 rows of a tile from the segment on: row r at data + r * stride. All of them may be read.
struct TileRows {
    const std::byte* data;
    int64_t stride;

    const std::byte* operator[](int row) const { return data + row * stride; }
    TileRows from(int row) const { return {data + row * stride, stride}; }
};

/// Decodes `blocks` blocks of 32 inputs of every row: 8, or fewer in a row's last segment.
using DecodeFunction = void (*)(TileRows rows, int blocks, Panel& panel);

/// Multiplies a panel by N columns (N = the function's place in its table plus one) and adds the segment's sum to
/// theirs: y[c][row] = first ? sum : y[c][row] + sum. Columns lie interleaved: codes [inputs / 4][N][4], scales [inputs
/// / 32][N], half_sums [inputs / 32][N][2].
using MultiplyFunction = void (*)(const Panel& panel, int blocks, const int8_t* codes, const float* scales,
                                  const int16_t* half_sums, bool first, float* y);

/// The product of a segment and one column without a panel; codes, scales and half_sums as in QuantisedRows. While it
/// works it asks for as many bytes at `ahead` as it reads, evenly; any address will do.
using MultiplyOnceFunction = void (*)(TileRows rows, int blocks, const int8_t* codes, const float* scales,
                                      const int16_t* half_sums, const std::byte* ahead, bool first, float* y);

/// Writes weights[input][row]: a segment, or fewer inputs in whole blocks of the type.
using DecodeFloatFunction = void (*)(TileRows rows, int inputs, float (*weights)[kTileRows]);
/// The same for float weights; the columns are N rows of floats.
using MultiplyFloatFunction = void (*)(const FloatPanel& panel, int inputs, const float* const* columns, bool first,
                                       float* y);

struct TypeKernels {
    DecodeFunction decode = nullptr;  // null: not a quantised type
    std::array<MultiplyFunction, kGroupColumns> multiply{};
    MultiplyOnceFunction multiply_once = nullptr;  // null: decode and multiply[0]
    DecodeFloatFunction decode_float = nullptr;
};

struct ProductKernels {
    std::array<TypeKernels, kTypes> types;  // by type code
    std::array<MultiplyFloatFunction, kGroupColumns> multiply_float;
    /// h = function(gate) * up, 32 values.
    void (*gated)(Gate function, const float* gate, const float* up, float* h);
    /// sum = fma(weight, y, sum), 32 values.
    void (*add_weighted)(float weight, const float* y, float* sum);

    const TypeKernels& of(Type type) const { return types[static_cast<size_t>(type)]; }
};

const ProductKernels& product_kernels(Simd simd);

// The tables. Those of an instruction set may only be used on machines that have it.
const ProductKernels& scalar_product_kernels();
#if defined(__x86_64__)
const ProductKernels& avx2_product_kernels();
const ProductKernels& avx512_product_kernels();
#endif

}  // namespace strata::cpu
