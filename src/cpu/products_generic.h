// Decoding tiles of any type through the canonical decoders: for the scalar table, and for the rare types that other
// tables have no decoder of their own for.
#pragma once

#include "cpu/products_kernels.h"

namespace strata::cpu {

/// Decodes a quantised type; codes are q + offset, offset 0 or 128. Null for types that are not quantised.
DecodeFunction generic_decode(Type type, int offset);

/// Decodes any type to floats.
DecodeFloatFunction generic_decode_float(Type type);

}  // namespace strata::cpu
