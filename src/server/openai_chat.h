// POST /v1/chat/completions: bodies in, answers and chunks out (docs/api.md). Pure.
#pragma once

#include <memory>

#include "server/answer_request.h"
#include "server/answer_writer.h"

namespace strata::server {

Api<AnswerRequest> read_chat_request(Json body);
std::unique_ptr<AnswerWriter> chat_writer(const AnswerRequest& request, const AnswerIdentity& identity);

}  // namespace strata::server
