// Weights from the mapped file to the card.
#pragma once

#include "cuda/memory.h"
#include "device/device.h"

namespace strata::cuda {

/// A matrix (or a stack of them) as bricks, or as it is where its type is a float. Refused: a type that the card has no
/// form for (NVFP4), by name.
Result<Matrix> upload_matrix(const WeightView& weights, CardMemory& memory, Uploader& uploader, cudaStream_t stream);

/// Float32 copy of a brick matrix, for products with unrounded activations.
void expand_matrix(const Matrix& matrix, float* out, cudaStream_t stream);

}  // namespace strata::cuda
