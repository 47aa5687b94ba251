// The gated delta net's recurrence: what the kernel of ops_delta_net.inc.h works on.
#pragma once

#include <cstdint>

namespace strata::cpu {

/// Some rows of one head's state, taken through the tokens of a span. Row j needs nothing of the other rows, so a head
/// can be split over threads in any way.
struct DeltaRows {
    int rows = 0;
    int width = 0;           // of the head: keys of a row
    float* state = nullptr;  // [rows, width]
    bool keep = true;        // write the state back after the last token
    float* work = nullptr;   // [rows, width], of this thread
    int tokens = 0;
    const float* key = nullptr;        // [tokens] rows of `width`, key_stride apart
    const float* query = nullptr;      // the same; null: no outputs (a replay)
    const float* value = nullptr;      // [tokens] rows of `rows` values, value_stride apart
    const float* decay = nullptr;      // [tokens], gate_stride apart
    const float* strength = nullptr;   // [tokens], gate_stride apart
    const float* key_query = nullptr;  // [tokens], key . query, key_query_stride apart
    float* out = nullptr;              // [tokens] rows of `rows` values, out_stride apart
    int64_t key_stride = 0, query_stride = 0, value_stride = 0, gate_stride = 0, key_query_stride = 0, out_stride = 0;
};

}  // namespace strata::cpu
