// LFM2 and LFM2.5 mixtures of experts (`lfm2moe`): short convolutions, every few layers attention, dense blocks in the
// first layers and routed experts in the others. docs/models/lfm2moe.md has the equations that the source follows.
#pragma once

#include "models/model.h"

namespace strata {

Result<std::unique_ptr<Model>> make_lfm2moe(const gguf::File& file, Device& device, const ModelOptions& options);

}  // namespace strata
