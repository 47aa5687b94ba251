// What the server knows of a model without its weights: tokenizer, chat format, defaults of sampling. Immutable and
// shared: requests that run keep the one they began with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_request.h"
#include "setup/registry.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace strata::server {

/// A prompt as tokens.
struct TokenPrompt {
    std::vector<int32_t> ids;
    std::optional<int64_t> turn_at;  // where its last turn begins
    ChatPrompt chat;                 // of a chat
};

class ModelText {
  public:
    /// Reads the file's header, tokenizer and template.
    static Result<std::shared_ptr<const ModelText>> open(const ModelEntry& entry);

    const ModelEntry& entry() const { return entry_; }
    const Tokenizer& tokenizer() const { return tokenizer_; }
    /// Null where the template cannot be used; why is in chat_problem.
    const ChatFormat* chat() const { return chat_ ? &*chat_ : nullptr; }
    const std::string& chat_problem() const { return chat_problem_; }
    const Sampling& default_sampling() const { return sampling_; }

    /// The request's settings over the model's own.
    Sampling sampling(const SamplingFields& fields) const;

    Api<TokenPrompt> render(const ChatRequest& request) const;
    Api<TokenPrompt> raw_prompt(const RawPrompt& prompt, const std::optional<std::string>& suffix) const;

  private:
    ModelText(ModelEntry entry, Tokenizer tokenizer) : entry_(std::move(entry)), tokenizer_(std::move(tokenizer)) {}
    std::optional<int64_t> last_turn(const ChatRequest& request, const TokenPrompt& prompt) const;

    const ModelEntry entry_;
    const Tokenizer tokenizer_;
    std::optional<ChatFormat> chat_;
    std::string chat_problem_;
    Sampling sampling_;
};

}  // namespace strata::server
