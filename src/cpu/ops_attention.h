// Attention over cached rows: what the kernel of ops_attention.inc.h works on, and the operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/types.h"

namespace strata::cpu {

inline constexpr int kTileRows = 64;  // cache rows of a step of the online softmax; borders are multiples of it
inline constexpr int kPanel = 64;     // values of a head that are multiplied together

/// Chunks end at multiples of 256 rows up to row 8,192, then of 1,024: partial sums are merged there, so that an answer
/// can be split over threads and has the bits of a prompt.
inline constexpr int64_t kShortChunk = 256, kLongChunk = 1024, kShortChunksEnd = 8192;
static constexpr bool is_chunk_border(int64_t row) {
    return row % (row <= kShortChunksEnd ? kShortChunk : kLongChunk) == 0;
}
static constexpr int64_t chunk_of(int64_t row) {
    return row < kShortChunksEnd ? row / kShortChunk
                                 : kShortChunksEnd / kShortChunk + (row - kShortChunksEnd) / kLongChunk;
}
static constexpr int64_t chunk_start(int64_t chunk) {
    constexpr int64_t short_chunks = kShortChunksEnd / kShortChunk;
    return chunk < short_chunks ? chunk * kShortChunk : kShortChunksEnd + (chunk - short_chunks) * kLongChunk;
}

/// One head of a cache part. Row p lies in slot p % ring, or p where ring is 0.
struct CacheRows {
    Type type = Type::f32;
    const std::byte* data = nullptr;  // the head's values of slot 0
    int64_t row_bytes = 0;            // from slot to slot
    int64_t head_bytes = 0;           // of the head
    int64_t ring = 0;
};

/// A softmax under way: largest score, sum of e^(score - largest), and the same sum with each value row as factor.
struct SoftmaxSums {
    float* largest;
    float* sum;
    float* values;  // [padded width]
};

/// Memory of one thread.
struct AttentionWork {
    float* keys;         // [padded, kTileRows]
    float* tile_values;  // [ceil(padded / kPanel), kTileRows, kPanel]
    float* scores;       // [queries, kTileRows]
    float* largest;      // [queries], of the chunk under way
    float* sum;          // [queries]
    float* values;       // [queries, padded]
};

struct AttentionBlock {
    int queries = 0;
    int width = 0;                  // of a head
    int padded = 0;                 // width rounded up to 16: the stride of query and values
    const float* query = nullptr;   // [queries, padded], times the score scale, zeros behind width
    const int64_t* from = nullptr;  // [queries]: the query sees cache rows [from, to)
    const int64_t* to = nullptr;
    CacheRows keys, cached_values;
    int64_t first = 0, last = 0;  // rows to go through: what any of the queries sees, or one chunk of it
    AttentionWork work;
    // Results.
    float* largest = nullptr;  // [queries]
    float* sum = nullptr;      // [queries]
    float* values = nullptr;   // [queries, padded]
};

}  // namespace strata::cpu
