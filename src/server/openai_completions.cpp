#include "server/openai_completions.h"

#include "server/openai_common.h"

namespace strata::server {
namespace {

constexpr size_t kMostPrompts = 64;

Api<std::vector<int32_t>> read_ids(const Json& list, const std::string& where) {
    std::vector<int32_t> ids;
    for (const Json& item : list) {
        if (!item.is_number_integer() || item < 0 || item > INT32_MAX)
            return invalid_type(where, "a list of token ids");
        ids.push_back(item.get<int32_t>());
    }
    return ids;
}

Api<std::vector<RawPrompt>> read_prompts(const Json& prompt) {
    std::vector<RawPrompt> out;
    if (prompt.is_string()) {
        out.emplace_back(prompt.get<std::string>());
        return out;
    }
    if (!prompt.is_array() || prompt.empty())
        return invalid_type("prompt", "a string, a list of strings, or a list of token ids");
    if (prompt[0].is_number()) {
        STRATA_TRY_ASSIGN(auto ids, read_ids(prompt, "prompt"));
        out.emplace_back(std::move(ids));
        return out;
    }
    if (prompt.size() > kMostPrompts) return invalid_value("prompt", "prompt may have at most 64 entries");
    for (size_t i = 0; i < prompt.size(); ++i) {
        const std::string where = "prompt[" + std::to_string(i) + "]";
        if (prompt[i].is_string()) {
            out.emplace_back(prompt[i].get<std::string>());
        } else if (prompt[i].is_array()) {
            STRATA_TRY_ASSIGN(auto ids, read_ids(prompt[i], where));
            out.emplace_back(std::move(ids));
        } else {
            return invalid_type(where, "a string or a list of token ids");
        }
    }
    return out;
}

class CompletionWriter : public OpenAiWriter {
  public:
    CompletionWriter(const AnswerRequest& request, const AnswerIdentity& identity)
        : OpenAiWriter({"cmpl-", "text_completion", "text_completion"}, request, identity),
          logprobs_(request.logprobs >= 0),
          offsets_(request.replies(), 0) {}

    std::string begin(int64_t) override { return {}; }

    std::string events(int reply, std::span<const AnswerEvent> events,
                       std::span<const TokenLogprob> logprobs) override {
        std::string text;
        for (const AnswerEvent& event : events)
            if (event.type == AnswerEvent::Type::content) text += event.text;
        if (text.empty() && logprobs.empty()) return {};
        return chunk(choice(reply, std::move(text), logprobs, nullptr));
    }

  private:
    Json last_choice(int reply, const char* finish) override { return choice(reply, "", {}, finish); }
    Json whole_choice(int reply, const ReplyResult& result, const char* finish) override {
        return choice(reply, result.answer.content, result.logprobs, finish);
    }

    Json choice(int index, std::string text, std::span<const TokenLogprob> logprobs, const char* finish) {
        return {{"index", index},
                {"text", std::move(text)},
                {"logprobs", logprobs_ ? old_logprobs(static_cast<size_t>(index), logprobs) : Json()},
                {"finish_reason", finish ? Json(finish) : Json()}};
    }

    /// The old form; offsets count characters (code points) of the reply.
    Json old_logprobs(size_t reply, std::span<const TokenLogprob> tokens) {
        Json texts = Json::array(), own = Json::array(), top = Json::array(), offsets = Json::array();
        for (const TokenLogprob& token : tokens) {
            const std::string text = displayed(token.token.text);
            texts.push_back(text);
            own.push_back(token.token.logprob);
            Json likeliest = Json::object();
            for (const auto& entry : token.top) likeliest[displayed(entry.text)] = entry.logprob;
            top.push_back(std::move(likeliest));
            offsets.push_back(offsets_[reply]);
            for (const char c : text) offsets_[reply] += (c & 0xC0) != 0x80 ? 1 : 0;
        }
        return {{"tokens", texts}, {"token_logprobs", own}, {"top_logprobs", top}, {"text_offset", offsets}};
    }

    const bool logprobs_;
    std::vector<int64_t> offsets_;
};

}  // namespace

Api<AnswerRequest> read_completion_request(Json json) {
    AnswerRequest out;
    const Fields body(json);
    const Json* prompt = body.find("prompt");
    if (!prompt) return missing("prompt");
    STRATA_TRY_ASSIGN(out.raw, read_prompts(*prompt));
    STRATA_TRY(read_openai_fields(body, {"max_tokens", "n_predict"}, out));
    STRATA_TRY_ASSIGN(const auto echo, body.boolean("echo"));
    if (echo.value_or(false)) return unsupported_parameter("echo", "echo is not supported");
    STRATA_TRY_ASSIGN(const auto best_of, body.integer("best_of", 1, 64));
    if (best_of && *best_of > out.n) return unsupported_value("best_of", "best_of above n is not supported");
    STRATA_TRY_ASSIGN(out.suffix, body.text("suffix"));
    if (out.suffix && out.suffix->empty()) out.suffix.reset();
    STRATA_TRY_ASSIGN(const auto logprobs, body.integer("logprobs", 0, 5));
    out.logprobs = static_cast<int>(logprobs.value_or(-1));
    return out;
}

std::unique_ptr<AnswerWriter> completion_writer(const AnswerRequest& request, const AnswerIdentity& identity) {
    return std::make_unique<CompletionWriter>(request, identity);
}

}  // namespace strata::server
