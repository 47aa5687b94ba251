#include "server/model_text.h"

#include <algorithm>
#include <limits>

#include "gguf/file.h"

namespace strata::server {
namespace {

constexpr int kPenaltyTokens = 64;  // how far penalties look back when a penalty is asked for and nothing says

/// A run config's number over the file's.
template <class T, class Find>
Result<void> settle(T& value, const Json& configured, const char* name, const Find& find) {
    if (const auto found = configured.find(name); found != configured.end() && found->is_number()) {
        value = found->get<T>();
        return {};
    }
    STRATA_TRY_ASSIGN(const auto stored, find());
    if (stored) value = static_cast<T>(*stored);
    return {};
}

Result<Sampling> defaults(const Json& configured, const gguf::File& file) {
    Sampling out;
    out.temperature = 0.8f;
    out.top_k = 40;
    out.top_p = 0.95f;
    out.min_p = 0.05f;
    const auto real = [&](const char* key) { return [&file, key] { return file.find_float(key); }; };
    const auto whole = [&](const char* key) {
        return [&file, key] { return file.find_int(key, 0, std::numeric_limits<int>::max()); };
    };
    const auto none = [] { return Result<std::optional<float>>(std::optional<float>()); };
    STRATA_TRY(settle(out.temperature, configured, "temperature", real("general.sampling.temp")));
    STRATA_TRY(settle(out.top_k, configured, "top_k", whole("general.sampling.top_k")));
    STRATA_TRY(settle(out.top_p, configured, "top_p", real("general.sampling.top_p")));
    STRATA_TRY(settle(out.min_p, configured, "min_p", real("general.sampling.min_p")));
    STRATA_TRY(settle(out.penalty_repeat, configured, "repeat_penalty", real("general.sampling.penalty_repeat")));
    STRATA_TRY(settle(out.penalty_last_n, configured, "penalty_last_n", whole("general.sampling.penalty_last_n")));
    STRATA_TRY(settle(out.penalty_present, configured, "presence_penalty", none));
    STRATA_TRY(settle(out.penalty_freq, configured, "frequency_penalty", none));
    return out;
}

}  // namespace

Result<std::shared_ptr<const ModelText>> ModelText::open(const ModelEntry& entry) {
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(entry.path));
    STRATA_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(file));
    STRATA_TRY_ASSIGN(std::string source, chat_template_of(entry.config, file));
    std::shared_ptr<ModelText> text(new ModelText(entry, std::move(tokenizer)));
    auto chat = ChatFormat::make(
        ChatModel::from(text->tokenizer_, entry.id, std::string(file.architecture()), std::move(source)));
    if (chat)
        text->chat_.emplace(std::move(*chat));
    else
        text->chat_problem_ = chat.error().message;
    STRATA_TRY_ASSIGN(text->sampling_, defaults(entry.config.sampling, file));
    return std::shared_ptr<const ModelText>(std::move(text));
}

Sampling ModelText::sampling(const SamplingFields& f) const {
    Sampling out = sampling_;
    const auto take = [](auto& value, const auto& given) {
        if (given) value = *given;
    };
    take(out.temperature, f.temperature);
    take(out.top_p, f.top_p);
    take(out.min_p, f.min_p);
    take(out.typical, f.typical);
    take(out.top_k, f.top_k);
    take(out.penalty_repeat, f.penalty_repeat);
    take(out.penalty_present, f.penalty_present);
    take(out.penalty_freq, f.penalty_freq);
    take(out.dry_multiplier, f.dry_multiplier);
    take(out.dry_base, f.dry_base);
    take(out.dry_allowed_length, f.dry_allowed_length);
    take(out.dry_last_n, f.dry_last_n);
    take(out.seed, f.seed);
    const bool penalised = out.penalty_repeat != 1 || out.penalty_present != 0 || out.penalty_freq != 0;
    if (f.penalty_last_n)
        out.penalty_last_n = *f.penalty_last_n;
    else if (penalised && out.penalty_last_n <= 0)
        out.penalty_last_n = kPenaltyTokens;
    out.bias = f.bias;
    for (const int32_t id : tokenizer_.suppressed()) out.bias.emplace_back(id, -1e9f);
    std::erase_if(out.bias, [&](const auto& bias) { return bias.first >= tokenizer_.vocab_size(); });
    return out;
}

Api<TokenPrompt> ModelText::render(const ChatRequest& request) const {
    if (!chat_) {
        ApiError error = internal_error("this model cannot chat: " + chat_problem_);
        error.code = "template_broken";
        return error;
    }
    TokenPrompt out;
    auto prompt = chat_->render(request);
    if (!prompt) return from_text_error(prompt.error());
    if (prompt->pictures > 0)
        return unsupported_value("messages", "image input is not supported: this model has no picture encoder here");
    out.chat = std::move(*prompt);
    out.ids = tokenizer_.encode_prompt(out.chat.text);
    out.turn_at = last_turn(request, out);
    return out;
}

/// Row of the prompt where the run of user and tool messages at its end begins: what comes before stays when a client
/// sends the conversation again with a longer or rewritten last turn.
std::optional<int64_t> ModelText::last_turn(const ChatRequest& request, const TokenPrompt& prompt) const {
    const Json& messages = request.messages;
    if (!messages.is_array() || messages.size() < 3) return std::nullopt;
    size_t keep = messages.size();
    const auto role = [&](size_t i) {
        const auto found = messages[i].find("role");
        return found != messages[i].end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    while (keep > 0 && role(keep - 1) != "assistant") --keep;
    if (keep == 0 || keep == messages.size()) return std::nullopt;
    ChatRequest before;
    before.tools = request.tools;
    before.tool_choice = request.tool_choice == "none" ? Json("none") : Json();
    before.thinking = request.thinking;
    before.effort = request.effort;
    before.template_kwargs = request.template_kwargs;
    before.now = request.now;
    before.add_generation_prompt = false;
    before.messages = Json::array();
    for (size_t i = 0; i < keep; ++i) before.messages.push_back(messages[i]);
    const auto shorter = chat_->render(before);
    if (!shorter) return std::nullopt;
    const std::string &a = shorter->text, &b = prompt.chat.text;
    const auto common = static_cast<size_t>(std::ranges::mismatch(a, b).in2 - b.begin());
    size_t bytes = 0;
    int64_t rows = 0;
    for (const int32_t id : prompt.ids) {
        if (rows == 0 && tokenizer_.bos() == id && !b.starts_with(tokenizer_.bos_text())) {
            ++rows;
            continue;
        }
        bytes += tokenizer_.piece(id, true).size();
        if (bytes > common) break;
        ++rows;
    }
    return rows > 0 && rows < static_cast<int64_t>(prompt.ids.size()) ? std::optional(rows) : std::nullopt;
}

Api<TokenPrompt> ModelText::raw_prompt(const RawPrompt& prompt, const std::optional<std::string>& suffix) const {
    TokenPrompt out;
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
        for (const int32_t id : *ids)
            if (id < 0 || id >= tokenizer_.vocab_size())
                return invalid_value("prompt", "prompt: " + std::to_string(id) + " is no token of this model");
        out.ids = *ids;
    } else if (suffix) {
        const auto find = [&](std::initializer_list<const char*> names) -> std::optional<int32_t> {
            for (const char* name : names)
                if (const auto id = tokenizer_.token_id(name)) return id;
            return std::nullopt;
        };
        const auto before = find({"<|fim_prefix|>", "<fim_prefix>"});
        const auto behind = find({"<|fim_suffix|>", "<fim_suffix>"});
        const auto middle = find({"<|fim_middle|>", "<fim_middle>"});
        if (!before || !behind || !middle)
            return unsupported_parameter("suffix",
                                         "suffix is not supported: this model has no fill-in-the-middle tokens");
        const auto text = [&](const std::string& t) { return tokenizer_.encode(t, {.parse_special = false}); };
        if (tokenizer_.adds_bos() && tokenizer_.bos()) out.ids.push_back(*tokenizer_.bos());
        out.ids.push_back(*before);
        for (const int32_t id : text(std::get<std::string>(prompt))) out.ids.push_back(id);
        out.ids.push_back(*behind);
        for (const int32_t id : text(*suffix)) out.ids.push_back(id);
        out.ids.push_back(*middle);
    } else {
        out.ids = tokenizer_.encode_prompt(std::get<std::string>(prompt));
    }
    if (out.ids.empty() && tokenizer_.bos()) out.ids.push_back(*tokenizer_.bos());
    if (out.ids.empty()) return invalid_value("prompt", "prompt has no tokens");
    return out;
}

}  // namespace strata::server
