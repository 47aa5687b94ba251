// Gemma 4 (`gemma4`): window and global attention layers between norms, a dense feed-forward block in each, and in the
// mixtures of experts routed ones beside it; its draft model (`gemma4-assistant`) reads the model's own caches.
// docs/models/gemma4.md has the equations that the source follows.
#pragma once

#include "models/model.h"

namespace strata {

Result<std::unique_ptr<Model>> make_gemma4(const gguf::File& file, Device& device, const ModelOptions& options);

}  // namespace strata
