// POST /v1/responses, without stored state: items in, items and events out (docs/api.md). Pure.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "server/answer_request.h"
#include "server/answer_writer.h"

namespace strata::server {

struct ResponsesRequest {
    AnswerRequest answer;
    Json echo;                           // the fields that the answer repeats
    std::set<std::string> custom_tools;  // names of tools with free text for input
    bool summary = false;                // reasoning as a summary, too
    bool encrypted = false;              // reasoning goes back and forth in encrypted_content
    bool logprobs = false;
};

Api<ResponsesRequest> read_responses_request(Json body);
std::unique_ptr<AnswerWriter> responses_writer(const ResponsesRequest& request, const AnswerIdentity& identity);

std::string base64(std::string_view bytes);
/// Empty where it is no base64.
std::string unbase64(std::string_view text);
inline constexpr std::string_view kSealed = "ps1.";  // in front of encrypted_content

}  // namespace strata::server
