// The models that setup knows by name: what they are, which sizes there are, what each wants of a PC.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata {

struct FamilySize {
    const char* name;    // as in file names: "UD-Q3_K_M"
    double download_gb;  // 10^9 bytes
    double ram_gb;       // wanted beside an 8 GB card, an estimate; 0: next to nothing
};

struct Family {
    const char* name;                   // --family
    const char* model;                  // for people: "Qwen3.6-35B-A3B"
    const char* architecture;           // general.architecture
    const char* word;                   // in the names of its files, lower-case: "qwen3.6"
    std::span<const FamilySize> sizes;  // the first is recommended
    const char* carried;                // file of the project that is this model, or null: the user brings the file
    bool noise = false;                 // random weights: its words mean nothing
};

std::span<const Family> families();

/// The family with this name. Refused: unknown (lists them).
Result<const Family*> find_family(std::string_view name);

/// GGUF models in a folder (first parts of sets; nothing below it) that can be this family's: by architecture, and by
/// name where several have that. `family` null: any. `size` empty: any, else the size in the file's name ("Q4_K_M").
std::vector<std::filesystem::path> find_family_files(const std::filesystem::path& folder, const Family* family,
                                                     std::string_view size);

}  // namespace strata
