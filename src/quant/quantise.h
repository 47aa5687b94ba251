// Making the blocks of every type from floats: for synthetic models, conversions and tests, not for the hot path. The
// same input gives the same bytes on every machine. Source: specs page quants, section 7.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace strata {

/// Whether quantise_row makes rows of this type: every quantised type, F32, F16 and BF16.
bool quantisable(Type type);

/// One row of `width` finite floats, a multiple of the type's block, to row_bytes(type, width) bytes at `out`.
/// importance: [width], a factor >= 0 a column on the squared error there, or null for all alike; Q8_0, MXFP4, NVFP4,
/// TQ1_0, TQ2_0, Q1_0, Q2_0 and the plain types ignore it. Magnitudes up to 1e15 give finite blocks: scales saturate.
void quantise_row(Type type, const float* x, int64_t width, const float* importance, void* out);

}  // namespace strata
