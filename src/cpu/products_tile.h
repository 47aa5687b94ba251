// One tile of a matrix times columns: what every product, dense or of an expert, is made of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/products_kernels.h"
#include "device/tensor.h"

namespace strata::cpu {

/// Activations as tiles read them. Codes: columns in groups of 4 (the last group has what is left), group g at
/// codes + 4 g width, scales + 4 g width / 32, half_sums + 4 g width / 16, inside interleaved as MultiplyFunction says;
/// one column alone lies as in QuantisedRows. Values: column c is the row index[c] (c where index is null) of `values`.
struct Columns {
    int count = 0;
    int width = 0;
    int8_t* codes = nullptr;
    float* scales = nullptr;
    int16_t* half_sums = nullptr;
    const float* values = nullptr;
    int64_t stride = 0;
    const int32_t* index = nullptr;

    /// Columns of group g.
    int group_size(int g) const {
        return count - g * kGroupColumns < kGroupColumns ? count - g * kGroupColumns : kGroupColumns;
    }
};

inline int column_groups(int count) {
    return (count + kGroupColumns - 1) / kGroupColumns;
}

/// Copies rows `index` (null: 0, 1, ..) of x into group g of columns that have their own memory.
void pack_group(const QuantisedRows& x, const int32_t* index, const Columns& columns, int g);

/// The weights of a tile: rows [row, row + 32) of matrix `which`, as far as it has them.
struct Tile {
    const Matrix* matrix = nullptr;
    int which = 0;
    int row = 0;
    bool as_float = false;  // multiply the columns' values whatever the type

    bool reads_codes() const;
    const std::byte* data() const;
    uint64_t bytes() const;  // of the rows that exist
};

struct TileScratch {
    union {
        Panel panel;
        FloatPanel floats;
    };
    alignas(64) std::byte rows[kTileRows][kSegmentInputs * sizeof(float)];  // of a tile that has fewer than 32
    int asked_task;  // whose first bytes this thread has asked for; -1: none
};

/// Asks for all bytes of a tile at once, before a thread's first one.
void ask_for_tile(const Tile& tile);

/// y[c][32] of the tile's rows, the companion scale applied; zeros for rows that the matrix does not have. While it
/// works it asks for the bytes of `next`, a tile that this thread will multiply soon (null: none).
void multiply_tile(const ProductKernels& kernels, const Tile& tile, const Columns& columns, const Tile* next,
                   TileScratch& scratch, float* y);

}  // namespace strata::cpu
