#include "cli/model_text.h"

#include <algorithm>
#include <cstdio>

#include "cli/line_buffer.h"

namespace strata::cli {
namespace {

std::string padded(const std::string& text, size_t width) {
    const auto used = static_cast<size_t>(std::max(display_width(text), 0));
    return text + std::string(used < width ? width - used : 0, ' ');
}

}  // namespace

std::string fact_line(std::string_view name, const std::string& value) {
    return value.empty() ? std::string{} : "  " + padded(std::string(name), 15) + value + "\n";
}

std::string models_table(const Registry& registry) {
    size_t width = 0;
    for (const ModelEntry& entry : registry.entries()) width = std::max(width, entry.id.size());
    std::string text;
    for (const ModelEntry& entry : registry.entries()) {
        text += padded(entry.id, width + 2);
        if (entry.facts) text += padded(bytes_text(entry.facts->file_bytes), 9) + " " + entry.display_name;
        if (!entry.available()) text += std::string(entry.facts ? ": " : "") + "cannot be used: " + entry.problem;
        text += "\n";
    }
    return text;
}

std::string facts_text(const ModelFile& facts) {
    std::string text = fact_line("name", facts.name);
    text += fact_line("architecture", facts.architecture.empty() ? "none" : facts.architecture);
    if (facts.kind != "model") text += fact_line("kind", facts.kind);
    if (facts.parameters > 0) {
        std::string parameters = parameters_text(facts.parameters);
        if (facts.experts > 0) parameters += ", " + parameters_text(facts.parameters_active) + " active for a token";
        text += fact_line("parameters", parameters);
    }
    if (facts.layers > 0) {
        std::string layers = std::to_string(facts.layers) + ", width " + std::to_string(facts.width);
        if (facts.draft_block) layers += ", the last for guesses";
        text += fact_line("layers", layers);
    }
    if (facts.experts > 0)
        text += fact_line("experts", std::to_string(facts.experts) + " a layer, " + std::to_string(facts.experts_used) +
                                         " used by a token");
    if (facts.context > 0) text += fact_line("context", std::to_string(facts.context) + " tokens");
    if (!facts.tokenizer.empty())
        text += fact_line("tokenizer", facts.tokenizer + ", " + std::to_string(facts.vocabulary) + " tokens, " +
                                           (facts.chat_template ? "with" : "without") + " a chat template");
    std::string types;
    for (const TypeShare& share : facts.types) {
        char percent[16];
        std::snprintf(
            percent, sizeof percent, "%.3g%%",
            100.0 * static_cast<double>(share.bytes) / static_cast<double>(std::max<uint64_t>(facts.tensor_bytes, 1)));
        types += (types.empty() ? "" : ", ") + std::string(type_info(share.type).name) + " " + percent;
    }
    text += fact_line("types", types);
    return text;
}

std::string model_text(const ModelEntry& entry) {
    std::string text = entry.id + "\n";
    text += fact_line("shown as", entry.display_name);
    text += fact_line("file", entry.path.string());
    if (!entry.config.file.empty()) text += fact_line("run config", entry.config.file.string());
    if (entry.facts) {
        text += facts_text(*entry.facts);
        text += fact_line("size", bytes_text(entry.facts->file_bytes) + ": dense weights " +
                                      bytes_text(entry.facts->dense_bytes()) + ", experts " +
                                      bytes_text(entry.facts->expert_bytes));
    }
    text += fact_line("notes", entry.notes);
    text += fact_line("usable", entry.available() ? "yes" : "no: " + entry.problem);
    return text;
}

}  // namespace strata::cli
