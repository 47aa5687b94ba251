#include "cpu/products_tasks.h"

#include <gtest/gtest.h>
#include <vector>

namespace strata::cpu {
namespace {

struct Unit {
    int tiles;
    uint64_t tile_bytes;
};

/// The ranges of a batch, and how many of them the list has room for.
std::vector<TileRange> cut(const std::vector<Unit>& units, int columns, int threads) {
    TaskList list;
    int tiles = 0;
    for (const Unit& unit : units) {
        list.left += static_cast<uint64_t>(unit.tiles) * unit.tile_bytes;
        tiles += unit.tiles;
    }
    std::vector<TileRange> ranges(static_cast<size_t>(tiles));
    list.ranges = ranges.data();
    for (size_t u = 0; u < units.size(); ++u)
        list.add(static_cast<int>(u), units[u].tiles, units[u].tile_bytes, columns, threads);
    ranges.resize(static_cast<size_t>(list.count));
    return ranges;
}

TEST(TaskList, RangesHoldEveryTileOnceAndInOrder) {
    const std::vector<Unit> units{{1, 1 << 20}, {300, 36 << 10}, {7, 100}, {64, 70 << 10}};
    for (const int columns : {1, 9, 512})
        for (const int threads : {1, 2, 16}) {
            int unit = 0, next = 0;
            for (const TileRange& range : cut(units, columns, threads)) {
                if (next == units[static_cast<size_t>(unit)].tiles) ++unit, next = 0;
                ASSERT_EQ(range.unit, unit);
                ASSERT_EQ(range.first, next);
                ASSERT_GT(range.count, 0);
                next += range.count;
            }
            EXPECT_EQ(unit, 3);
            EXPECT_EQ(next, 64);
        }
}

TEST(TaskList, RangesGetShorterTowardsTheEndOfABatch) {
    const std::vector<TileRange> ranges = cut({{400, 32 << 10}}, 1, 2);
    EXPECT_EQ(ranges.front().count, 16);  // 512 KiB
    for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i].count, ranges[i - 1].count);
    EXPECT_EQ(ranges.back().count, 1);
}

TEST(TaskList, ManyColumnsMakeShortRanges) {
    for (const TileRange& range : cut({{64, 70 << 10}}, 512, 2)) EXPECT_EQ(range.count, 1);
}

}  // namespace
}  // namespace strata::cpu
