// POST /v1/messages: Anthropic's bodies in, answers and events out (docs/api.md). Pure but for the memory of reasoning.
#pragma once

#include <memory>

#include "server/answer_request.h"
#include "server/answer_writer.h"
#include "server/reasoning_memory.h"

namespace strata::server {

struct AnthropicOptions {
    /// Requests of few tokens that say nothing about thinking (titles, checks) do not think.
    bool short_requests_think = false;
    /// Requests that say nothing about thinking do not think, however long they are.
    bool only_on_request = false;
};

/// What Anthropic's dialect keeps beside the request.
struct AnthropicRequest {
    AnswerRequest answer;
    bool omit_thinking = false;  // blocks of thinking are sent without their text
};

Api<AnthropicRequest> read_messages_request(Json body, const ReasoningMemory& memory, const AnthropicOptions& options);
std::unique_ptr<AnswerWriter> messages_writer(const AnthropicRequest& request, const AnswerIdentity& identity,
                                              ReasoningMemory& memory);

/// A system text without the header line of Claude Code that changes with every request.
std::string without_billing_header(std::string text);

}  // namespace strata::server
