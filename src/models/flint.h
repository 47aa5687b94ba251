// Flint (`flint`): attention with sinks, over a window with rotary and over everything without; dense blocks in the
// first layers, in the others routed experts and a shared one. docs/models/flint.md has the equations that the source
// follows, and says which of them no source confirms.
#pragma once

#include "models/model.h"

namespace strata {

Result<std::unique_ptr<Model>> make_flint(const gguf::File& file, Device& device, const ModelOptions& options);

}  // namespace strata
