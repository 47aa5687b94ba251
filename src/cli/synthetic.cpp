#include "cli/synthetic.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace strata::cli {

std::optional<synth::Options> parse_preset(const std::string& name) {
    const size_t colon = std::min(name.find(':'), name.size());
    synth::Options options;
    options.preset = name.substr(0, colon);
    if (colon < name.size()) options.mix = name.substr(colon + 1);
    const auto presets = synth::presets();
    if (std::ranges::find(presets, options.preset, &synth::PresetName::name) == presets.end()) return std::nullopt;
    return options;
}

void PlannedFile::Unmap::operator()(std::byte* memory) const {
    munmap(memory, size);
}

Result<PlannedFile> PlannedFile::make(const synth::Plan& plan, const std::string& name) {
    STRATA_TRY_ASSIGN(const gguf::Layout layout, gguf::lay_out(plan.contents, name));
    const gguf::Layout::Part& part = layout.parts[0];
    void* memory = mmap(nullptr, part.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return failure(name + ": the system gives no address space for a file of this size");
    PlannedFile planned;
    planned.memory_ = {static_cast<std::byte*>(memory), Unmap{part.size}};
    std::memcpy(memory, part.header.data(), part.header.size());
    STRATA_TRY_ASSIGN(gguf::File file, gguf::File::from_memory({planned.memory_.get(), part.size}, name));
    planned.file_ = std::make_unique<gguf::File>(std::move(file));
    return planned;
}

}  // namespace strata::cli
