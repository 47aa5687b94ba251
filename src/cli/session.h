// A model that answers: its file's tokenizer and chat format, and an engine as a child process that is started when the
// first answer needs it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/interrupts.h"
#include "cli/sampling_flags.h"
#include "gguf/file.h"
#include "protocol/client.h"
#include "setup/registry.h"
#include "text/chat.h"
#include "text/reply_grammar.h"
#include "text/tokenizer.h"

namespace strata::cli {

/// "on", "off", or a level of effort that clients name: "low", "high" ...
bool is_thinking_level(std::string_view text);
/// Puts a level, or nothing for an empty one, into a request.
void apply_thinking(ChatRequest& request, const std::string& level);
/// --think.
void add_think_flag(FlagSet& set, std::string& level);

struct SessionOptions {
    ModelEntry model;
    SamplingFlags sampling;
    int64_t max_new = 0;                        // tokens of an answer; 0: what the context leaves
    std::string thinking;                       // a level (is_thinking_level), or empty: as the template does by itself
    std::optional<ReplyRules> rules;            // what every answer must be
    std::vector<std::string> engine_arguments;  // after the run config's
};

/// An answer that came to its end.
struct Reply {
    strata::Answer answer;
    protocol::Done done;
    bool leave = false;  // a second Ctrl-C: the person wants to go
};

/// What an answer tells while it comes. Functions may be empty.
struct Listener {
    std::function<void(const std::string& what)> loading;
    std::function<void(int64_t read, int64_t total)> progress;
    std::function<void(std::string_view text)> reasoning;
    std::function<bool(std::string_view text)> content;  // false: stop
};

class Session {
  public:
    /// Reads the file's header, tokenizer and template; starts nothing.
    static Result<std::unique_ptr<Session>> open(SessionOptions options);

    /// Answers a conversation (a list of messages). Ctrl-C stops the answer, which then ends with done.finish "cancel".
    Result<Reply> answer(const Json& messages, const Listener& listener, Interrupts& interrupts);
    /// The same for a whole request: its tools, and its own thinking instead of the session's.
    Result<Reply> answer(const ChatRequest& chat, const Listener& listener, Interrupts& interrupts);

    /// Ends the engine; the next answer starts it again.
    void unload() { engine_.reset(); }
    bool loaded() const { return engine_ != nullptr; }

    const ModelEntry& model() const { return options_.model; }
    void set_max_new(int64_t tokens) { options_.max_new = tokens; }
    void set_thinking(const std::string& level) { options_.thinking = level; }

  private:
    Session(SessionOptions options, Tokenizer tokenizer, ChatFormat format, Sampling sampling)
        : options_(std::move(options)),
          tokenizer_(std::move(tokenizer)),
          format_(std::move(format)),
          sampling_(std::move(sampling)) {}

    Result<void> load(const Listener& listener, Interrupts& interrupts);
    Result<GenerateRequest> make_request(const ChatPrompt& prompt) const;
    Result<Reply> take_events(protocol::Generation& generation, const ChatPrompt& prompt,
                              const Listener& listener) const;

    SessionOptions options_;
    Tokenizer tokenizer_;
    ChatFormat format_;
    Sampling sampling_;
    std::unique_ptr<protocol::EngineProcess> engine_;
};

/// The chat format of an open model file, with the run config's template where it names one.
Result<ChatFormat> open_chat_format(const RunConfig& config, const gguf::File& file, const Tokenizer& tokenizer);

}  // namespace strata::cli
