// Qwen3.5/3.6 mixture of experts (`qwen35moe`, and `clover_moe` as a causal model): gated delta nets, every few layers
// gated attention, in each layer routed experts and a gated shared one; an optional draft block.
// docs/models/qwen35moe.md has the equations that the source follows.
#pragma once

#include "models/model.h"

namespace strata {

Result<std::unique_ptr<Model>> make_qwen35moe(const gguf::File& file, Device& device, const ModelOptions& options);

}  // namespace strata
