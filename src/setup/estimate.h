// Whether a file can run, and what memory it takes: the model is made from the file on a device that only counts, so
// the answers are the engine's own.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "device/state.h"
#include "gguf/file.h"

namespace strata {

struct MemoryEstimate {
    uint64_t dense_bytes = 0;   // weights that every token uses
    uint64_t expert_bytes = 0;  // all routed experts
    int64_t experts = 0;        // of all layers together
    StateLayout state;          // of a conversation

    uint64_t bytes_of_expert() const { return experts > 0 ? expert_bytes / static_cast<uint64_t>(experts) : 0; }
    uint64_t conversation_bytes(int64_t tokens) const;
};

/// With caches kept as f16, q8_0 or f32. Refuses a file that cannot run, with the engine's sentence. Reads headers and
/// some small tensors.
Result<MemoryEstimate> estimate_memory(const gguf::File& file, Type cache);

}  // namespace strata
