// The models installed beside the program: run configs, and GGUF files in its models folder that have none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "setup/model_file.h"
#include "setup/run_config.h"
#include "text/json.h"

namespace strata {

struct ModelEntry {
    std::string id;
    std::string display_name;
    std::filesystem::path path;      // the GGUF file
    RunConfig config;                // config.file is empty where the model has none
    std::optional<ModelFile> facts;  // nothing where the file cannot be read
    std::string problem;             // why it cannot be used: a sentence; empty when it can
    std::string notes;               // models.json

    bool available() const { return problem.empty(); }
    int64_t context() const;  // rows a conversation may have, as far as config and file say
};

/// The public form of an entry (`polystrata models --json`, the server's registry).
Json entry_json(const ModelEntry& entry);

class Registry {
  public:
    /// Reads HOME/strata-*.json, HOME/models/*.gguf and HOME/models.json. A model that cannot be used is listed with
    /// its problem; only a folder that cannot be read is an error. Entries are sorted by id.
    static Result<Registry> read(const std::filesystem::path& home);

    const std::vector<ModelEntry>& entries() const { return entries_; }
    /// Lines for the log: configs with unknown keys or of a wrong form.
    const std::vector<std::string>& warnings() const { return warnings_; }

    /// The model with this id or alias, or the only one whose id contains the name (case ignored). Refused: none,
    /// several (lists them).
    Result<const ModelEntry*> find(std::string_view name) const;
    /// The model of commands without a name: the only available one, or where there are several the only one that was
    /// set up (has a run config), as the project comes with a model. Refused: none, several.
    Result<const ModelEntry*> only() const;

  private:
    std::vector<ModelEntry> entries_;
    std::vector<std::string> warnings_;
};

/// NAME of the registry or FILE (a path of a GGUF; wins where both exist): what every command's --model means. A file
/// gets an entry of its own; it is refused where it cannot be opened. An empty name takes the only installed model.
Result<ModelEntry> resolve_model(const std::string& name_or_file, const std::filesystem::path& home);

/// The model's chat template: the run config's, else the one in the file; may be empty.
Result<std::string> chat_template_of(const RunConfig& config, const gguf::File& file);

/// Whether a file's name says that it is the second or a later part of a set ("NAME-00002-of-00003.gguf").
bool is_later_part(const std::filesystem::path& path);

}  // namespace strata
