// Synthetic models: files with a real model's shapes, metadata, tensor types and vocabulary size and random weights,
// for measuring before a download and for comparing engines on the same file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/writer.h"
#include "synth/fill.h"

namespace strata::synth {

struct Options {
    std::string preset;             // a name of presets()
    std::string mix = "ud-q4_k_m";  // a name of mixes() (synth/mix.h)
    int layers = 0;                 // the first so many trunk layers, 0: all; draft blocks stay
    uint64_t seed = 1;
    float skew = 1;     // how uneven the use of experts is: 0 even, 1 mild, 3 strong
    bool draft = true;  // with the draft block, where the model has one inside its file
};

/// Everything about the file but its path, decided; nothing of it is written yet.
struct Plan {
    Options options;
    std::string title;        // "Qwen3.6-35B-A3B, 4 of 40 layers"
    gguf::Contents contents;  // keys, tensors with types
    std::vector<Fill> fills;  // like contents.tensors
    uint64_t parameters = 0;
    uint64_t file_bytes = 0;
};

/// Refuses unknown presets and mixes (a usage error that lists the known ones), layers out of range.
Result<Plan> plan(const Options& options);

/// Bytes written and bytes in all; false stops the writing ("cancelled"). Called on the caller's thread, a few times a
/// second.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

/// Writes the file with `threads` threads (0: one a core). The bytes depend on the plan alone. Nothing is left behind
/// unless it succeeds; an existing file is kept unless `force`.
Result<void> write(const Plan& plan, const std::filesystem::path& path, bool force = false,
                   const Progress& progress = {}, int threads = 0);

struct PresetName {
    std::string_view name;
    std::string_view title;
};
std::vector<PresetName> presets();

}  // namespace strata::synth
