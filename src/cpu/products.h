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

/// What Products::expert_outputs computes, and where it goes.
struct ExpertOutputs {
    const int32_t* vector_of = nullptr;  // [rows * used]: the place of a pair's y; negative: it is not computed
    float* y = nullptr;                  // vectors of the set's width, back to back
    /// [experts]: where an expert's matrices lie as ExpertSlotForm has them; null: in the set itself. An expert without
    /// one is not computed.
    std::byte* const* slots = nullptr;
    const SharedExpert* shared = nullptr;  // null: none
    float* shared_y = nullptr;             // [rows, width]
};

/// y of all pairs, for the sum.
struct ExpertVectors {
    const float* const* of_pair = nullptr;  // [rows * used]; null: left out
    const float* shared_y = nullptr;        // [rows, width]; null: none
};

/// An expert's three matrices one after another, each at a multiple of 64 bytes.
struct ExpertSlotForm {
    uint64_t up = 0, down = 0, bytes = 0;  // offsets of up and down, and all
    uint64_t gate_bytes = 0, up_bytes = 0, down_bytes = 0;

    explicit ExpertSlotForm(const ExpertSet& set);
    /// Copies an expert from the set's own matrices.
    void fill(const ExpertSet& set, int expert, std::byte* slot) const;
};

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

    /// The same in two steps, for experts that are computed in several places: y of some pairs (row * used + rank) and
    /// of the shared expert, and then the sum.
    void expert_outputs(const ExpertSet& set, const Activations& x, const Routing& routing,
                        const ExpertOutputs& outputs);
    void sum_experts(const ExpertVectors& vectors, const Routing& routing, const SharedExpert& shared, Rows out,
                     bool add);

    uint64_t scratch_bytes() const { return scratch_bytes_; }

  private:
    struct DenseCall;
    struct ExpertCall;
    void dense(const Activations& x, std::span<const Product> products, bool as_float, bool add);
    void run_experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                     const ExpertOutputs* outputs, Rows out, bool add);

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
