#include "server/responses.h"

namespace strata::server {
namespace {

class ResponsesWriter : public AnswerWriter {
  public:
    ResponsesWriter(const ResponsesRequest& request, const AnswerIdentity& identity)
        : request_(request), identity_(identity), id_("resp_" + identity.id) {}

    std::string begin(int64_t) override {
        Json now = response("in_progress", Json::array(), nullptr);
        std::string out = event("response.created", {{"response", now}});  // events are numbered in their order
        return out += event("response.in_progress", {{"response", now}});
    }

    std::string events(int, std::span<const AnswerEvent> events, std::span<const TokenLogprob> logprobs) override {
        std::string out;
        using Type = AnswerEvent::Type;
        for (const AnswerEvent& e : events) {
            switch (e.type) {
                case Type::reasoning:
                    enter(Item::reasoning, out);
                    text_ += e.text;
                    out += event(
                        request_.summary ? "response.reasoning_summary_text.delta" : "response.reasoning_text.delta",
                        part_place({{"delta", e.text}}));
                    break;
                case Type::content: {
                    enter(Item::message, out);
                    text_ += e.text;
                    Json place = part_place({{"delta", e.text}});
                    place["logprobs"] = logprobs_json(logprobs);
                    for (const Json& one : place["logprobs"]) logprobs_.push_back(one);
                    logprobs = {};
                    out += event("response.output_text.delta", std::move(place));
                    break;
                }
                case Type::call_begin:
                    leave(out, "completed");
                    name_ = e.text;
                    call_id_ = "call_" + random_id(24);
                    enter(Item::call, out);
                    break;
                case Type::call_arguments:
                    text_ += e.text;
                    // The input of a custom tool is told when its whole argument is known.
                    if (!custom())
                        out += event("response.function_call_arguments.delta", item_place({{"delta", e.text}}));
                    break;
                case Type::call_end: leave(out, "completed"); break;
            }
        }
        return out;
    }

    std::string end_reply(int, const ReplyResult& result, const Totals&) override {
        finish_ = result.finish;
        std::string out;
        leave(out, finish_ == Finish::length ? "incomplete" : "completed");
        return out;
    }

    std::string end(const Totals& totals) override {
        const bool cut = finish_ == Finish::length;
        return event(cut ? "response.incomplete" : "response.completed",
                     {{"response", response(cut ? "incomplete" : "completed", output_, usage(totals))}});
    }

    std::string error(const ApiError& error, const std::string&) override {
        Json failed = response("failed", output_, nullptr);
        failed["error"] = {{"code", "server_error"}, {"message", error.message}};
        return event("response.failed", {{"response", std::move(failed)}});
    }

    Json whole(std::span<const ReplyResult> replies, const Totals& totals) override {
        const ReplyResult& reply = replies[0];
        const bool cut = reply.finish == Finish::length;
        Json output = Json::array();
        if (!reply.answer.reasoning.empty())
            output.push_back(reasoning_item("rs_" + random_id(24), reply.answer.reasoning, "completed"));
        if (!reply.answer.content.empty())
            output.push_back(message_item("msg_" + random_id(24), reply.answer.content,
                                          request_.logprobs ? logprobs_json(reply.logprobs) : Json::array(),
                                          "completed"));
        for (const Answer::Call& call : reply.answer.calls)
            output.push_back(
                call_item(item_id(call.name), "call_" + random_id(24), call.name, arguments_text(call), "completed"));
        if (cut && !output.empty()) output.back()["status"] = "incomplete";
        return response(cut ? "incomplete" : "completed", std::move(output), usage(totals));
    }

  private:
    enum class Item { none, reasoning, message, call };

    bool is_custom(const std::string& name) const { return request_.custom_tools.contains(name); }
    bool custom() const { return is_custom(name_); }
    std::string item_id(const std::string& name) const { return (is_custom(name) ? "ctc_" : "fc_") + random_id(24); }

    Json response(const char* status, Json output, Json usage) const {
        const std::string_view state = status;
        const bool ended = state == "completed" || state == "incomplete";
        Json out = {{"id", id_},
                    {"object", "response"},
                    {"created_at", identity_.created},
                    {"completed_at", ended ? Json(std::time(nullptr)) : Json()},
                    {"status", status},
                    {"error", nullptr},
                    {"incomplete_details", state == "incomplete" ? Json{{"reason", "max_output_tokens"}} : Json()},
                    {"model", identity_.model},
                    {"output", std::move(output)},
                    {"usage", std::move(usage)}};
        for (const auto& [key, value] : request_.echo.items()) out[key] = value;
        return out;
    }

    static Json usage(const Totals& t) {
        return {{"input_tokens", t.prompt_tokens},
                {"input_tokens_details", {{"cached_tokens", t.cached_tokens}}},
                {"output_tokens", t.reply_tokens},
                {"output_tokens_details", {{"reasoning_tokens", t.reasoning_tokens}}},
                {"total_tokens", t.prompt_tokens + t.reply_tokens}};
    }

    Json logprobs_json(std::span<const TokenLogprob> tokens) const {
        Json out = Json::array();
        const auto entry = [](const TokenLogprob::Entry& e) {
            Json bytes = Json::array();
            for (const char c : e.text) bytes.push_back(static_cast<unsigned char>(c));
            return Json{{"token", displayed(e.text)}, {"logprob", e.logprob}, {"bytes", std::move(bytes)}};
        };
        if (!request_.logprobs) return out;
        for (const TokenLogprob& token : tokens) {
            Json one = entry(token.token);
            one["top_logprobs"] = Json::array();
            for (const auto& top : token.top) one["top_logprobs"].push_back(entry(top));
            out.push_back(std::move(one));
        }
        return out;
    }

    std::string event(const char* type, const Json& members) { return typed_sse(type, members, sequence_++); }

    Json item_place(Json members) const {
        Json out = {{"item_id", current_id_}, {"output_index", index_}};
        for (auto& [key, value] : members.items()) out[key] = std::move(value);
        return out;
    }
    Json part_place(Json members) const {
        Json out = {{"item_id", current_id_}, {"output_index", index_}};
        out[open_ == Item::reasoning && request_.summary ? "summary_index" : "content_index"] = 0;
        for (auto& [key, value] : members.items()) out[key] = std::move(value);
        return out;
    }

    Json reasoning_item(const std::string& id, const std::string& text, const char* status) const {
        Json summary = Json::array(), content = Json::array();
        if (!text.empty() && request_.summary) summary.push_back({{"type", "summary_text"}, {"text", text}});
        if (!text.empty() && !request_.summary) content.push_back({{"type", "reasoning_text"}, {"text", text}});
        return {{"id", id},
                {"type", "reasoning"},
                {"summary", std::move(summary)},
                {"content", std::move(content)},
                {"encrypted_content",
                 request_.encrypted && !text.empty() ? Json(std::string(kSealed) + base64(text)) : Json()},
                {"status", status}};
    }
    static Json text_part(const std::string& text, Json logprobs) {
        return {
            {"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", std::move(logprobs)}};
    }
    static Json message_item(const std::string& id, const std::string& text, Json logprobs, const char* status) {
        Json content = Json::array({text_part(text, std::move(logprobs))});
        return {{"id", id},
                {"type", "message"},
                {"status", status},
                {"role", "assistant"},
                {"content", std::move(content)}};
    }
    static std::string custom_input(const std::string& arguments) {
        const auto parsed = parse_json(arguments);
        if (!parsed || !parsed->is_object()) return arguments;
        const auto input = parsed->find("input");
        return input == parsed->end() ? std::string()
               : input->is_string()   ? input->get<std::string>()
                                      : json_text(*input);
    }
    Json call_item(const std::string& id, const std::string& call_id, const std::string& name,
                   const std::string& arguments, const char* status) const {
        if (is_custom(name))
            return {{"id", id},         {"type", "custom_tool_call"},
                    {"status", status}, {"call_id", call_id},
                    {"name", name},     {"input", arguments.empty() ? std::string() : custom_input(arguments)}};
        return {{"id", id},     {"type", "function_call"}, {"status", status}, {"call_id", call_id},
                {"name", name}, {"arguments", arguments}};
    }

    void enter(Item kind, std::string& out) {
        if (open_ == kind) return;
        leave(out, "completed");
        open_ = kind;
        text_.clear();
        logprobs_ = Json::array();
        Json item;
        if (kind == Item::reasoning) {
            current_id_ = "rs_" + random_id(24);
            item = reasoning_item(current_id_, "", "in_progress");
        } else if (kind == Item::message) {
            current_id_ = "msg_" + random_id(24);
            item = message_item(current_id_, "", Json::array(), "in_progress");
            item["content"] = Json::array();
        } else {
            current_id_ = item_id(name_);
            item = call_item(current_id_, call_id_, name_, "", "in_progress");
        }
        out += event("response.output_item.added", {{"output_index", index_}, {"item", std::move(item)}});
        if (kind == Item::reasoning && request_.summary)
            out += event("response.reasoning_summary_part.added",
                         part_place({{"part", {{"type", "summary_text"}, {"text", ""}}}}));
        else if (kind == Item::reasoning)
            out += event("response.content_part.added",
                         part_place({{"part", {{"type", "reasoning_text"}, {"text", ""}}}}));
        else if (kind == Item::message)
            out += event("response.content_part.added", part_place({{"part", text_part("", Json::array())}}));
    }

    void leave(std::string& out, const char* status) {
        if (open_ == Item::none) return;
        Json item;
        if (open_ == Item::reasoning) {
            const char* done =
                request_.summary ? "response.reasoning_summary_text.done" : "response.reasoning_text.done";
            const char* kind = request_.summary ? "summary_text" : "reasoning_text";
            out += event(done, part_place({{"text", text_}}));
            out += event(request_.summary ? "response.reasoning_summary_part.done" : "response.content_part.done",
                         part_place({{"part", {{"type", kind}, {"text", text_}}}}));
            item = reasoning_item(current_id_, text_, status);
        } else if (open_ == Item::message) {
            out += event("response.output_text.done", part_place({{"text", text_}, {"logprobs", logprobs_}}));
            out += event("response.content_part.done", part_place({{"part", text_part(text_, logprobs_)}}));
            item = message_item(current_id_, text_, logprobs_, status);
        } else {
            const std::string arguments = text_.empty() ? "{}" : text_;
            if (custom()) {
                const std::string input = custom_input(arguments);
                out += event("response.custom_tool_call_input.delta", item_place({{"delta", input}}));
                out += event("response.custom_tool_call_input.done", item_place({{"input", input}}));
            } else {
                out += event("response.function_call_arguments.done",
                             item_place({{"name", name_}, {"arguments", arguments}}));
            }
            item = call_item(current_id_, call_id_, name_, arguments, status);
        }
        out += event("response.output_item.done", {{"output_index", index_}, {"item", item}});
        output_.push_back(std::move(item));
        ++index_;
        open_ = Item::none;
    }

    const ResponsesRequest request_;
    const AnswerIdentity identity_;
    const std::string id_;
    int64_t sequence_ = 0;
    int index_ = 0;
    Item open_ = Item::none;
    std::string current_id_, text_, name_, call_id_;
    Json logprobs_ = Json::array();
    Json output_ = Json::array();
    Finish finish_ = Finish::stop;
};

}  // namespace

std::unique_ptr<AnswerWriter> responses_writer(const ResponsesRequest& request, const AnswerIdentity& identity) {
    return std::make_unique<ResponsesWriter>(request, identity);
}

}  // namespace strata::server
