// Draft models in files of their own: which one belongs to a model.
#pragma once

#include <filesystem>

#include "gguf/file.h"

namespace strata {

/// A draft model for `model` among the GGUF files of a folder (nothing below it), the first by name that fits; empty:
/// none. Reads headers.
std::filesystem::path find_draft_model(const gguf::File& model, const std::filesystem::path& folder);

}  // namespace strata
