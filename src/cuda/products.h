// Products of weights on the card. Every form of a quantised product gives the bits of the scalar reference.
#pragma once

#include "cuda/common.cuh"
#include "cuda/launch.h"
#include "device/tensor.h"

namespace strata::cuda {

/// Most columns of the mat-vec form: windows of guesses. Longer calls go through tiles.
inline constexpr int kNarrow = 8;

/// out = matrix . x for up to kNarrow rows of x, or any number (in batches) where tiles do not fit the card.
/// add: out += . All matrices are quantised and have x's width.
void matvec(Queue& queue, const Codes& x, std::span<const Product> products, bool add);
/// Whether norm_products is worth it for these rows.
bool norm_products_take(Rows x);
/// values, codes = norm(x); then out = matrix . codes and out = matrix . values: as norm, matvec and float_product make
/// them, bit for bit, in one launch where types allow. values and codes are not x.
void norm_products(Queue& queue, Rows x, const float* weight, float eps, Rows values, const Codes& codes,
                   std::span<const Product> quantised, std::span<const Product> floats);
/// The same as matvec for long calls: tiles of 128 outputs by 64 tokens on int8 tensor cores.
void matmat(Queue& queue, const Codes& x, std::span<const Product> products, bool add);
/// Float weights (F32, F16, BF16) of one width and float activations, any number of rows; one order of sums.
void float_product(Queue& queue, Rows x, std::span<const Product> products, bool add);

}  // namespace strata::cuda
