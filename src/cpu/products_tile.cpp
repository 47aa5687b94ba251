#include "cpu/products_tile.h"

#include <algorithm>
#include <cstring>

namespace strata::cpu {
namespace {

/// Asks for [from, to) of a tile that comes next, a cache line at a time.
void prefetch(const std::byte* data, uint64_t from, uint64_t to) {
    for (; from < to; from += 64) __builtin_prefetch(data + from, 0, 2);
}

}  // namespace

bool Tile::reads_codes() const {
    return !as_float && type_info(matrix->type).quantised;
}

const std::byte* Tile::data() const {
    return matrix->data + matrix->stride * which +
           row_bytes(matrix->type, static_cast<uint64_t>(matrix->cols)) * static_cast<uint64_t>(row);
}

uint64_t Tile::bytes() const {
    return row_bytes(matrix->type, static_cast<uint64_t>(matrix->cols)) *
           static_cast<uint64_t>(std::min(kTileRows, matrix->rows - row));
}

void pack_group(const QuantisedRows& x, const int32_t* index, const Columns& columns, int g) {
    const int first = g * kGroupColumns, n = columns.group_size(g);
    const int64_t at = static_cast<int64_t>(first) * x.width;
    int8_t* codes = columns.codes + at;
    float* scales = columns.scales + at / 32;
    int16_t* half_sums = columns.half_sums + at / 16;
    for (int c = 0; c < n; ++c) {
        const int row = index ? index[first + c] : first + c;
        const int8_t* from = x.row_values(row);
        const float* row_scales = x.row_scales(row);
        const int16_t* row_sums = x.row_half_sums(row);
        for (int quad = 0; quad < x.width / 4; ++quad) std::memcpy(codes + (quad * n + c) * 4, from + quad * 4, 4);
        for (int block = 0; block < x.width / 32; ++block) {
            scales[block * n + c] = row_scales[block];
            std::memcpy(half_sums + (block * n + c) * 2, row_sums + block * 2, 2 * sizeof(int16_t));
        }
    }
}

void ask_for_tile(const Tile& tile) {
    prefetch(tile.data(), 0, tile.bytes());
}

void multiply_tile(const ProductKernels& kernels, const Tile& tile, const Columns& columns, const Tile* next,
                   TileScratch& scratch, float* y) {
    const Matrix& m = *tile.matrix;
    const uint64_t row_size = row_bytes(m.type, static_cast<uint64_t>(m.cols));
    TileRows rows{tile.data(), static_cast<int64_t>(row_size)};
    const int count = std::min(kTileRows, m.rows - tile.row);
    if (count < kTileRows) std::memset(scratch.rows, 0, sizeof scratch.rows);

    const TypeKernels& type = kernels.of(m.type);
    const bool codes = tile.reads_codes();
    const bool once = codes && columns.count == 1 && type.multiply_once;
    const std::byte* ahead = next ? next->data() : nullptr;
    // The kernel for one column asks for as many bytes as it reads, others for nothing.
    const uint64_t ahead_bytes = next ? next->bytes() : 0;
    const uint64_t asked_there = once ? std::min(tile.bytes(), ahead_bytes) : 0;
    // Float weights are wide: a little of the next tile is asked for with a little of this one.
    const int piece = type_info(m.type).quantised ? kSegmentInputs : 32;
    const auto ask = [&](int from, int to) {
        if (asked_there == ahead_bytes) return;
        const auto part = [&](int done) {
            return asked_there +
                   (ahead_bytes - asked_there) * static_cast<uint64_t>(done) / static_cast<uint64_t>(m.cols);
        };
        prefetch(ahead, part(from), part(to));
    };
    const uint64_t segment_size = row_bytes(m.type, kSegmentInputs);
    uint64_t at = 0;  // of what the kernel asks for
    for (int start = 0; start < m.cols; start += kSegmentInputs, rows.data += segment_size) {
        const int inputs = std::min(kSegmentInputs, m.cols - start);
        TileRows segment = rows;
        if (count < kTileRows) {
            const uint64_t there = row_bytes(m.type, static_cast<uint64_t>(inputs));
            for (int row = 0; row < count; ++row) std::memcpy(scratch.rows[row], rows[row], there);
            segment = {scratch.rows[0], sizeof scratch.rows[0]};
        }
        if (codes) ask(start, start + inputs);
        if (once) {
            const std::byte* lines = ahead ? ahead + at : rows.data;
            type.multiply_once(segment, inputs / 32, columns.codes + start, columns.scales + start / 32,
                               columns.half_sums + start / 16, lines, start == 0, y);
            at += segment_size * kTileRows;
            if (at >= asked_there) at = 0;  // all is asked for: once more costs nothing
            continue;
        }
        if (codes) {
            type.decode(segment, inputs / 32, scratch.panel);
        } else {
            for (int i = 0; i < inputs; i += piece) {
                const int there = std::min(piece, inputs - i);
                ask(start + i, start + i + there);
                TileRows from = segment;
                from.data += row_bytes(m.type, static_cast<uint64_t>(i));
                type.decode_float(from, there, scratch.floats.weights + i);
            }
        }
        for (int first = 0; first < columns.count; first += kGroupColumns) {
            const int n = columns.group_size(first / kGroupColumns);
            float* out = y + first * kTileRows;
            if (codes) {
                const int64_t at = static_cast<int64_t>(first) * columns.width + static_cast<int64_t>(start) * n;
                type.multiply[static_cast<size_t>(n - 1)](scratch.panel, inputs / 32, columns.codes + at,
                                                          columns.scales + at / 32, columns.half_sums + at / 16,
                                                          start == 0, out);
            } else {
                const float* values[kGroupColumns];
                for (int c = 0; c < n; ++c)
                    values[c] = columns.values +
                                (columns.index ? columns.index[first + c] : first + c) * columns.stride + start;
                kernels.multiply_float[static_cast<size_t>(n - 1)](scratch.floats, inputs, values, start == 0, out);
            }
        }
    }
    if (!m.scales) return;
    const float scale = m.scales[tile.which];
    for (int i = 0; i < columns.count * kTileRows; ++i) y[i] *= scale;
}

}  // namespace strata::cpu
