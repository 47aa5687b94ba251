// Chats in and out: a request becomes the prompt that the model's own template writes, and the reply is read back.
//
//     STRATA_TRY_ASSIGN(ChatFormat format, ChatFormat::make(model));
//     STRATA_TRY_ASSIGN(ChatPrompt prompt, format.render(request));
//     AnswerParser parser = format.parser(prompt);
//     for (piece of the reply) parser.push(piece, events);
//     FinishReason reason = parser.finish(AnswerEnd::stop, events);
//
// docs/chat-formats.md has the rules.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_answer.h"
#include "text/chat_dialect.h"
#include "text/jinja.h"
#include "text/json.h"

namespace strata {

class Tokenizer;
struct ToolChoice;

/// What a model file says about chatting.
struct ChatModel {
    std::string name;           // for messages: a path or an id
    std::string chat_template;  // `tokenizer.chat_template`; may be empty
    std::string architecture;
    std::string tokenizer_kind;
    std::string bos_token;  // texts; empty where there is none
    std::string eos_token;
    std::function<bool(std::string_view)> has_token;  // whether the vocabulary has a token of this text; may be unset

    /// From an open file's tokenizer. The tokenizer must live while ChatFormat::make() runs.
    static ChatModel from(const Tokenizer& tokenizer, std::string name, std::string architecture,
                          std::string chat_template);
};

/// A model's own configuration; requests win over it.
struct ChatSettings {
    std::string dialect;                 // a name instead of the table's choice
    std::optional<bool> thinking;        // default: on
    std::string effort;                  // a level, default: none named
    std::optional<bool> keep_reasoning;  // of earlier turns; default: where earlier turns carry any
    Json template_kwargs = Json::object();
};

/// A chat request; the members are those of OpenAI's body, as JSON in the order of its keys.
struct ChatRequest {
    Json messages = Json::array();
    Json tools;        // array or null; functions of the chat form, or flat ones
    Json tool_choice;  // null, "auto", "none", "required", a named function, or allowed_tools
    bool parallel_tool_calls = true;
    std::optional<bool> thinking;
    std::string effort;  // none, minimal, low, medium, high, xhigh, max; empty: not named
    Json template_kwargs = Json::object();
    Json response_schema;                       // for templates that show it to the model
    bool split_reasoning = true;                // false: reasoning stays in the content
    std::optional<bool> add_generation_prompt;  // default: unless the last message is to be continued
    bool continue_final_message = false;
    std::optional<std::tm> now;  // for templates that print the date

    /// From the body of a chat request: `messages`, `tools`, `functions`, `tool_choice`, `function_call`,
    /// `parallel_tool_calls`, `reasoning_effort`, `reasoning`, `thinking`, `reasoning_format`, `chat_template_kwargs`,
    /// `response_format`, `add_generation_prompt`, `continue_final_message`. Other fields are the server's business.
    /// Errors have the code "invalid_request" and name the field.
    static Result<ChatRequest> from_body(Json body);
};

/// A rendered prompt and what its reply needs to be read.
struct ChatPrompt {
    std::string text;                     // may begin with the BOS text: encode with AddSpecial::once
    std::string generation_prompt;        // the text's end that is there for the reply
    bool thinking = true;                 // asked for
    std::string effort;                   // the level the template got; empty: none
    int pictures = 0;                     // as many picture marks are in the text
    std::string picture_mark;             // empty: the template has none
    std::string close_reasoning;          // the text to force when a budget for thinking is used up
    std::string force_call;               // text to force when the reasoning is over (AnswerParser::take_forced)
    std::vector<std::string> call_names;  // where force_call ends before the name: the names that may follow
    AnswerOptions answer;
};

/// How one model chats. Immutable: any number of threads may use it at once.
///
/// Errors of render() carry a code: "template_error" (the template refused; its own sentence, the client's fault),
/// "invalid_request" (the sentence names the field), "template_broken" (the template or its rendering is at fault), and
/// "pictures_unsupported".
class ChatFormat {
  public:
    /// Parses the template and tries out what it understands. A template that does not parse is an error with code
    /// "template_broken"; a file that has none and no ChatML tokens one with code "no_template".
    static Result<ChatFormat> make(ChatModel model, ChatSettings settings = {});

    Result<ChatPrompt> render(const ChatRequest& request) const;
    AnswerParser parser(const ChatPrompt& prompt) const { return AnswerParser(*dialect_, prompt.answer); }

    const Dialect& dialect() const { return *dialect_; }
    /// The template in force: the file's, or the built-in ChatML.
    const std::string& template_source() const { return model_.chat_template; }
    /// Whether the template takes content in parts (pictures need that).
    bool handles_parts() const { return handles_parts_; }
    /// Whether the template writes system messages that come later, and not only the first.
    bool handles_late_system() const { return handles_late_system_; }
    /// The level a template gets for a request's level; empty: none is passed.
    std::string effort_for(std::string_view level) const;

  private:
    ChatFormat(ChatModel model, ChatSettings settings, Template parsed, const Dialect& dialect);

    struct Switches;
    void probe();
    Json template_input(Json messages, Json variables) const;
    Switches switches(const ChatRequest& request) const;
    Json variables(const ChatRequest& request, const Switches& switches, const Json& tools, const Json& messages) const;
    void continue_answer(const Json& beginning, ChatPrompt& prompt) const;
    void force_call(const ToolChoice& choice, ChatPrompt& prompt) const;

    ChatModel model_;
    ChatSettings settings_;
    Template template_;
    const Dialect* dialect_;
    bool handles_parts_ = false;
    bool handles_late_system_ = false;
    bool takes_effort_ = false;
    std::array<std::string, 6> efforts_;  // for each level what the template gets: effort_levels
    std::string picture_mark_;
};

/// The levels clients name, from little to much; `none` turns thinking off.
inline constexpr std::array<std::string_view, 6> effort_levels = {"minimal", "low", "medium", "high", "xhigh", "max"};

}  // namespace strata
