#include "cli/engine_start.h"

#include <atomic>

#include "setup/program.h"

namespace strata::cli {

Result<std::unique_ptr<protocol::EngineProcess>> start_engine(const ModelEntry& model,
                                                              const std::vector<std::string>& more,
                                                              Interrupts& interrupts) {
    std::filesystem::path engine = model.config.engine;
    if (engine.empty()) {
        STRATA_TRY_ASSIGN(const ProgramPaths paths, program_paths());
        engine = paths.binaries / "strata-poly";
    }
    protocol::EngineOptions options;
    options.process.command = {engine.string()};
    for (const auto* arguments : {&model.config.arguments, &more})
        options.process.command.insert(options.process.command.end(), arguments->begin(), arguments->end());
    options.process.directory = model.config.folder.string();
    options.process.environment = model.config.environment;

    std::atomic<bool> interrupted = false;
    const Interrupts::Watch watch(interrupts, [&](bool) { interrupted = true; });
    auto started = protocol::EngineProcess::start(std::move(options), [&] { return interrupted.load(); });
    if (!started && interrupted)
        return Error{ErrorKind::failed, "interrupted while the model was loading", "interrupted"};
    return started;
}

}  // namespace strata::cli
