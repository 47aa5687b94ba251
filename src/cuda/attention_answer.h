// The form of attention that answers take: see attention_answer.cu.
#pragma once

#include "cuda/heads.h"

namespace strata::cuda {

/// Chunks' results into spec.partial. heads: to be made ready first, or null.
template <int Width, int Tile>
void run_answer(Queue& queue, const Step& step, const Attention& spec, const NewHeads* heads, HeadRows q, int spans);
/// The chunks of each row and head in order, the gate, and codes where wanted (widths that are multiples of 32).
void merge_answer(Queue& queue, const Step& step, const Attention& spec, HeadRows q, HeadRows gate, Rows out,
                  Codes codes);

}  // namespace strata::cuda
