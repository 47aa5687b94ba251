// Routes about tokens and templates: they need the model's text and never wait for its engine.
#pragma once

#include "server/router.h"

namespace strata::server {

void tokenize(const RouteCall& call);
void detokenize(const RouteCall& call);
void apply_template(const RouteCall& call);
void chat_input_tokens(const RouteCall& call);
void props(const RouteCall& call);

/// Tokens of a chat's prompt, as a request would have them.
Api<int64_t> count_tokens(Services& services, const AnswerRequest& request);

}  // namespace strata::server
