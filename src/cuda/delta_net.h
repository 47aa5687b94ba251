// The gated delta net and the short convolution, with their states.
#pragma once

#include "cuda/common.cuh"
#include "cuda/launch.h"

namespace strata::cuda {

/// Bytes of scratch for a call of this many rows.
uint64_t delta_net_scratch(const DeltaNetSpec& spec, int rows);
inline constexpr int kMostKeyHeads = 256;
/// Whether there are kernels for these shapes.
bool delta_net_takes(const DeltaNetSpec& spec);

struct DeltaNetCall {
    int spans;           // conversations of the call
    int longest;         // rows of the longest; spans of over kMaxWindow rows are not logged, nor those beside them
    std::byte* scratch;  // delta_net_scratch bytes
    int* tickets;        // [spans][key heads] counters, 0 between calls
};
/// u.rows may be 0 (only replay).
void delta_net(Queue& queue, const Step& step, const DeltaNetSpec& spec, uint64_t state_bytes, uint64_t history_bytes,
               Rows u, Rows z, Rows alpha, Rows beta, Rows values, Codes codes, const DeltaNetCall& call);
void short_conv(Queue& queue, const Step& step, const ShortConvSpec& spec, uint64_t history_bytes, Rows bcx,
                Rows values, Codes codes, int spans);

}  // namespace strata::cuda
