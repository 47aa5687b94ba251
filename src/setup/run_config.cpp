#include "setup/run_config.h"

#include <array>
#include <charconv>
#include <fstream>
#include <system_error>

namespace strata {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kLongestText = 64u << 20;

Error wrong(const fs::path& file, std::string_view key, std::string_view wanted) {
    return file_error(file.string() + ": \"" + std::string(key) + "\" must be " + std::string(wanted), "run-config");
}

Result<void> take_text(const fs::path& file, const Json& json, const char* key, std::string& out) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_string()) return wrong(file, key, "a string");
    out = found->get<std::string>();
    return {};
}

Result<void> take_texts(const fs::path& file, const Json& json, const char* key, std::vector<std::string>& out) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_array()) return wrong(file, key, "a list of strings");
    for (const Json& item : *found) {
        if (!item.is_string()) return wrong(file, key, "a list of strings");
        out.push_back(item.get<std::string>());
    }
    return {};
}

Result<void> take_flag(const fs::path& file, const Json& json, const char* key, bool& out) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_boolean()) return wrong(file, key, "true or false");
    out = found->get<bool>();
    return {};
}

Result<void> take_count(const fs::path& file, const Json& json, const char* key, std::optional<int64_t>& out) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_number_integer() || *found < 0 || *found > 1'000'000'000)
        return wrong(file, key, "a whole number from 0");
    out = found->get<int64_t>();
    return {};
}

Result<void> take_server_settings(const fs::path& file, const Json& json, RunConfig& config) {
    STRATA_TRY(take_texts(file, json, "cors_origins", config.cors_origins));
    STRATA_TRY(take_texts(file, json, "allowed_hosts", config.allowed_hosts));
    STRATA_TRY(take_flag(file, json, "switch_on_request", config.switch_on_request));
    STRATA_TRY(take_flag(file, json, "lazy_load", config.lazy_load));
    STRATA_TRY(take_count(file, json, "idle_unload_s", config.idle_unload_s));
    STRATA_TRY(take_count(file, json, "engine_silence_s", config.engine_silence_s));
    std::optional<int64_t> repeats;
    STRATA_TRY(take_count(file, json, "repeat_stop_tokens", repeats));
    config.repeat_stop_tokens = repeats.value_or(config.repeat_stop_tokens);
    std::string thinking;
    STRATA_TRY(take_text(file, json, "anthropic_thinking", thinking));
    if (!thinking.empty() && thinking != "on_request") return wrong(file, "anthropic_thinking", "\"on_request\"");
    config.thinks_on_request = !thinking.empty();
    return {};
}

Result<void> take_environment(const fs::path& file, const Json& json, RunConfig& config) {
    const auto found = json.find("env");
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_object()) return wrong(file, "env", "an object of strings");
    for (const auto& [name, value] : found->items()) {
        if (!value.is_string()) return wrong(file, "env", "an object of strings");
        config.environment.emplace_back(name, value.get<std::string>());
    }
    return {};
}

/// Position of the value that follows a flag in arguments, or of "--flag=value"'s argument; nothing without it.
struct FlagPlace {
    size_t argument;
    size_t prefix;  // characters in front of the value
};
std::optional<FlagPlace> find_flag(const std::vector<std::string>& arguments, const std::string& flag) {
    for (size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == flag && i + 1 < arguments.size()) return FlagPlace{i + 1, 0};
        if (arguments[i].starts_with(flag + "=")) return FlagPlace{i, flag.size() + 1};
    }
    return std::nullopt;
}

fs::path absolute_from(const fs::path& folder, const fs::path& path) {
    return path.empty() || path.is_absolute() ? path : (folder / path).lexically_normal();
}

}  // namespace

fs::path RunConfig::path_of(const std::string& flag) const {
    const auto place = find_flag(arguments, flag);
    return place ? fs::path(arguments[place->argument].substr(place->prefix)) : fs::path{};
}

std::optional<int64_t> RunConfig::max_context() const {
    const auto place = find_flag(arguments, "--max-context");
    if (!place) return std::nullopt;
    const std::string_view text = std::string_view(arguments[place->argument]).substr(place->prefix);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

Result<std::string> read_text_file(const fs::path& path) {
    std::error_code error;
    const uint64_t size = fs::file_size(path, error);
    if (error) return file_error(path.string() + ": cannot be opened: " + error.message(), "open");
    if (size > kLongestText) return file_error(path.string() + ": is larger than 64 MiB", "too-large");
    std::string text(size, '\0');
    std::ifstream in(path, std::ios::binary);
    in.read(text.data(), static_cast<std::streamsize>(size));
    if (!in) return file_error(path.string() + ": cannot be read", "read");
    return text;
}

Result<RunConfig> read_run_config(const fs::path& path) {
    const fs::path file = fs::absolute(path);
    STRATA_TRY_ASSIGN(std::string text, read_text_file(file));
    if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
    auto parsed = parse_json(text);
    if (!parsed) return file_error(file.string() + ": " + parsed.error().message, "run-config");
    const Json json = std::move(parsed).value();
    if (!json.is_object()) return file_error(file.string() + ": must hold a JSON object", "run-config");

    RunConfig config;
    config.file = file;
    std::string engine, folder, chat_template;
    STRATA_TRY(take_text(file, json, "exe", engine));
    STRATA_TRY(take_text(file, json, "cwd", folder));
    STRATA_TRY(take_text(file, json, "chat_template", chat_template));
    STRATA_TRY(take_text(file, json, "model_name", config.name));
    STRATA_TRY(take_text(file, json, "display_name", config.display_name));
    STRATA_TRY(take_text(file, json, "host", config.host));
    STRATA_TRY(take_text(file, json, "api_key", config.api_key));
    STRATA_TRY(take_texts(file, json, "args", config.arguments));
    STRATA_TRY(take_texts(file, json, "aliases", config.aliases));
    STRATA_TRY(take_environment(file, json, config));
    STRATA_TRY(take_server_settings(file, json, config));
    if (const auto port = json.find("port"); port != json.end() && !port->is_null()) {
        if (!port->is_number_integer() || *port < 0 || *port > 65535)
            return wrong(file, "port", "a number from 0 to 65535");
        config.port = port->get<int>();
    }
    if (const auto sampling = json.find("sampling"); sampling != json.end() && !sampling->is_null()) {
        if (!sampling->is_object()) return wrong(file, "sampling", "an object");
        for (const auto& [name, value] : sampling->items())
            if (!value.is_number()) return wrong(file, "sampling." + name, "a number");
        config.sampling = *sampling;
    }
    if (const auto vision = json.find("vision"); vision != json.end() && !vision->is_null()) {
        if (!vision->is_object()) return wrong(file, "vision", "an object");
        config.vision = true;
    }

    const fs::path base = file.parent_path();
    config.engine = absolute_from(base, engine);
    config.chat_template = absolute_from(base, chat_template);
    config.folder = folder.empty() ? base : absolute_from(base, folder);
    if (!find_flag(config.arguments, "--model")) return wrong(file, "args", "a list with \"--model\" and a file");
    for (const char* flag : {"--model", "--draft-model"}) {
        const auto place = find_flag(config.arguments, flag);
        if (!place) continue;
        std::string& argument = config.arguments[place->argument];
        argument = argument.substr(0, place->prefix) + absolute_from(base, argument.substr(place->prefix)).string();
    }
    if (config.name.empty()) {  // strata-NAME.json
        config.name = file.stem().string();
        if (config.name.starts_with("strata-")) config.name.erase(0, 7);
    }

    constexpr std::array known = {"exe",
                                  "args",
                                  "cwd",
                                  "model_name",
                                  "display_name",
                                  "host",
                                  "api_key",
                                  "aliases",
                                  "chat_template",
                                  "env",
                                  "port",
                                  "sampling",
                                  "vision",
                                  "cors_origins",
                                  "allowed_hosts",
                                  "switch_on_request",
                                  "lazy_load",
                                  "idle_unload_s",
                                  "engine_silence_s",
                                  "repeat_stop_tokens",
                                  "anthropic_thinking"};
    for (const auto& [name, value] : json.items())
        if (std::ranges::find(known, name) == known.end()) config.unknown_keys.push_back(name);
    return config;
}

Result<void> write_run_config(const fs::path& file, const Json& own) {
    std::error_code error;
    Json json = Json::object();
    const bool exists = fs::exists(file, error);
    if (exists) {
        STRATA_TRY_ASSIGN(std::string text, read_text_file(file));
        auto parsed = parse_json(text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text);
        if (parsed && parsed.value().is_object()) json = std::move(parsed).value();
    }
    for (const auto& [key, value] : own.items()) json[key] = value;
    const fs::path fresh = file.string() + ".new";
    {
        std::ofstream out(fresh, std::ios::binary);
        out << json_text(json, {.key_separator = ": ", .indent = 2}) << '\n';
        out.flush();
        if (!out) {
            fs::remove(fresh, error);
            return failure(fresh.string() + ": cannot be written; is the folder writable and the disk not full?");
        }
    }
    if (exists) fs::copy_file(file, file.string() + ".bak", fs::copy_options::overwrite_existing, error);
    fs::rename(fresh, file, error);
    if (error) return failure(file.string() + ": cannot be replaced: " + error.message());
    return {};
}

}  // namespace strata
