#include "cpu/products.h"

#include <algorithm>
#include <new>

#include "base/checked.h"
#include "cpu/products_tasks.h"

namespace strata::cpu {

const ProductKernels& product_kernels(Simd simd) {
    switch (simd) {
#if defined(__x86_64__)
        case Simd::avx512: return avx512_product_kernels();
        case Simd::avx2: return avx2_product_kernels();
#endif
        default: return scalar_product_kernels();
    }
}

void Products::Free::operator()(std::byte* memory) const {
    ::operator delete (memory, std::align_val_t{256});
}

void Products::grow(uint64_t bytes) {
    scratch_.reset();
    scratch_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256})));
    scratch_bytes_ = bytes;
}

/// A batch: first the columns are packed, a task a group, then tiles are multiplied, several to a task.
struct Products::DenseCall {
    const Activations& x;
    std::span<const Product> products;
    bool as_float;
    bool add;

    Columns columns;
    bool packed;           // columns have their own memory, filled by tasks of this batch
    TileScratch* scratch;  // [threads]
    float* sums;           // [threads][columns][32]
    TaskList tasks;

    Tile tile(int product, int t) const {
        return {&products[static_cast<size_t>(product)].matrix, 0, t * kTileRows, as_float};
    }

    /// `after`: the range that this thread multiplies next, or null.
    void multiply(const ProductKernels& kernels, const TileRange& range, const TileRange* after, int thread) {
        const Product& product = products[static_cast<size_t>(range.unit)];
        float* y = sums + static_cast<int64_t>(thread) * columns.count * kTileRows;
        for (int t = range.first; t < range.first + range.count; ++t) {
            const bool last = t + 1 == range.first + range.count;
            const Tile next = last && after ? tile(after->unit, after->first) : tile(range.unit, t + 1);
            multiply_tile(kernels, tile(range.unit, t), columns, last && !after ? nullptr : &next, scratch[thread], y);
            const int rows = std::min(kTileRows, product.matrix.rows - t * kTileRows);
            for (int c = 0; c < columns.count; ++c) {
                float* out = product.out.data + c * product.out.stride + t * kTileRows;
                const float* from = y + c * kTileRows;
                if (add)
                    for (int i = 0; i < rows; ++i) out[i] += from[i];
                else
                    std::copy_n(from, rows, out);
            }
        }
    }
};

void Products::dense(const Activations& x, std::span<const Product> products, bool as_float, bool add) {
    if (products.empty() || products[0].out.rows == 0) return;
    const int count = products[0].out.rows;
    const int width = x.values ? x.values.width : x.codes.width;
    const bool codes = !as_float && std::any_of(products.begin(), products.end(),
                                                [](const Product& p) { return type_info(p.matrix.type).quantised; });

    DenseCall call{x, products, as_float, add};
    call.packed = codes && count > 1;
    call.columns = {.count = count, .width = width, .values = x.values.data, .stride = x.values.stride};
    if (codes && count == 1) {
        call.columns.codes = x.codes.values;
        call.columns.scales = x.codes.scales;
        call.columns.half_sums = x.codes.half_sums;
    }
    const auto threads = static_cast<uint64_t>(pool_.threads());
    uint64_t tiles = 0;
    for (const Product& p : products) tiles += static_cast<uint64_t>(ceil_div(p.matrix.rows, kTileRows));
    reserve([&](Arena& arena) {
        call.scratch = take<TileScratch>(arena, threads);
        call.sums = take<float>(arena, threads * static_cast<uint64_t>(count) * kTileRows);
        call.tasks.ranges = take<TileRange>(arena, tiles);
        if (call.packed) take_columns(arena, static_cast<uint64_t>(count), call.columns);
    });
    for (uint64_t thread = 0; thread < threads; ++thread) call.scratch[thread].asked_task = -1;

    for (size_t p = 0; p < products.size(); ++p) {
        const Matrix& m = products[p].matrix;
        call.tasks.left += row_bytes(m.type, static_cast<uint64_t>(m.cols)) * static_cast<uint64_t>(m.rows);
    }
    for (size_t p = 0; p < products.size(); ++p) {
        const Matrix& m = products[p].matrix;
        const uint64_t tile_bytes = row_bytes(m.type, static_cast<uint64_t>(m.cols)) * kTileRows;
        call.tasks.add(static_cast<int>(p), static_cast<int>(ceil_div(m.rows, kTileRows)), tile_bytes, count,
                       pool_.threads());
    }

    const int groups = call.packed ? column_groups(count) : 0;
    StageGate packed(groups);
    pool_.run_ahead(groups + call.tasks.count, [&](int task, int after, int thread) {
        if (task < groups) {
            pack_group(x.codes, nullptr, call.columns, task);
            packed.arrive();
            return;
        }
        const TileRange& range = call.tasks.ranges[task - groups];
        if (call.scratch[thread].asked_task != task) ask_for_tile(call.tile(range.unit, range.first));
        packed.wait();
        call.scratch[thread].asked_task = after;
        call.multiply(kernels_, range, after < 0 ? nullptr : &call.tasks.ranges[after - groups], thread);
    });
}

void Products::matmul(const Activations& x, std::span<const Product> products) {
    dense(x, products, false, false);
}

void Products::matmul_add(const Activations& x, const Matrix& matrix, Rows residual) {
    const Product product{matrix, residual};
    dense(x, {&product, 1}, false, true);
}

void Products::matmul_float(Rows x, std::span<const Product> products) {
    dense({x, {}}, products, true, false);
}

}  // namespace strata::cpu
