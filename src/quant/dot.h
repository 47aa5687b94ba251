// The scalar reference of every product: the definition of docs/numerics.md word for word. Fast kernels, on any device,
// must give the same bits.
#pragma once

#include "quant/activations.h"
#include "quant/types.h"

namespace strata {

/// One row of a quantised matrix times one row of activations (the canonical product). `row` holds
/// row_bytes(type, x.width) bytes; x.width is a multiple of the type's block. Scales must be finite.
float dot_reference(Type type, const void* row, const QuantisedRows& x, int index);

/// One row of a matrix of any type times unrounded float activations (docs/numerics.md, "Float weights"). width is a
/// multiple of the type's block; F32, F16 and BF16 take any width.
float dot_float_reference(Type type, const void* row, const float* x, int width);

}  // namespace strata
