// A reply in stages. Most replies are one request to the engine, free or under the grammar of the whole reply
// (text/reply_grammar.h). Two wishes take more: a budget of reasoning (reasoning, then its closing mark is written for
// the model, then the rest), and a call that must be made in a dialect that no grammar describes (reasoning, then the
// opening of the call is written). A stage continues where the one before ended, so the engine reads nothing twice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/answer_request.h"
#include "server/model_text.h"
#include "text/chat_answer.h"

namespace strata::server {

/// What the engine is asked for next.
struct Stage {
    std::vector<int32_t> forced;      // tokens that are written first, as if the model had
    std::string grammar;              // of the rest; empty: free
    std::vector<int32_t> more_stops;  // tokens that end this stage beside those that end the reply
    int64_t most = INT64_MAX;         // tokens of it
    bool last = true;                 // the reply ends with it
    bool reasoning = false;           // it is over when the reasoning is
};

class Stages {
  public:
    /// Refuses forms that are not supported. All must outlive it.
    static Api<std::unique_ptr<Stages>> make(const ModelText& text, const AnswerRequest& request,
                                             const TokenPrompt& prompt);

    bool needs_grammar() const { return !grammar_.empty(); }

    /// How the reply is to be read.
    AnswerOptions answer_options() const;
    /// The next stage; `parser` has read all tokens so far.
    Stage next(AnswerParser& parser);
    /// A token of a reasoning stage.
    void reasoned() { ++reasoning_; }

  private:
    Stages(const ModelText& text, const AnswerRequest& request, const TokenPrompt& prompt)
        : text_(text), request_(request), prompt_(prompt) {}

    Api<void> make_grammar();
    std::vector<int32_t> ids(std::string_view mark) const;

    const ModelText& text_;
    const AnswerRequest& request_;
    const TokenPrompt& prompt_;
    std::string grammar_;  // of what is left of the reply
    bool budget_ = false;
    bool force_call_ = false;  // by writing its opening
    int64_t reasoning_ = 0;    // tokens
};

}  // namespace strata::server
