// The way of a generating request: choose the model, make the prompt, wait for a turn, read the engine's reply, send
// the answer. The same for every dialect.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/answer_request.h"
#include "server/answer_writer.h"
#include "server/services.h"

namespace strata::server {

using MakeWriter = std::function<std::unique_ptr<AnswerWriter>(const AnswerRequest&, const AnswerIdentity&)>;

/// Answers the exchange. Returns when the answer has been sent or its client has gone.
void answer(Services& services, Exchange& exchange, const std::string& request_id, AnswerRequest request, Wire wire,
            const MakeWriter& make_writer);

/// Prompts of a request as tokens, checked against the context. `text` must be the model in use.
Api<std::vector<TokenPrompt>> make_prompts(const ModelText& text, const AnswerRequest& request, int64_t context);

/// The model in use when a request names one: switched to where that is allowed. Refused: an installed model that is
/// not in use, by its exact id.
Api<Serving> choose_model(Services& services, const std::string& name);

/// Rows of the context that the engine keeps free.
inline constexpr int64_t kContextReserve = 8;

}  // namespace strata::server
