// polystrata synth: a model file with random weights and a real model's shapes, for measuring before downloading.

#include "synth/synth.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <unistd.h>

#include "cli/command.h"
#include "cli/model_text.h"
#include "synth/mix.h"

namespace strata::cli {
namespace {

struct Flags {
    synth::Options options;
    std::string out;
    int threads = 0;
    bool no_draft = false;
    bool force = false;
    bool list = false;
};

volatile std::sig_atomic_t stopped_by = 0;

int list() {
    std::puts("Presets (--like):");
    for (const synth::PresetName& preset : synth::presets())
        std::printf("  %-28.*s %.*s\n", static_cast<int>(preset.name.size()), preset.name.data(),
                    static_cast<int>(preset.title.size()), preset.title.data());
    std::puts("\nMixes of tensor types (--mix):");
    for (const synth::MixName& mix : synth::mixes())
        std::printf("  %-16s %s\n", mix.name.c_str(), mix.description.c_str());
    return 0;
}

Outcome run(Flags flags) {
    if (flags.list) return list();
    if (flags.options.preset.empty()) return usage_error("--like PRESET is missing (--list names the presets)");
    if (flags.out.empty()) return usage_error("--out FILE is missing");
    flags.options.draft = !flags.no_draft;
    STRATA_TRY_ASSIGN(const synth::Plan plan, synth::plan(flags.options));

    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const auto progress = [&](uint64_t done, uint64_t total) {
        if (terminal)
            std::fprintf(stderr, "\r%s of %s, %.0f MB/s ", bytes_text(done).c_str(), bytes_text(total).c_str(),
                         static_cast<double>(done) / 1e6 / std::max(seconds(), 1e-3));
        return stopped_by == 0;
    };
    // Stopped by any of these, the partial file is removed before the program ends.
    const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    for (const int stop : stops) std::signal(stop, [](int signal) { stopped_by = signal; });
    const auto written = synth::write(plan, flags.out, flags.force, progress, flags.threads);
    for (const int stop : stops) std::signal(stop, SIG_DFL);
    if (terminal) std::fprintf(stderr, "\r\033[K");
    if (!written.ok()) {
        if (!stopped_by) return written.error();
        std::fprintf(stderr, "polystrata synth: %s\n", written.error().message.c_str());
        return 128 + stopped_by;
    }
    std::printf("%s: %s, %.2f billion parameters in %zu tensors, %s in %.1f s\n", flags.out.c_str(), plan.title.c_str(),
                static_cast<double>(plan.parameters) / 1e9, plan.fills.size(), bytes_text(plan.file_bytes).c_str(),
                seconds());
    return 0;
}

}  // namespace

Run declare_synth(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    constexpr double kMany = 1 << 20;
    set.text("--like", flags->options.preset, "The model whose shapes it has (--list)", "PRESET");
    set.text("--mix", flags->options.mix, "Which tensors have which type (--list)", "NAME").shows_default();
    set.number("--layers", flags->options.layers, 0, kMany, "Only the first N layers (0: all)").shows_default();
    set.number("--seed", flags->options.seed, "The same seed gives the same bytes").shows_default();
    set.number("--skew", flags->options.skew, 0, 100, "How uneven the use of experts is: 0 even, 1 mild, 3 strong")
        .shows_default();
    set.toggle("--no-draft", flags->no_draft, "Leave out the draft block");
    set.text("--out", flags->out, "The file to write", "FILE");
    set.toggle("--force", flags->force, "Replace an existing file");
    set.number("--threads", flags->threads, 0, kMany, "Threads (0: one a core)").shows_default();
    set.toggle("--list", flags->list, "Name presets and mixes");
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
