// A row of any type as floats: the exact values that the file stands for, each rounded to float32 at most once.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace strata {

/// Writes `width` floats. `row` holds row_bytes(type, width) bytes at any alignment; width is a multiple of the type's
/// block. Quantised types, F32, F16, BF16, I8 and I16 give their exact value (types with a minimum: rounded once);
/// I32, I64 and F64 the nearest float.
void dequantise_row(Type type, const void* row, int64_t width, float* out);

}  // namespace strata
