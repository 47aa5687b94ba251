// What the API refuses, and how each kind of client reads it (docs/api.md, "Errors").
#pragma once

#include <string>

#include "base/result.h"
#include "server/http.h"
#include "text/json.h"

namespace strata::server {

enum class Wire { openai, responses, anthropic };

struct ApiError {
    int status = 400;
    std::string type = "invalid_request_error";  // OpenAI's name
    std::string code;                            // may be empty
    std::string param;                           // the field; may be empty
    std::string message;
    Json more = Json::object();  // further members of OpenAI's error
    int retry_after = 0;         // seconds; 0: not said
};

/// A T or an ApiError.
template <class T>
using Api = Result<T, ApiError>;

ApiError invalid_value(std::string param, std::string message);
ApiError invalid_type(std::string param, std::string wanted);
ApiError missing(std::string param);
ApiError unsupported_parameter(std::string param, std::string why);
ApiError unsupported_value(std::string param, std::string why);
ApiError not_found(std::string message, std::string code = "not_found");
ApiError unavailable(std::string message, std::string code);
ApiError internal_error(std::string message);
ApiError context_exceeded(int64_t context, int64_t tokens);
ApiError queue_full(int limit);
/// An error of the text room: codes template_error, invalid_request, ...
ApiError from_text_error(const Error& error);

/// The error's body. `request_id` is told to Anthropic's clients.
Json error_json(const ApiError& error, Wire wire, const std::string& request_id);
/// The status as that kind of client knows it.
int wire_status(const ApiError& error, Wire wire);
HttpResponse error_response(const ApiError& error, Wire wire, const std::string& request_id);

}  // namespace strata::server
