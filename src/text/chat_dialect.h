// A dialect is how a family of models writes: its marks around reasoning and calls, how a call's inside is read, and
// what its templates need to be told. One file each: format_*.cpp. The table that picks one is format_table.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "text/chat_values.h"
#include "text/json.h"

namespace strata {

/// What a reply brings, in order: reasoning, content, then each call from call_begin to call_end.
struct AnswerEvent {
    enum class Type : uint8_t {
        reasoning,       // text: a piece of it
        content,         // text: a piece of it
        call_begin,      // text: the function's name, whole
        call_arguments,  // text: a piece of the arguments' JSON text
        call_end,
    };
    Type type;
    int call = -1;  // which call, from 0
    std::string text;

    bool operator==(const AnswerEvent&) const = default;
};

enum class Match : uint8_t { no, more, yes };

/// Whether the text starts with the mark, or could when more comes.
Match starts_with_mark(std::string_view text, std::string_view mark);
/// How many bytes at the text's end may be the beginning of the mark.
size_t begun_mark(std::string_view text, std::string_view mark);
bool is_blank(char c);
size_t skip_blanks(std::string_view text, size_t at);

/// Writes calls as events; the arguments' JSON as it becomes certain.
class CallWriter {
  public:
    /// Where the next events go.
    void write_to(std::vector<AnswerEvent>& out) { out_ = &out; }

    void begin(std::string_view name);
    void argument(std::string_view key, const Json& value);
    // An argument that is a string, in pieces.
    void text_begin(std::string_view key);
    void text(std::string_view piece);
    void text_end();
    void end();
    /// A whole call; arguments: an object.
    void whole(std::string_view name, const Json& arguments);

    int calls() const { return calls_; }
    bool open() const { return open_; }

  private:
    void put(std::string text);
    std::string key_text(std::string_view key);

    std::vector<AnswerEvent>* out_ = nullptr;
    int calls_ = 0;  // begun
    bool open_ = false;
    bool first_ = true;  // no argument yet
};

/// Reads one block of calls. It is shown the block from behind its opener on, again and again as it grows.
class CallReader {
  public:
    enum class Progress : uint8_t {
        more,     // the block goes on; certain events may have been written
        done,     // used() bytes of the block are read
        refused,  // it is no call, and no event was written
    };
    virtual ~CallReader() = default;

    /// `ended`: the reply is over, nothing will follow; never answered by more.
    virtual Progress read(std::string_view block, bool ended, std::vector<AnswerEvent>& out) = 0;

    size_t used() const { return used_; }
    int calls() const { return writer_.calls(); }  // begun in this block
    /// Text inside of the block that is part of no call: content.
    const std::string& stray() const { return stray_; }

  protected:
    CallWriter writer_;
    size_t used_ = 0;
    std::string stray_;
};

/// What a template is rendered with, on its way there: a dialect may change it.
struct TemplateInput {
    Json messages;            // normalised: chat_messages.h
    Json variables;           // all others
    std::string_view source;  // the template
};

class Dialect {
  public:
    virtual ~Dialect() = default;
    virtual std::string_view name() const = 0;

    // --- The answer ---

    virtual std::string_view reasoning_opener() const { return "<think>"; }
    virtual std::string_view reasoning_closer() const { return "</think>"; }
    /// What follows the opener before reasoning is meant: "thought" (the opener alone means nothing). Empty: nothing.
    virtual std::string_view channel_name() const { return {}; }
    virtual std::span<const std::string_view> call_openers() const { return {}; }
    /// A call's beginning without an opener around it, which counts at a line's start. Empty: there is none.
    virtual std::string_view bare_call_opener() const { return {}; }
    /// A closer that may follow a bare call and means nothing.
    virtual std::string_view bare_call_closer() const { return {}; }
    /// What a model writes when it begins to invent a tool's answer. Empty: nothing known.
    virtual std::string_view invented_result() const { return {}; }
    /// A reader for a block behind an opener; `bare`: for one behind bare_call_opener().
    virtual std::unique_ptr<CallReader> reader(std::string_view opener, bool bare, const ToolSet& tools) const = 0;
    /// Whether what follows an opener begins a call to a declared tool.
    virtual Match declared(std::string_view after_opener, const ToolSet& tools) const = 0;
    /// The same behind bare_call_opener().
    virtual Match declared_bare(std::string_view, const ToolSet&) const { return Match::no; }

    // --- The prompt ---

    /// What ends an open reasoning block in a prompt.
    virtual std::string_view close_reasoning() const { return "</think>"; }
    /// What opens one, where a template leaves that to the model.
    virtual std::string_view open_reasoning() const { return "<think>"; }
    /// The opening of a call, up to behind the name; without a name: up to where it stands.
    virtual std::string forced_call(std::string_view name) const = 0;
    /// What follows forced_call(tool.name), up to the block's end, as an automaton (grammar_calls.h); gives the state
    /// behind.
    virtual Result<GrammarBuilder::State> add_call(GrammarBuilder& builder, GrammarBuilder::State from,
                                                   const Tool& tool) const;
    /// Other levels of effort than the request's, where a template would take them for something else.
    virtual std::string effort(std::string_view level) const { return std::string(level); }
    /// Changes messages and variables where the family's templates want another shape.
    virtual void prepare(TemplateInput&) const {}
    /// Completes a prompt that a reply is to follow.
    virtual void complete(std::string& /*prompt*/) const {}
};

/// What a model file says that decides on its dialect.
struct DialectClues {
    std::string_view chat_template;
    std::string_view architecture;
    std::string_view tokenizer_kind;
    bool has_tool_call_token = false;  // the vocabulary has <|tool_call_start|>
    bool has_think_token = false;      // the vocabulary has <think>
};

/// The first row of the table (format_table.cpp) that fits.
const Dialect& pick_dialect(const DialectClues& clues);
/// By name: qwen, glm, json, dsml, lfm, gemma, none; null where there is no such.
const Dialect* find_dialect(std::string_view name);

// The dialects, each in its file.
const Dialect& qwen_dialect();
const Dialect& glm_dialect();
const Dialect& json_dialect();
const Dialect& dsml_dialect();
const Dialect& lfm_dialect();
const Dialect& gemma_dialect();
const Dialect& plain_dialect(bool has_reasoning);

}  // namespace strata
