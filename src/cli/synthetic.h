// Models that are not downloaded: a preset's shapes as a file that only seems to be there, or written with random
// weights.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/interrupts.h"
#include "gguf/file.h"
#include "synth/synth.h"

namespace strata::cli {

/// The options of "PRESET" or "PRESET:MIX"; nothing where no preset has that name. A wrong mix is found when planning.
std::optional<synth::Options> parse_preset(const std::string& name);

/// The file that a plan would give, in memory of its size that nobody touches beyond the header: its data reads as
/// zeros.
class PlannedFile {
  public:
    static Result<PlannedFile> make(const synth::Plan& plan, const std::string& name);
    const gguf::File& file() const { return *file_; }

  private:
    struct Unmap {
        size_t size;
        void operator()(std::byte* memory) const;
    };
    std::unique_ptr<std::byte, Unmap> memory_;
    std::unique_ptr<gguf::File> file_;
};

/// The file of a preset in HOME/synthetic/, written there if it is not yet. Asks first on a terminal; elsewhere `yes`
/// must be said. Refused: no agreement, a full disk, a wrong mix. Stopped by Ctrl-C: an error with the code
/// "interrupted".
Result<std::filesystem::path> synthetic_file(const std::string& preset, const std::filesystem::path& home, bool yes,
                                             Interrupts& interrupts);

}  // namespace strata::cli
