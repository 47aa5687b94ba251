// Attention: making heads ready, the caches, scores and values.
#pragma once

#include "cuda/common.cuh"
#include "cuda/launch.h"

namespace strata::cuda {

/// How a part of the state keeps rows, for kernels.
struct CachePart {
    int id = -1;
    Type type = Type::f16;
    int row_bytes = 0;
    int capacity = 0;  // ring: row p at p % capacity; 0: row p at p
};

struct PreparedHeads {
    const float* query_norm;
    const float* key_norm;
    bool value_norm;
    float eps;
    CachePart keys, values;  // id < 0: nothing is kept
};
void prepare_heads(Queue& queue, const Step& step, const PreparedHeads& spec, Rows rope, HeadRows q, HeadRows k,
                   HeadRows v);

struct Attention {
    CachePart keys, values;
    int kv_heads;
    float scale;
    int window;
    const float* sinks;
    bool look_ahead;
    bool own_rows;
    int longest;     // cache rows that the call may reach: how many chunks there can be
    float* partial;  // scratch of attention_scratch bytes
};
/// Bytes of scratch that `attend` needs for this many rows.
uint64_t attention_scratch(int rows, int heads, int width, int capacity);
/// Heads that are still to be made ready before they are attended to.
struct NewHeads {
    PreparedHeads spec;
    Rows rope;
    HeadRows k, v;
};
/// heads: what prepare_heads would have done first (q may stay as it is); null: it was done. prompt: the form that
/// keeps totals in shared memory; else the form of answers, a block a chunk, and a merge. Same bits. spans:
/// conversations of the call.
void attend(Queue& queue, const Step& step, const Attention& spec, const NewHeads* heads, HeadRows q, HeadRows gate,
            Rows values, Codes codes, int spans, bool prompt);

}  // namespace strata::cuda
