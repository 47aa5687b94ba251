// How often each expert of a model was used, on the disk. Layout, all numbers 64 bits little-endian: "STRATAEP",
// version 1, the model's number (OpenedEngine::model_id), the number of layers with experts, the experts of each, the
// uses of each expert layer by layer, and a hash of all before it (base/hash.h). It says what a model was used for: it
// stays on this machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace strata {

/// Replaces the file as a whole or not at all (base/atomic_file.h). layers: experts of each; uses: of all of them.
Result<void> save_expert_profile(const std::string& path, uint64_t model_id, std::span<const int> layers,
                                 std::span<const uint64_t> uses);

/// The uses. Refused: missing ("missing"), of another model ("other"), damaged ("damaged").
Result<std::vector<uint64_t>> load_expert_profile(const std::string& path, uint64_t model_id,
                                                  std::span<const int> layers);

}  // namespace strata
