// From a model file to an engine that can answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/file_warmer.h"
#include "engine/grammar_constraint.h"
#include "engine/poly_options.h"
#include "gguf/file.h"

namespace strata {

/// What lives as long as the engine, in the order of its making.
struct OpenedEngine {
    std::optional<gguf::File> file;
    std::optional<gguf::File> draft_file;  // a draft model in a file of its own
    std::unique_ptr<Device> device;
    std::unique_ptr<Model> model;
    std::unique_ptr<ExpertStore> experts;  // of a card with slots; else null
    std::unique_ptr<Engine> engine;
    std::optional<GrammarConstraints> grammars;
    std::optional<FileWarmer> warmer;  // where the CPU reads the files in place

    std::string kv;
    double load_ms = 0;
    uint64_t scratch_bytes = 0;
    uint64_t conversation_bytes = 0;  // of a conversation of max_context rows

    /// Whether the model, or all of it but some experts, is in a card's memory.
    bool on_card() const { return device->facts().memory_total > 0; }
    int64_t experts_total() const;
    /// In a card's memory.
    int64_t experts_cached() const { return experts ? experts->here() : on_card() ? experts_total() : 0; }
    /// Of the files that are read in place.
    uint64_t file_bytes() const { return file->total_size() + (draft_file ? draft_file->total_size() : 0); }
    /// Where guesses beside repeats come from: "block" (of the model's file), "model" (of a file of its own) or "none".
    const char* draft_kind() const;
    /// A number that tells this model from others, for saved conversations: from the file's header and samples of its
    /// weights.
    uint64_t model_id() const;
    /// Gives a request the constraint that its grammar asks for.
    Result<void> constrain(EngineRequest& request);
};

Result<std::unique_ptr<OpenedEngine>> open_engine(const PolyOptions& options);

}  // namespace strata
