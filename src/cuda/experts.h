// Routed experts, shared experts and dense gated blocks.
#pragma once

#include "cuda/common.cuh"
#include "cuda/launch.h"
#include "cuda/products.h"

namespace strata::cuda {

/// Bytes of scratch for a call.
uint64_t experts_scratch(int rows, int used, int inner, int shared_inner, int width, int count);
/// What the routing is made of.
struct RouteInput {
    Rows logits;
    RouteSpec spec;
};
/// routing.used 0: only the shared block. scratch: experts_scratch bytes. route: the routing is still to be made, of
/// this; null: it is there.
void experts(Queue& queue, const ExpertSet& set, Rows values, const Codes& codes, const Routing& routing,
             const SharedExpert& shared, Rows out, bool add, const RouteInput* route, std::byte* scratch);

}  // namespace strata::cuda
