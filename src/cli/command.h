// What every command of `polystrata` has: a function that declares its flags and returns what runs once they are
// parsed.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cli/flag_set.h"
#include "setup/registry.h"

namespace strata::cli {

/// A command's end: its exit code, or the error that the program prints in one line (its kind is the exit code).
using Outcome = Result<int>;
using Run = std::function<Outcome()>;

Run declare_benchmark(FlagSet& flags);
Run declare_chat(FlagSet& flags);
Run declare_eval(FlagSet& flags);
Run declare_grammar(FlagSet& flags);
Run declare_inspect(FlagSet& flags);
Run declare_models(FlagSet& flags);
Run declare_synth(FlagSet& flags);
Run declare_render(FlagSet& flags);
Run declare_serve(FlagSet& flags);
Run declare_setup(FlagSet& flags);
Run declare_tokenize(FlagSet& flags);

/// --model and --data-dir, which commands that take a model share.
struct ModelFlags {
    std::string model;
    std::string data_dir;

    /// Both; returns --model.
    Flag add(FlagSet& flags);
    void add_data_dir(FlagSet& flags);
    /// The folder with run configs and models/.
    Result<std::filesystem::path> home() const;
    Result<ModelEntry> resolve() const;
};

/// --engine-args: more flags for strata-poly.
struct EngineFlags {
    std::string arguments;

    void add(FlagSet& flags);
    /// The words: separated by blanks, '...' and "..." keep them together. Refused: a quote that is not closed.
    Result<std::vector<std::string>> split() const;
};

/// Standard input to its end.
std::string read_standard_input();

}  // namespace strata::cli
