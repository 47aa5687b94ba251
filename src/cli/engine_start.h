// Starts the engine of a model as a child process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/interrupts.h"
#include "protocol/client.h"
#include "setup/registry.h"

namespace strata::cli {

/// Runs the model's run config (its engine, or the strata-poly beside this program) with `more` arguments behind and
/// waits until it can answer. Ctrl-C ends the start: an error with the code "interrupted". An engine that does not
/// start gives its last words, and the kind of its exit code.
Result<std::unique_ptr<protocol::EngineProcess>> start_engine(const ModelEntry& model,
                                                              const std::vector<std::string>& more,
                                                              Interrupts& interrupts);

}  // namespace strata::cli
