#include "setup/model_file.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "base/checked.h"

namespace strata {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

Result<std::string> text_or_empty(const gguf::File& file, std::string_view key) {
    STRATA_TRY_ASSIGN(const auto found, file.find_string(key));
    return std::string(found.value_or(std::string_view{}));
}

Result<int64_t> integer_or_zero(const gguf::File& file, std::string_view suffix) {
    STRATA_TRY_ASSIGN(const auto found, file.find_int(file.arch_key(suffix), 0, kMost));
    return found.value_or(0);
}

/// Tensors, bytes and parameters, by type and by what is routed.
void add_tensors(const gguf::File& file, ModelFile& facts) {
    uint64_t expert_parameters = 0;
    for (const gguf::TensorInfo& tensor : file.tensors()) {
        facts.tensor_bytes += tensor.bytes;
        facts.parameters += tensor.elements();
        if (is_expert_tensor(tensor.name)) {
            facts.expert_bytes += tensor.bytes;
            expert_parameters += tensor.elements();
        }
        auto share = std::ranges::find(facts.types, tensor.type, &TypeShare::type);
        if (share == facts.types.end()) share = facts.types.insert(facts.types.end(), {tensor.type, 0, 0});
        ++share->tensors;
        share->bytes += tensor.bytes;
    }
    std::ranges::stable_sort(facts.types, std::greater{}, &TypeShare::bytes);
    facts.parameters_active = facts.parameters - expert_parameters;
    if (facts.experts > 0)
        facts.parameters_active +=
            static_cast<uint64_t>(static_cast<double>(expert_parameters) * static_cast<double>(facts.experts_used) /
                                  static_cast<double>(facts.experts));
}

/// A word of a file's name, cut at dashes and dots, that is a quantisation: Q4_K_M, IQ3_XXS, BF16, MXFP4 ...
bool is_quantisation(std::string_view word) {
    const auto digit = [&](size_t at) {
        return at < word.size() && std::isdigit(static_cast<unsigned char>(word[at]));
    };
    if (word == "F32" || word == "F16" || word == "BF16") return true;
    if (word.starts_with("MXFP") || word.starts_with("NVFP")) return digit(4);
    if (word.starts_with("IQ") || word.starts_with("TQ")) return digit(2);
    return word.starts_with("Q") && digit(1) && (word.size() == 2 || word.find('_') != std::string_view::npos);
}

}  // namespace

bool is_expert_tensor(std::string_view name) {
    const size_t at = name.find("_exps.");
    return at != std::string_view::npos;
}

std::string quantisation_in_name(std::string_view file_name) {
    std::string upper(file_name);
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    std::string_view rest = upper;
    std::string_view before;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find_first_of("-. "), rest.size());
        const std::string_view word = rest.substr(0, end);
        if (is_quantisation(word)) return (before == "UD" ? "UD-" : "") + std::string(word);
        before = word;
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return {};
}

Result<ModelFile> describe_model_file(const gguf::File& file) {
    ModelFile facts;
    const std::filesystem::path path(file.file_name());
    facts.architecture = std::string(file.architecture());
    STRATA_TRY_ASSIGN(facts.kind, text_or_empty(file, "general.type"));
    if (facts.kind.empty()) facts.kind = "model";
    STRATA_TRY_ASSIGN(facts.name, text_or_empty(file, "general.name"));
    if (facts.name.empty()) facts.name = path.stem().string();
    STRATA_TRY_ASSIGN(facts.tokenizer, text_or_empty(file, "tokenizer.ggml.model"));
    STRATA_TRY_ASSIGN(const std::string pre, text_or_empty(file, "tokenizer.ggml.pre"));
    if (!pre.empty()) facts.tokenizer += "/" + pre;
    facts.chat_template = file.has("tokenizer.chat_template");
    STRATA_TRY_ASSIGN(facts.layers, integer_or_zero(file, "block_count"));
    STRATA_TRY_ASSIGN(facts.width, integer_or_zero(file, "embedding_length"));
    STRATA_TRY_ASSIGN(facts.context, integer_or_zero(file, "context_length"));
    STRATA_TRY_ASSIGN(facts.experts, integer_or_zero(file, "expert_count"));
    STRATA_TRY_ASSIGN(facts.experts_used, integer_or_zero(file, "expert_used_count"));
    STRATA_TRY_ASSIGN(const int64_t draft_layers, integer_or_zero(file, "nextn_predict_layers"));
    facts.draft_block = draft_layers > 0;
    if (const gguf::Key* tokens = file.find_key("tokenizer.ggml.tokens"))
        facts.vocabulary = static_cast<int64_t>(tokens->count);
    facts.file_bytes = file.total_size();
    add_tensors(file, facts);
    facts.quantisation = quantisation_in_name(path.filename().string());
    if (facts.quantisation.empty() && !facts.types.empty())
        facts.quantisation = std::string(type_info(facts.types[0].type).name);
    return facts;
}

std::string parameters_text(uint64_t parameters) {
    char text[32];
    const auto count = static_cast<double>(parameters);
    if (parameters >= 10'000'000'000) {
        std::snprintf(text, sizeof text, "%.0fB", count / 1e9);
    } else if (parameters >= 1'000'000'000) {
        std::snprintf(text, sizeof text, "%.1fB", count / 1e9);
    } else if (parameters >= 10'000'000) {
        std::snprintf(text, sizeof text, "%.0fM", count / 1e6);
    } else if (parameters >= 1'000'000) {
        std::snprintf(text, sizeof text, "%.1fM", count / 1e6);
    } else {
        std::snprintf(text, sizeof text, "%.0fK", count / 1e3);
    }
    return text;
}

std::string bytes_text(uint64_t bytes) {
    char text[32];
    const auto count = static_cast<double>(bytes);
    if (bytes >= 1'000'000'000) {
        std::snprintf(text, sizeof text, "%.1f GB", count / 1e9);
    } else if (bytes >= 1'000'000) {
        std::snprintf(text, sizeof text, "%.1f MB", count / 1e6);
    } else if (bytes >= 1'000) {
        std::snprintf(text, sizeof text, "%.1f kB", count / 1e3);
    } else {
        std::snprintf(text, sizeof text, "%.0f B", count);
    }
    return text;
}

}  // namespace strata
