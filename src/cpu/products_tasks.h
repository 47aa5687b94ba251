// How products are cut into tasks: runs of tiles, by bytes of weights and columns, not by rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/products_tile.h"
#include "device/arena.h"

namespace strata::cpu {

template <class T>
T* take(Arena& arena, uint64_t count) {
    return reinterpret_cast<T*>(arena.take(count * sizeof(T)));
}

/// Memory for the codes of `count` columns.
inline void take_columns(Arena& arena, uint64_t count, Columns& columns) {
    const auto values = count * static_cast<uint64_t>(columns.width);
    columns.codes = take<int8_t>(arena, values);
    columns.scales = take<float>(arena, values / 32);
    columns.half_sums = take<int16_t>(arena, values / 16);
}

/// Tiles [first, first + count) of one matrix, or of one pair of matrices.
struct TileRange {
    int unit;
    int first;
    int count;
};

/// A list of ranges: long ones first, so that starting them does not count, short ones last, so that threads end
/// together. Length is bytes of weights for few columns, and falls with the columns once these cost more than the
/// bytes.
struct TaskList {
    TileRange* ranges = nullptr;  // the caller's; as many as there are tiles
    int count = 0;
    uint64_t left = 0;  // bytes of the batch's weights that are in no task yet

    void add(int unit, int tiles, uint64_t tile_bytes, int columns, int threads) {
        constexpr uint64_t kLeast = 32 << 10, kMost = 512 << 10;
        const auto columns_cost = static_cast<uint64_t>(std::max(1, columns / 8));
        for (int first = 0, step; first < tiles; first += step) {
            const uint64_t target = std::clamp(left / (static_cast<uint64_t>(threads) * 4), kLeast, kMost);
            const auto many = static_cast<int>(target / columns_cost / std::max<uint64_t>(1, tile_bytes));
            step = std::clamp(many, 1, tiles - first);
            ranges[count++] = {unit, first, step};
            left -= std::min(left, static_cast<uint64_t>(step) * tile_bytes);
        }
    }
};

}  // namespace strata::cpu
