#include "server/openai_chat.h"

#include "server/openai_common.h"

namespace strata::server {
namespace {

Api<void> read_logprobs(const Fields& body, AnswerRequest& out) {
    STRATA_TRY_ASSIGN(const auto wanted, body.boolean("logprobs"));
    STRATA_TRY_ASSIGN(const auto top, body.integer("top_logprobs", 0, 20));
    if (top && *top > 0 && !wanted.value_or(false))
        return invalid_value("top_logprobs", "top_logprobs needs logprobs to be true");
    if (wanted.value_or(false)) out.logprobs = static_cast<int>(top.value_or(0));
    return {};
}

Api<void> refuse_what_is_not_there(const Fields& body) {
    for (const char* name : {"audio", "web_search_options"})
        if (body.has(name)) return unsupported_parameter(name, std::string(name) + " is not supported");
    if (const Json* modalities = body.find("modalities")) {
        if (!modalities->is_array()) return invalid_type("modalities", "a list");
        for (const Json& item : *modalities)
            if (item != "text") return unsupported_value("modalities", "modalities: only text is supported");
    }
    return {};
}

/// Lists that some agents send as JSON text.
Api<void> decode_text_lists(Json& body) {
    for (const char* name : {"messages", "tools"}) {
        const auto place = body.find(name);
        if (place == body.end() || !place->is_string()) continue;
        auto parsed = parse_json(place->get<std::string>());
        if (!parsed || !parsed->is_array()) return invalid_type(name, "a list");
        *place = std::move(*parsed);
    }
    return {};
}

/// Tools of other kinds than functions are left out.
Api<void> keep_functions(Json& body, std::vector<std::string>& notes) {
    const auto tools = body.find("tools");
    if (tools == body.end() || !tools->is_array()) return {};
    Json kept = Json::array();
    for (Json& tool : *tools) {
        if (!tool.is_object()) return invalid_type("tools[" + std::to_string(kept.size()) + "]", "an object");
        const auto type = tool.find("type");
        if (type != tool.end() && type->is_string() && *type != "function") {
            notes.push_back("a tool of type '" + type->get<std::string>() + "' was left out");
            continue;
        }
        kept.push_back(std::move(tool));
    }
    *tools = kept.empty() ? Json() : std::move(kept);
    return {};
}

class ChatWriter : public OpenAiWriter {
  public:
    ChatWriter(const AnswerRequest& request, const AnswerIdentity& identity)
        : OpenAiWriter({"chatcmpl-", "chat.completion.chunk", "chat.completion"}, request, identity),
          logprobs_(request.logprobs >= 0),
          replies_(request.n) {}

    std::string begin(int64_t) override {
        std::string out;
        for (int i = 0; i < replies_; ++i) out += chunk(choice(i, {{"role", "assistant"}, {"content", nullptr}}));
        return out;
    }

    std::string events(int reply, std::span<const AnswerEvent> events,
                       std::span<const TokenLogprob> logprobs) override {
        std::string out;
        bool told = logprobs.empty();
        for (const AnswerEvent& event : events) {
            Json delta = delta_of(event);
            if (delta.is_null()) continue;
            Json one = choice(reply, std::move(delta));
            if (!told && event.type == AnswerEvent::Type::content) {
                one["logprobs"] = logprobs_json(logprobs);
                told = true;
            }
            out += chunk(one);
        }
        if (!told) {  // tokens that added no text
            Json one = choice(reply, Json::object());
            one["logprobs"] = logprobs_json(logprobs);
            out += chunk(one);
        }
        return out;
    }

    std::string progress(int64_t total, int64_t cached, int64_t read, double ms) override {
        return chunk(
            choice(0, Json::object()),
            {{"prompt_progress", {{"total", total}, {"cache", cached}, {"processed", read}, {"time_ms", ms}}}});
    }

  private:
    Json last_choice(int reply, const char* finish) override { return choice(reply, Json::object(), finish); }

    Json whole_choice(int index, const ReplyResult& reply, const char* finish) override {
        const Answer& answer = reply.answer;
        Json message = {{"role", "assistant"}};
        message["content"] = answer.content.empty() && !answer.calls.empty() ? Json() : Json(answer.content);
        if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
        message["refusal"] = nullptr;
        if (!answer.calls.empty()) {
            Json calls = Json::array();
            for (const Answer::Call& call : answer.calls)
                calls.push_back({{"id", "call_" + random_id(24)},
                                 {"type", "function"},
                                 {"function", {{"name", call.name}, {"arguments", arguments_text(call)}}}});
            message["tool_calls"] = std::move(calls);
        }
        return {{"index", index},
                {"message", std::move(message)},
                {"logprobs", logprobs_ ? logprobs_json(reply.logprobs) : Json()},
                {"finish_reason", finish}};
    }

    static Json choice(int index, Json delta, const char* finish = nullptr) {
        return {{"index", index},
                {"delta", std::move(delta)},
                {"logprobs", nullptr},
                {"finish_reason", finish ? Json(finish) : Json()}};
    }

    static Json delta_of(const AnswerEvent& event) {
        using Type = AnswerEvent::Type;
        switch (event.type) {
            case Type::reasoning: return {{"reasoning_content", event.text}};
            case Type::content: return {{"content", event.text}};
            case Type::call_begin:
                return {{"tool_calls", Json::array({{{"index", event.call},
                                                     {"id", "call_" + random_id(24)},
                                                     {"type", "function"},
                                                     {"function", {{"name", event.text}, {"arguments", ""}}}}})}};
            case Type::call_arguments:
                return {
                    {"tool_calls", Json::array({{{"index", event.call}, {"function", {{"arguments", event.text}}}}})}};
            case Type::call_end: return {};
        }
        return {};
    }

    static Json entry_json(const TokenLogprob::Entry& entry) {
        Json bytes = Json::array();
        for (const char c : entry.text) bytes.push_back(static_cast<unsigned char>(c));
        return {{"token", displayed(entry.text)}, {"logprob", entry.logprob}, {"bytes", std::move(bytes)}};
    }
    static Json logprobs_json(std::span<const TokenLogprob> tokens) {
        Json content = Json::array();
        for (const TokenLogprob& token : tokens) {
            Json one = entry_json(token.token);
            one["top_logprobs"] = Json::array();
            for (const auto& entry : token.top) one["top_logprobs"].push_back(entry_json(entry));
            content.push_back(std::move(one));
        }
        return {{"content", std::move(content)}, {"refusal", nullptr}};
    }

    const bool logprobs_;
    const int replies_;
};

}  // namespace

Api<AnswerRequest> read_chat_request(Json json) {
    AnswerRequest out;
    STRATA_TRY(decode_text_lists(json));
    STRATA_TRY(keep_functions(json, out.notes));
    const Fields body(json);
    if (!body.has("messages")) return missing("messages");
    STRATA_TRY(refuse_what_is_not_there(body));
    STRATA_TRY(read_openai_fields(body, {"max_completion_tokens", "max_tokens", "n_predict"}, out));
    STRATA_TRY(read_logprobs(body, out));
    STRATA_TRY_ASSIGN(const auto in_reasoning, body.boolean("stop_in_reasoning"));
    out.stop_in_reasoning = in_reasoning.value_or(false);
    for (const char* name : {"thinking_budget_tokens", "reasoning_budget_tokens"}) {
        STRATA_TRY_ASSIGN(const auto budget, body.integer(name, -1, INT64_MAX));
        if (budget && *budget >= 0) out.reasoning_budget = budget;
    }
    if (const Json* thinking = body.find("thinking"); thinking && thinking->is_object()) {
        STRATA_TRY_ASSIGN(const auto budget, Fields(*thinking, "thinking.").integer("budget_tokens", -1, INT64_MAX));
        if (budget && *budget >= 0) out.reasoning_budget = budget;
    }
    if (const Json* reasoning = body.find("reasoning"); reasoning && reasoning->is_object()) {
        STRATA_TRY_ASSIGN(const auto budget, Fields(*reasoning, "reasoning.").integer("max_tokens", -1, INT64_MAX));
        if (budget && *budget >= 0) out.reasoning_budget = budget;
    }
    // A choice about tools of which none is left means nothing.
    if (!body.has("tools") && !body.has("functions")) {
        json.erase("tool_choice");
        json.erase("function_call");
    }
    auto chat = ChatRequest::from_body(std::move(json));
    if (!chat) return from_text_error(chat.error());
    out.chat = std::move(*chat);
    STRATA_TRY(check_sizes(out.chat));
    return out;
}

std::unique_ptr<AnswerWriter> chat_writer(const AnswerRequest& request, const AnswerIdentity& identity) {
    return std::make_unique<ChatWriter>(request, identity);
}

}  // namespace strata::server
