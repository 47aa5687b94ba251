// One reply of the engine, read: tokens become text, text becomes reasoning, content and calls, stop strings end it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "protocol/client.h"
#include "server/answer_request.h"
#include "server/answer_writer.h"
#include "server/model_text.h"
#include "server/stop_strings.h"
#include "text/detokenizer.h"

namespace strata::server {

/// Turns tokens into events. Pure: knows no engine.
class ReplyReader {
  public:
    /// All must outlive it. Completions are content as they are; `options` is for chats.
    ReplyReader(const ModelText& text, const AnswerRequest& request, AnswerOptions options);

    /// Takes a token; appends what became certain. False: the reply should end here.
    bool take(const protocol::Token& token, std::vector<AnswerEvent>& events, std::vector<TokenLogprob>& logprobs);
    /// The engine's last word ("stop", "length", "cancel", "context").
    void finish(const std::string& how, std::vector<AnswerEvent>& events, std::vector<TokenLogprob>& logprobs);

    /// After finish.
    ReplyResult& result() { return result_; }
    int64_t reasoning_tokens() const { return reasoning_tokens_; }
    /// What it writes now, for people.
    std::string phase() const;
    AnswerParser& parser() { return parser_; }

  private:
    void pass(std::vector<AnswerEvent>& raw, std::vector<AnswerEvent>& events);
    void note_logprob(const protocol::Token& token);

    const ModelText& text_;
    const AnswerRequest& request_;
    const bool raw_;
    AnswerParser parser_;
    Detokenizer detokenizer_;
    StopStrings stops_, reasoning_stops_;
    ReplyResult result_;
    std::vector<TokenLogprob> waiting_;  // of content that is still held back
    int64_t reasoning_tokens_ = 0;
    int32_t last_ = -1;
    int repeats_ = 0;
    bool stopped_ = false;   // by us
    bool too_many_ = false;  // the same token again and again
};

/// The token's request for the engine.
GenerateRequest engine_request(const ModelText& text, const AnswerRequest& request, const TokenPrompt& prompt,
                               int64_t room, int reply);

}  // namespace strata::server
