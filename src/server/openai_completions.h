// POST /v1/completions: prompts that are no chats. Pure.
#pragma once

#include <memory>

#include "server/answer_request.h"
#include "server/answer_writer.h"

namespace strata::server {

Api<AnswerRequest> read_completion_request(Json body);
std::unique_ptr<AnswerWriter> completion_writer(const AnswerRequest& request, const AnswerIdentity& identity);

}  // namespace strata::server
