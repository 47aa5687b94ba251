// A run config: the file strata-NAME.json beside the program that makes a GGUF file a model with a name.
//
//     {"exe": "build/bin/strata-poly", "args": ["--model", "/path/model.gguf", "--max-context", "32768"], "cwd": ".",
//      "model_name": "qwen3.6-35b-a3b-ud-q3_k_m", "display_name": "Qwen3.6 35B-A3B", "port": 8080, "sampling": {...}}
//
// Paths are relative to the file. Other keys are the user's or a later version's: named and left alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/json.h"

namespace strata {

struct RunConfig {
    std::filesystem::path file;          // the config itself; empty for a model that has none
    std::filesystem::path engine;        // "exe", absolute
    std::vector<std::string> arguments;  // "args"; the values of --model and --draft-model are absolute
    std::filesystem::path folder;        // "cwd", absolute: where the engine runs
    std::string name;                    // "model_name"
    std::string display_name;
    std::vector<std::string> aliases;
    std::filesystem::path chat_template;  // a Jinja file in the place of the model's own; empty: none
    Json sampling = Json::object();       // defaults by the protocol's names
    int port = 8080;
    std::string host = "127.0.0.1";
    std::string api_key;
    std::vector<std::pair<std::string, std::string>> environment;
    bool vision = false;  // a picture encoder is configured

    // Of the server (docs/server.md); what is absent there is the flags' default.
    std::vector<std::string> cors_origins, allowed_hosts;
    bool switch_on_request = false, lazy_load = false;
    std::optional<int64_t> idle_unload_s, engine_silence_s;
    int64_t repeat_stop_tokens = 256;  // the same token so often in a row ends an answer; 0: never
    bool thinks_on_request = false;    // "anthropic_thinking": "on_request"
    std::vector<std::string> unknown_keys;

    /// The values of --model and --draft-model among the arguments; empty without one.
    std::filesystem::path model_path() const { return path_of("--model"); }
    std::filesystem::path draft_model_path() const { return path_of("--draft-model"); }
    /// The value of --max-context, if it is given.
    std::optional<int64_t> max_context() const;

  private:
    std::filesystem::path path_of(const std::string& flag) const;
};

/// Reads a run config. A bad value is refused by name; keys that are not known are listed.
Result<RunConfig> read_run_config(const std::filesystem::path& file);

/// Writes `own` over the keys of that name in FILE and keeps the others; an existing file stays as FILE.bak. The new
/// file takes the old one's place in one step.
Result<void> write_run_config(const std::filesystem::path& file, const Json& own);

/// A whole small file (at most 64 MiB) as text.
Result<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace strata
