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

Run declare_synth(CLI::App& app) {
    auto flags = std::make_shared<Flags>();
    app.add_option("--like", flags->options.preset, "The model whose shapes it has (--list)")->type_name("PRESET");
    app.add_option("--mix", flags->options.mix, "Which tensors have which type (--list)")
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--layers", flags->options.layers, "Only the first N layers (0: all)")
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--seed", flags->options.seed, "The same seed gives the same bytes")
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--skew", flags->options.skew, "How uneven the use of experts is: 0 even, 1 mild, 3 strong")
        ->type_name("F")
        ->capture_default_str();
    app.add_flag("--no-draft", flags->no_draft, "Leave out the draft block");
    app.add_option("--out", flags->out, "The file to write")->type_name("FILE");
    app.add_flag("--force", flags->force, "Replace an existing file");
    app.add_option("--threads", flags->threads, "Threads (0: one a core)")->type_name("N")->capture_default_str();
    app.add_flag("--list", flags->list, "Name presets and mixes");
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
