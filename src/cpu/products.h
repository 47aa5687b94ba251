// Products with weights, as the CPU device's operations need them: matrices times the rows of a call, and the experts
// of a layer. Weights are read where the file's mapping has them. Results: docs/numerics.md, bit for bit, for any
// number of rows, threads and any instruction set.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cpu/ops_kernels.h"
#include "cpu/products_kernels.h"
#include "cpu/products_tile.h"
#include "cpu/simd.h"
#include "cpu/thread_pool.h"
#include "device/arena.h"
#include "device/device.h"

namespace strata::cpu {

/// The products of one device. Operations come from one thread at a time; they run on the pool. Scratch memory is kept
/// and grows to what the largest call needed (Products::scratch_bytes), so that later calls allocate nothing.
///
/// Matrices lie in place: rows of row_bytes(type, cols) one after another at any alignment, Matrix::stride bytes from
/// one expert to the next. Nothing is read outside of them. Quantised matrices multiply the codes of activations, float
/// matrices (F32, F16, BF16) their values; only the form that is needed is read.
class Products {
  public:
    Products(ThreadPool& pool, Simd simd)
        : pool_(pool), kernels_(product_kernels(simd)), quantise_(op_kernels(simd).quantise) {}

    /// out = matrix . x for every product.
    void matmul(const Activations& x, std::span<const Product> products);
    /// residual += matrix . x
    void matmul_add(const Activations& x, const Matrix& matrix, Rows residual);
    /// out = matrix . x with float activations whatever the matrices' types.
    void matmul_float(Rows x, std::span<const Product> products);

    /// out = sum by rank of weight * expert(x), then the shared expert; add: out += that sum. x holds the forms that
    /// the gates and ups read. Device::experts and Device::feed_forward.
    void experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                 Rows out, bool add);
    void feed_forward(const SharedExpert& block, const Activations& x, Rows out, bool add);

    uint64_t scratch_bytes() const { return scratch_bytes_; }

  private:
    struct DenseCall;
    struct ExpertCall;
    void dense(const Activations& x, std::span<const Product> products, bool as_float, bool add);

    /// Memory for what `layout(arena)` takes.
    template <class Layout>
    void reserve(const Layout& layout) {
        Arena measure;
        layout(measure);
        if (measure.peak() > scratch_bytes_) grow(measure.peak());
        Arena arena(scratch_.get(), scratch_bytes_);
        layout(arena);
    }
    void grow(uint64_t bytes);

    ThreadPool& pool_;
    const ProductKernels& kernels_;
    decltype(OpKernels::quantise) quantise_;
    struct Free {
        void operator()(std::byte* memory) const;
    };
    std::unique_ptr<std::byte, Free> scratch_;
    uint64_t scratch_bytes_ = 0;
};

}  // namespace strata::cpu
