#include "cli/synthetic.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/answer_printer.h"
#include "setup/model_file.h"

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

namespace {

bool agrees(const std::string& question) {
    std::fprintf(stderr, "%s [y/N] ", question.c_str());
    std::string line;
    std::getline(std::cin, line);
    return line == "y" || line == "Y" || line == "yes";
}

}  // namespace

Result<std::filesystem::path> synthetic_file(const std::string& preset, const std::filesystem::path& home, bool yes,
                                             Interrupts& interrupts) {
    namespace fs = std::filesystem;
    const auto options = parse_preset(preset);
    if (!options)
        return usage_error("--synthetic: no preset is called '" + preset + "' (polystrata synth --list names them)");
    STRATA_TRY_ASSIGN(const synth::Plan plan, synth::plan(*options));
    const fs::path folder = home / "synthetic";
    const fs::path path = folder / (options->preset + "-" + options->mix + ".gguf");
    std::error_code error;
    if (fs::exists(path, error) && fs::file_size(path, error) == plan.file_bytes) return path;

    const std::string what = "writes " + bytes_text(plan.file_bytes) + " to " + path.string();
    if (!yes && !isatty(STDIN_FILENO)) return usage_error("--synthetic " + what + ": agree with --yes");
    if (!yes && !agrees("This " + what + ". Go on?")) return failure("nothing was written");
    fs::create_directories(folder, error);
    AnswerPrinter printer(stdout, stderr);
    std::atomic<bool> interrupted = false;
    const Interrupts::Watch watch(interrupts, [&](bool) { interrupted = true; });
    const Result<void> written = synth::write(plan, path, true, [&](uint64_t done, uint64_t total) {
        printer.status("writing " + bytes_text(done) + " of " + bytes_text(total));
        return !interrupted;
    });
    printer.finish();
    if (interrupted && !written) return Error{ErrorKind::failed, written.error().message, "interrupted"};
    if (!written) return written.error();
    return path;
}

}  // namespace strata::cli
