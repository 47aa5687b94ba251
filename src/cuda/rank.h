// The likeliest token of a row of logits.
#pragma once

#include "cuda/common.cuh"
#include "cuda/launch.h"

namespace strata::cuda {

/// Bytes of scratch that `rank` needs.
uint64_t rank_scratch(int rows, int width);
/// out: [rows], memory that the card can write (pinned host memory is).
void rank(Queue& queue, Rows logits, Likeliest* out, std::byte* scratch);

}  // namespace strata::cuda
