// What every command of `polystrata` has: a function that declares its flags and returns what runs once they are
// parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/result.h"
#include "setup/registry.h"

namespace strata::cli {

/// A command's end: its exit code, or the error that the program prints in one line (its kind is the exit code).
using Outcome = Result<int>;
using Run = std::function<Outcome()>;

Run declare_benchmark(CLI::App& app);
Run declare_chat(CLI::App& app);
Run declare_inspect(CLI::App& app);
Run declare_models(CLI::App& app);
Run declare_synth(CLI::App& app);
Run declare_render(CLI::App& app);
Run declare_setup(CLI::App& app);
Run declare_tokenize(CLI::App& app);

/// --model and --data-dir, which commands that take a model share.
struct ModelFlags {
    std::string model;
    std::string data_dir;

    void add(CLI::App& app, bool required = false);
    /// The folder with run configs and models/.
    Result<std::filesystem::path> home() const;
    Result<ModelEntry> resolve() const;
};

/// --engine-args: more flags for strata-poly.
struct EngineFlags {
    std::string arguments;

    void add(CLI::App& app);
    /// The words: separated by blanks, '...' and "..." keep them together. Refused: a quote that is not closed.
    Result<std::vector<std::string>> split() const;
};

/// Standard input to its end.
std::string read_standard_input();

}  // namespace strata::cli
