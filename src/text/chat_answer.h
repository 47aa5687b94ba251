// Reading what a model writes: reasoning, text and tool calls come apart while the reply streams in. The result does
// not depend on how the text is cut into pieces, and no character is lost: what cannot be read as a call is text.
// docs/chat-formats.md has the rules.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_dialect.h"
#include "text/chat_values.h"

namespace strata {

/// Where a reply begins, as the end of its prompt says.
enum class AnswerStart : uint8_t {
    undecided,  // the model may open a reasoning block itself
    reasoning,  // the prompt opened one
    content,    // the prompt closed it, or opened a call
};

/// From the generation prompt (and forced text after it): whichever of opener and closer comes last decides.
AnswerStart answer_start(const Dialect& dialect, std::string_view generation_prompt);

struct AnswerOptions {
    AnswerStart start = AnswerStart::undecided;
    ToolSet tools;                // what the request offers; none: call tags are text
    bool split_reasoning = true;  // false: the reasoning stays in the content with its tags
    bool drop_reasoning = false;  // thinking was switched off: what the model thinks all the same is left out
    bool parallel_calls = true;   // false: the reply is over after its first call
    bool continues = false;       // the reply goes on from a given beginning: its leading white space counts
    std::string given;            // the reply's beginning that is in the prompt already: the opening of a call
    std::string forced;           // opening of a call that is to follow the reasoning: see take_forced()
};

/// How the reply came to its end.
enum class AnswerEnd : uint8_t { stop, length };

enum class FinishReason : uint8_t { stop, tool_calls, length };
std::string_view to_string(FinishReason reason);

class AnswerParser {
  public:
    /// The dialect must outlive the parser (dialects are static).
    AnswerParser(const Dialect& dialect, AnswerOptions options);
    ~AnswerParser();

    /// Takes the next piece of the reply, with the texts of special tokens. Appends what it makes certain. A character
    /// cut in two is put together first.
    void push(std::string_view piece, std::vector<AnswerEvent>& events);

    /// The reply is over. Once; appends what was held back. A call that began and has no call_end by then is cut off:
    /// it must not be executed.
    FinishReason finish(AnswerEnd end, std::vector<AnswerEvent>& events);

    /// The model should not write on: it invents a tool's answer, or has made its only call. What it writes all the
    /// same is dropped. The reply ended by `stop`.
    bool wants_stop() const { return state_ == State::over; }

    enum class Phase : uint8_t { undecided, reasoning, content, call, over };
    /// What the text read so far is in.
    Phase phase() const;

    /// The text to force now (write as if the model had written it, and push here), once: when the reasoning is over.
    /// Empty otherwise.
    std::string take_forced();

  private:
    enum class State : uint8_t { start, channel, reasoning, last_call, content, call, bare_call, over };

    void advance(bool ended);
    bool step(bool ended);  // false: needs more text
    bool step_start(bool ended);
    bool step_channel(bool ended);
    bool step_reasoning(bool ended);
    bool step_last_call(bool ended);
    bool step_content(bool ended);
    bool step_call(bool ended);
    bool step_bare_call(bool ended);

    std::string_view unread() const { return std::string_view(buffer_).substr(read_); }
    void consume(size_t bytes);
    size_t find_closer();
    void reasoning(std::string_view text);
    void content(std::string_view text);
    void enter_reasoning(std::string_view opener);
    void leave_reasoning(std::string_view closer);
    void begin_call();
    void forward(std::vector<AnswerEvent>&& events, int calls);
    void call_is_text();

    // Lines of the content: a bare call counts only at a line's start and outside of fenced code.
    struct Lines {
        std::string head;  // the current line's first bytes
        bool fenced = false;
        void feed(std::string_view text);
    };

    const Dialect& dialect_;
    AnswerOptions options_;
    State state_;
    std::string buffer_;  // what came, from read_ on not certain yet
    size_t read_ = 0;
    size_t no_closer_ = 0;  // that many unread bytes hold no closer of the reasoning
    std::string cut_;       // the beginning of a character
    std::vector<AnswerEvent>* out_ = nullptr;

    bool reasoning_begun_ = false;
    std::string reasoning_space_;  // held back: dropped when nothing follows
    bool content_begun_ = false;   // since the start or the last call: leading white space is dropped before
    std::string content_space_;
    Lines lines_;

    std::unique_ptr<CallReader> reader_;
    size_t opener_ = 0;  // bytes of the call's opener at the buffer's start
    int calls_ = 0;
    size_t refused_ = 0;  // bytes
    // Of calls that count only once all is known.
    std::vector<AnswerEvent> kept_;
    size_t block_ = 0;  // where the current block begins in the buffer
    int kept_calls_ = 0;
    bool block_done_ = false;
};

/// A whole reply put together from its events.
struct Answer {
    struct Call {
        std::string name;
        std::string arguments;  // JSON text of an object
        bool complete = false;
    };
    std::string reasoning;
    std::string content;
    std::vector<Call> calls;

    void add(const std::vector<AnswerEvent>& events);
    /// Drops calls that were cut off.
    void drop_incomplete();
};

}  // namespace strata
