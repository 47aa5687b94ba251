#include "server/openai_completions.h"

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
        API_TRY_ASSIGN(auto ids, read_ids(prompt, "prompt"));
        out.emplace_back(std::move(ids));
        return out;
    }
    if (prompt.size() > kMostPrompts) return invalid_value("prompt", "prompt may have at most 64 entries");
    for (size_t i = 0; i < prompt.size(); ++i) {
        const std::string where = "prompt[" + std::to_string(i) + "]";
        if (prompt[i].is_string()) {
            out.emplace_back(prompt[i].get<std::string>());
        } else if (prompt[i].is_array()) {
            API_TRY_ASSIGN(auto ids, read_ids(prompt[i], where));
            out.emplace_back(std::move(ids));
        } else {
            return invalid_type(where, "a string or a list of token ids");
        }
    }
    return out;
}

class CompletionWriter : public AnswerWriter {
  public:
    CompletionWriter(const AnswerRequest& request, const AnswerIdentity& identity)
        : identity_(identity),
          include_usage_(request.include_usage),
          logprobs_(request.logprobs >= 0),
          offsets_(request.replies(), 0) {}

    std::string begin(int64_t) override { return {}; }

    std::string events(int reply, std::span<const AnswerEvent> events,
                       std::span<const TokenLogprob> logprobs) override {
        std::string text;
        for (const AnswerEvent& event : events)
            if (event.type == AnswerEvent::Type::content) text += event.text;
        if (text.empty() && logprobs.empty()) return {};
        return sse("", around(choice(reply, std::move(text), logprobs, nullptr)));
    }

    std::string end_reply(int reply, const ReplyResult& result, const Totals& totals) override {
        Json last = around(choice(reply, "", {}, finish_name(result.finish)));
        last["timings"] = timings_json(totals);
        return sse("", last);
    }

    std::string end(const Totals& totals) override {
        std::string out;
        if (include_usage_) {
            Json last = around(Json());
            last["usage"] = usage_json(totals);
            out += sse("", last);
        }
        return out + "data: [DONE]\n\n";
    }

    std::string error(const ApiError& error, const std::string& request_id) override {
        return sse("", error_json(error, Wire::openai, request_id));
    }

    Json whole(std::span<const ReplyResult> replies, const Totals& totals) override {
        Json out = around(Json());
        for (size_t i = 0; i < replies.size(); ++i)
            out["choices"].push_back(choice(static_cast<int>(i), replies[i].answer.content, replies[i].logprobs,
                                            finish_name(replies[i].finish)));
        out["usage"] = usage_json(totals);
        out["timings"] = timings_json(totals);
        return out;
    }

  private:
    static const char* finish_name(Finish finish) { return finish == Finish::length ? "length" : "stop"; }

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

    Json around(Json choice) const {
        Json out = {{"id", "cmpl-" + identity_.id},        {"object", "text_completion"},
                    {"created", identity_.created},        {"model", identity_.model},
                    {"system_fingerprint", fingerprint()}, {"choices", Json::array()}};
        if (!choice.is_null()) out["choices"].push_back(std::move(choice));
        return out;
    }

    const AnswerIdentity identity_;
    const bool include_usage_;
    const bool logprobs_;
    std::vector<int64_t> offsets_;
};

}  // namespace

Api<AnswerRequest> read_completion_request(Json json) {
    AnswerRequest out;
    const Fields body(json);
    const Json* prompt = body.find("prompt");
    if (!prompt) return missing("prompt");
    API_TRY_ASSIGN(out.raw, read_prompts(*prompt));
    API_TRY_ASSIGN(const auto model, body.text("model"));
    out.model = model.value_or("");
    API_TRY_ASSIGN(const auto stream, body.boolean("stream"));
    out.stream = stream.value_or(false);
    API_TRY_ASSIGN(const Json* options, body.object("stream_options"));
    if (options) {
        API_TRY_ASSIGN(const auto usage, Fields(*options, "stream_options.").boolean("include_usage"));
        out.include_usage = usage.value_or(false);
    }
    API_TRY_ASSIGN(const auto echo, body.boolean("echo"));
    if (echo.value_or(false)) return unsupported_parameter("echo", "echo is not supported");
    API_TRY_ASSIGN(const auto n, body.integer("n", 1, 8));
    out.n = static_cast<int>(n.value_or(1));
    API_TRY_ASSIGN(const auto best_of, body.integer("best_of", 1, 64));
    if (best_of && *best_of > out.n) return unsupported_value("best_of", "best_of above n is not supported");
    API_TRY_ASSIGN(out.suffix, body.text("suffix"));
    if (out.suffix && out.suffix->empty()) out.suffix.reset();
    for (const char* name : {"max_tokens", "n_predict"}) {
        API_TRY_ASSIGN(const auto limit, body.integer(name, INT64_MIN, INT64_MAX));
        if (limit && *limit > 0 && !out.max_tokens) out.max_tokens = *limit;
    }
    API_TRY(read_sampling(body, out.sampling));
    API_TRY_ASSIGN(out.stop, read_stop(body, "stop"));
    API_TRY_ASSIGN(const auto logprobs, body.integer("logprobs", 0, 5));
    out.logprobs = static_cast<int>(logprobs.value_or(-1));
    API_TRY_ASSIGN(const auto ignore_eos, body.boolean("ignore_eos"));
    out.ignore_eos = ignore_eos.value_or(false);
    API_TRY_ASSIGN(const auto cache, body.boolean("cache_prompt"));
    out.cache = cache.value_or(true);
    if (const Json* format = body.find("response_format")) {
        API_TRY_ASSIGN(out.format, read_format(*format, "response_format", false));
    } else if (const Json* schema = body.find("json_schema")) {
        if (!schema->is_object()) return invalid_type("json_schema", "an object");
        out.format.kind = OutputFormat::Kind::json_schema;
        out.format.schema = *schema;
    }
    return out;
}

std::unique_ptr<AnswerWriter> completion_writer(const AnswerRequest& request, const AnswerIdentity& identity) {
    return std::make_unique<CompletionWriter>(request, identity);
}

}  // namespace strata::server
