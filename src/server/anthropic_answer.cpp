#include "server/anthropic.h"

namespace strata::server {
namespace {

class MessagesWriter : public AnswerWriter {
  public:
    MessagesWriter(const AnthropicRequest& request, const AnswerIdentity& identity, ReasoningMemory& memory)
        : identity_(identity), omit_thinking_(request.omit_thinking), memory_(memory) {}

    std::string begin(int64_t prompt_tokens) override {
        Json message = head();
        message["content"] = Json::array();
        message["stop_reason"] = nullptr;
        message["stop_sequence"] = nullptr;
        Totals none;
        none.prompt_tokens = prompt_tokens;
        message["usage"] = usage(none);
        return typed_sse("message_start", {{"message", std::move(message)}}) + typed_sse("ping", Json::object());
    }

    std::string events(int, std::span<const AnswerEvent> events, std::span<const TokenLogprob>) override {
        std::string out;
        using Type = AnswerEvent::Type;
        for (const AnswerEvent& e : events) {
            switch (e.type) {
                case Type::reasoning:
                    enter(Block::thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
                    reasoning_ += e.text;
                    if (!omit_thinking_) out += delta({{"type", "thinking_delta"}, {"thinking", e.text}});
                    break;
                case Type::content:
                    enter(Block::text, {{"type", "text"}, {"text", ""}}, out);
                    out += delta({{"type", "text_delta"}, {"text", e.text}});
                    break;
                case Type::call_begin:
                    leave(out);
                    enter(Block::call,
                          {{"type", "tool_use"},
                           {"id", "toolu_" + random_id(24)},
                           {"name", e.text},
                           {"input", Json::object()}},
                          out);
                    arguments_ = false;
                    break;
                case Type::call_arguments:
                    arguments_ = true;
                    out += delta({{"type", "input_json_delta"}, {"partial_json", e.text}});
                    break;
                case Type::call_end:
                    if (!arguments_) out += delta({{"type", "input_json_delta"}, {"partial_json", "{}"}});
                    leave(out);
                    break;
            }
        }
        return out;
    }

    std::string end_reply(int, const ReplyResult& result, const Totals&) override {
        std::string out;
        leave(out);
        stop_reason_ = reason(result.finish);
        stop_sequence_ = result.stop_string.empty() ? Json() : Json(result.stop_string);
        return out;
    }

    std::string end(const Totals& totals) override {
        return typed_sse("message_delta",
                         {{"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
                          {"usage", usage(totals)}}) +
               typed_sse("message_stop", Json::object());
    }

    std::string error(const ApiError& error, const std::string& request_id) override {
        return sse("error", error_json(error, Wire::anthropic, request_id));
    }
    std::string ping() override { return typed_sse("ping", Json::object()); }

    Json whole(std::span<const ReplyResult> replies, const Totals& totals) override {
        const ReplyResult& reply = replies[0];
        Json content = Json::array();
        if (!reply.answer.reasoning.empty())
            content.push_back({{"type", "thinking"},
                               {"thinking", omit_thinking_ ? "" : reply.answer.reasoning},
                               {"signature", memory_.keep(reply.answer.reasoning)}});
        if (!reply.answer.content.empty()) content.push_back({{"type", "text"}, {"text", reply.answer.content}});
        for (const Answer::Call& call : reply.answer.calls) {
            auto input = parse_json(arguments_text(call));
            content.push_back({{"type", "tool_use"},
                               {"id", "toolu_" + random_id(24)},
                               {"name", call.name},
                               {"input", input ? std::move(*input) : Json::object()}});
        }
        Json message = head();
        message["content"] = std::move(content);
        message["stop_reason"] = reason(reply.finish);
        message["stop_sequence"] = reply.stop_string.empty() ? Json() : Json(reply.stop_string);
        message["usage"] = usage(totals);
        return message;
    }

  private:
    enum class Block { none, thinking, text, call };

    Json head() const {
        return {{"id", "msg_" + identity_.id},
                {"type", "message"},
                {"role", "assistant"},
                {"model", identity_.asked.empty() ? identity_.model : identity_.asked}};
    }
    static const char* reason(Finish finish) {
        switch (finish) {
            case Finish::stop: return "end_turn";
            case Finish::stop_string: return "stop_sequence";
            case Finish::tool_calls: return "tool_use";
            case Finish::length: return "max_tokens";
        }
        return "end_turn";
    }
    static Json usage(const Totals& totals) {
        return {{"input_tokens", totals.prompt_tokens - totals.cached_tokens},
                {"cache_creation_input_tokens", 0},
                {"cache_read_input_tokens", totals.cached_tokens},
                {"output_tokens", totals.reply_tokens}};
    }
    std::string delta(Json inner) const {
        return typed_sse("content_block_delta", {{"index", index_}, {"delta", std::move(inner)}});
    }
    void enter(Block kind, const Json& block, std::string& out) {
        if (open_ == kind) return;
        leave(out);
        open_ = kind;
        out += typed_sse("content_block_start", {{"index", index_}, {"content_block", block}});
    }
    void leave(std::string& out) {
        if (open_ == Block::none) return;
        if (open_ == Block::thinking) {
            out += delta({{"type", "signature_delta"}, {"signature", memory_.keep(reasoning_)}});
            reasoning_.clear();
        }
        out += typed_sse("content_block_stop", {{"index", index_}});
        ++index_;
        open_ = Block::none;
    }

    const AnswerIdentity identity_;
    const bool omit_thinking_;
    ReasoningMemory& memory_;
    Block open_ = Block::none;
    int index_ = 0;
    bool arguments_ = false;
    std::string reasoning_;
    std::string stop_reason_ = "end_turn";
    Json stop_sequence_;
};

}  // namespace

std::unique_ptr<AnswerWriter> messages_writer(const AnthropicRequest& request, const AnswerIdentity& identity,
                                              ReasoningMemory& memory) {
    return std::make_unique<MessagesWriter>(request, identity, memory);
}

}  // namespace strata::server
