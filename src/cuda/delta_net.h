// The gated delta net and the short convolution, with their states.
#pragma once

#include "cuda/common.cuh"
#include "cuda/launch.h"

namespace strata::cuda {

/// Bytes of scratch for a call of this many rows.
uint64_t delta_net_scratch(const DeltaNetSpec& spec, int rows);
/// spans: conversations of the call; u.rows may be 0 (only replay). scratch: delta_net_scratch bytes.
void delta_net(Queue& queue, const Step& step, const DeltaNetSpec& spec, uint64_t state_bytes, uint64_t history_bytes,
               Rows u, Rows z, Rows alpha, Rows beta, Rows values, Codes codes, int spans, std::byte* scratch);
void short_conv(Queue& queue, const Step& step, const ShortConvSpec& spec, uint64_t history_bytes, Rows bcx,
                Rows values, Codes codes, int spans);

}  // namespace strata::cuda
