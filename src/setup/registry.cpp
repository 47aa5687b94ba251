#include "setup/registry.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <system_error>

#include "models/model.h"

namespace strata {
namespace fs = std::filesystem;
namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

/// Reads the header of the entry's file: facts, or the problem.
void read_facts(ModelEntry& entry) {
    auto file = gguf::File::open(entry.path);
    if (!file) {
        entry.problem = file.error().message;
        return;
    }
    auto facts = describe_model_file(*file);
    if (!facts) {
        entry.problem = facts.error().message;
        return;
    }
    entry.facts = std::move(facts).value();
    if (entry.display_name.empty()) entry.display_name = entry.facts->name;
    const std::vector<std::string> known = known_architectures();
    if (entry.facts->kind != "model") {
        entry.problem = entry.path.string() + ": is a file of type '" + entry.facts->kind + "', not a model";
    } else if (std::ranges::find(known, entry.facts->architecture) == known.end()) {
        entry.problem = entry.path.string() + ": architecture '" + entry.facts->architecture + "' is not known here";
    } else if (entry.facts->tokenizer.empty()) {
        entry.problem = entry.path.string() + ": has no tokenizer (tokenizer.ggml.model)";
    }
}

ModelEntry entry_of_file(const fs::path& path) {
    ModelEntry entry;
    entry.path = fs::absolute(path).lexically_normal();
    entry.id = lower(entry.path.stem().string());
    entry.config.name = entry.id;
    entry.config.folder = fs::current_path();
    entry.config.arguments = {"--model", entry.path.string()};
    read_facts(entry);
    if (entry.display_name.empty()) entry.display_name = entry.path.stem().string();
    return entry;
}

std::vector<fs::path> files_of(const fs::path& folder, std::string_view prefix, std::string_view suffix) {
    std::vector<fs::path> files;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        if (name.starts_with(prefix) && name.ends_with(suffix) && name.size() > prefix.size() + suffix.size())
            files.push_back(at->path());
    }
    std::ranges::sort(files);
    return files;
}

std::string list_ids(const std::vector<const ModelEntry*>& entries) {
    std::string text;
    for (const ModelEntry* entry : entries) text += (text.empty() ? "" : ", ") + entry->id;
    return text;
}

double gigabytes(uint64_t bytes) {
    return static_cast<double>(bytes / 100'000'000) / 10;
}

}  // namespace

Result<std::string> chat_template_of(const RunConfig& config, const gguf::File& file) {
    if (!config.chat_template.empty()) return read_text_file(config.chat_template);
    STRATA_TRY_ASSIGN(const auto own, file.find_string("tokenizer.chat_template"));
    return std::string(own.value_or(std::string_view{}));
}

bool is_later_part(const fs::path& path) {
    static const std::regex part("-([0-9]{5})-of-[0-9]{5}\\.gguf$");
    std::smatch match;
    const std::string name = path.filename().string();
    return std::regex_search(name, match, part) && match[1] != "00001";
}

int64_t ModelEntry::context() const {
    if (const auto limit = config.max_context()) return *limit;
    return facts ? facts->context : 0;
}

Json entry_json(const ModelEntry& entry) {
    Json json = {{"id", entry.id}, {"display_name", entry.display_name}};
    if (entry.facts) json["backend"] = entry.facts->architecture;
    json["path"] = entry.path.string();
    if (entry.facts) {
        const ModelFile& facts = *entry.facts;
        json["quantization"] = facts.quantisation;
        json["params_total"] = parameters_text(facts.parameters);
        json["params_active"] = parameters_text(facts.parameters_active);
        json["context"] = entry.context();
        json["multimodal"] = entry.config.vision;
        json["mtp"] = facts.draft_block || !entry.config.draft_model_path().empty();
        json["vram_gb"] = {{"least", gigabytes(facts.dense_bytes() + 1'000'000'000)},
                           {"all", gigabytes(facts.tensor_bytes + 1'000'000'000)}};
        json["ram_gb"] = gigabytes(facts.file_bytes);
    }
    json["status"] = entry.available() ? "available" : "unavailable";
    if (!entry.available()) json["problem"] = entry.problem;
    if (!entry.notes.empty()) json["notes"] = entry.notes;
    return json;
}

Result<Registry> Registry::read(const fs::path& home) {
    std::error_code error;
    if (!fs::is_directory(home, error))
        return file_error(home.string() + ": is not a folder; --data-dir names the one with the models", "no-folder");
    Registry registry;
    std::vector<fs::path> taken;
    for (const fs::path& path : files_of(home, "strata-", ".json")) {
        auto config = read_run_config(path);
        ModelEntry entry;
        if (!config) {
            entry.id = path.stem().string().substr(std::string_view("strata-").size());
            entry.display_name = entry.id;
            entry.problem = config.error().message;
            registry.entries_.push_back(std::move(entry));
            continue;
        }
        entry.config = std::move(config).value();
        for (const std::string& key : entry.config.unknown_keys)
            registry.warnings_.push_back(path.string() + ": key \"" + key + "\" is not known and was ignored");
        entry.id = entry.config.name;
        entry.display_name = entry.config.display_name;
        entry.path = entry.config.model_path();
        taken.push_back(fs::weakly_canonical(entry.path, error));
        read_facts(entry);
        if (entry.display_name.empty()) entry.display_name = entry.id;
        registry.entries_.push_back(std::move(entry));
    }
    for (const fs::path& path : files_of(home / "models", "", ".gguf")) {
        if (is_later_part(path) || std::ranges::find(taken, fs::weakly_canonical(path, error)) != taken.end()) continue;
        registry.entries_.push_back(entry_of_file(path));
    }
    if (fs::exists(home / "models.json", error)) {
        auto text = read_text_file(home / "models.json");
        auto notes = text ? parse_json(*text) : Result<Json>(text.error());
        if (!notes) {
            registry.warnings_.push_back("models.json: " + notes.error().message);
        } else {
            for (ModelEntry& entry : registry.entries_) {
                const auto found = notes->is_object() ? notes->find(entry.id) : notes->end();
                if (found == notes->end() || !found->is_object()) continue;
                if (const auto name = found->find("display_name"); name != found->end() && name->is_string())
                    entry.display_name = name->get<std::string>();
                if (const auto note = found->find("notes"); note != found->end() && note->is_string())
                    entry.notes = note->get<std::string>();
            }
        }
    }
    std::ranges::stable_sort(registry.entries_, {}, &ModelEntry::id);
    return registry;
}

Result<const ModelEntry*> Registry::find(std::string_view name) const {
    const std::string wanted = lower(name);
    std::vector<const ModelEntry*> matches;
    for (const ModelEntry& entry : entries_) {
        if (lower(entry.id) == wanted || std::ranges::find(entry.config.aliases, name) != entry.config.aliases.end())
            return &entry;
        if (lower(entry.id).find(wanted) != std::string::npos) matches.push_back(&entry);
    }
    if (matches.size() == 1) return matches[0];
    if (matches.size() > 1)
        return usage_error("several models have '" + std::string(name) + "' in their names: " + list_ids(matches));
    std::vector<const ModelEntry*> all;
    for (const ModelEntry& entry : entries_) all.push_back(&entry);
    return file_error(
        "no model is called '" + std::string(name) + "', and no file; " +
            (all.empty() ? "none is installed: ./setup.sh installs one" : "installed are " + list_ids(all)),
        "no-model");
}

Result<const ModelEntry*> Registry::only() const {
    std::vector<const ModelEntry*> usable;
    for (const ModelEntry& entry : entries_)
        if (entry.available()) usable.push_back(&entry);
    if (usable.size() == 1) return usable[0];
    const auto is_set_up = [](const ModelEntry* entry) { return !entry->config.file.empty(); };
    if (std::ranges::count_if(usable, is_set_up) == 1) return *std::ranges::find_if(usable, is_set_up);
    if (usable.empty())
        return file_error("no model is installed: ./setup.sh installs one, or name a GGUF file with --model FILE",
                          "no-model");
    return usage_error("several models are installed; name one with --model: " + list_ids(usable));
}

Result<ModelEntry> resolve_model(const std::string& name_or_file, const fs::path& home) {
    std::error_code error;
    const bool is_path = name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".gguf");
    ModelEntry entry;
    if (!name_or_file.empty() && (is_path || fs::is_regular_file(name_or_file, error))) {
        if (!fs::exists(name_or_file, error)) return file_error(name_or_file + ": there is no such file", "open");
        entry = entry_of_file(name_or_file);
    } else {
        STRATA_TRY_ASSIGN(const Registry registry, Registry::read(home));
        STRATA_TRY_ASSIGN(const ModelEntry* found,
                          name_or_file.empty() ? registry.only() : registry.find(name_or_file));
        entry = *found;
    }
    if (!entry.available()) return file_error(entry.problem, "unavailable");
    return entry;
}

}  // namespace strata
