// Kolibri 1 (`kolibri1`): attention over a window with rotary and over everything without, norms behind the blocks, and
// in every layer routed experts and a shared one. docs/models/kolibri1.md has the equations that the source follows.
#pragma once

#include "models/model.h"

namespace strata {

Result<std::unique_ptr<Model>> make_kolibri1(const gguf::File& file, Device& device, const ModelOptions& options);

}  // namespace strata
