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

/// A list of ranges, each about the same work: enough of them that threads end together, none so short that starting it
/// counts. Work is bytes of weights for few columns, and grows with the columns once these cost more than the bytes.
struct TaskList {
    TileRange* ranges = nullptr;  // the caller's; as many as there are tiles
    int count = 0;
    uint64_t work = 0;  // bytes of all weights of the batch

    void add(int unit, int tiles, uint64_t tile_bytes, int columns, int threads) {
        constexpr uint64_t kLeast = 64 << 10, kMost = 512 << 10;
        const uint64_t share = work / (static_cast<uint64_t>(threads) * 8);
        const uint64_t target = std::clamp(share, kLeast, kMost) / static_cast<uint64_t>(std::max(1, columns / 8));
        const auto step = static_cast<int>(std::max<uint64_t>(1, target / std::max<uint64_t>(1, tile_bytes)));
        for (int first = 0; first < tiles; first += step)
            ranges[count++] = {unit, first, std::min(step, tiles - first)};
    }
};

}  // namespace strata::cpu
