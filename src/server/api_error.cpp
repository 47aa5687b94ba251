#include "server/api_error.h"

namespace strata::server {
namespace {

ApiError bad_request(const char* code, std::string param, std::string message) {
    ApiError error;
    error.code = code;
    error.message = std::move(message);
    error.param = std::move(param);
    return error;
}

std::string anthropic_type(const ApiError& error) {
    switch (error.status) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 404: return "not_found_error";
        case 413: return "request_too_large";
        case 429:
        case 503: return "overloaded_error";
        case 500: return "api_error";
        default: return "invalid_request_error";
    }
}

/// tools[0].name as Anthropic's clients write it: tools.0.name.
std::string dotted(std::string_view param) {
    std::string out;
    for (const char c : param) {
        if (c == ']') continue;
        out += c == '[' ? '.' : c;
    }
    return out;
}

}  // namespace

ApiError invalid_value(std::string param, std::string message) {
    return bad_request("invalid_value", std::move(param), std::move(message));
}
ApiError invalid_type(std::string param, std::string wanted) {
    std::string message = param + " must be " + wanted;
    return bad_request("invalid_type", std::move(param), std::move(message));
}
ApiError missing(std::string param) {
    std::string message = param + " is missing";
    return bad_request("missing_required_parameter", std::move(param), std::move(message));
}
ApiError unsupported_parameter(std::string param, std::string why) {
    return bad_request("unsupported_parameter", std::move(param), std::move(why));
}
ApiError unsupported_value(std::string param, std::string why) {
    return bad_request("unsupported_value", std::move(param), std::move(why));
}
ApiError not_found(std::string message, std::string code) {
    ApiError error = bad_request("", "", std::move(message));
    error.status = 404;
    error.code = std::move(code);
    return error;
}
ApiError unavailable(std::string message, std::string code) {
    ApiError error;
    error.status = 503;
    error.type = "server_error";
    error.code = std::move(code);
    error.message = std::move(message);
    error.retry_after = 5;
    return error;
}
ApiError internal_error(std::string message) {
    ApiError error;
    error.status = 500;
    error.type = "server_error";
    error.code = "internal_error";
    error.message = std::move(message);
    return error;
}
ApiError context_exceeded(int64_t context, int64_t tokens) {
    ApiError error = bad_request("context_length_exceeded", "messages",
                                 "This model's maximum context length is " + std::to_string(context) +
                                     " tokens. However, your messages resulted in " + std::to_string(tokens) +
                                     " tokens. Please reduce the length of the messages.");
    error.more = {{"n_prompt_tokens", tokens}, {"n_ctx", context}};
    return error;
}
ApiError queue_full(int limit) {
    ApiError error;
    error.status = 429;
    error.type = "rate_limit_error";
    error.code = "queue_full";
    error.message = "too many requests wait already (" + std::to_string(limit) + "); try again later";
    error.retry_after = 5;
    return error;
}

ApiError from_text_error(const Error& error) {
    if (error.code == "template_error") return bad_request("template_error", "messages", error.message);
    if (error.code == "unsupported_schema") return unsupported_value("response_format", error.message);
    if (error.code == "invalid_json") return bad_request("invalid_json", "", error.message);
    if (error.code == "pictures_unsupported") return unsupported_value("messages", error.message);
    if (error.code == "invalid_request") {
        // The sentence begins with the field: "messages[3].content[0]: ...", "tools must be a list".
        const std::string field = error.message.substr(0, error.message.find_first_of(": "));
        return bad_request("invalid_value", field, error.message);
    }
    return internal_error(error.message);
}

Json error_json(const ApiError& error, Wire wire, const std::string& request_id) {
    if (wire == Wire::anthropic) {
        std::string message = error.message;
        if (error.code == "context_length_exceeded" && error.more.contains("n_ctx"))
            message = "prompt is too long: " + json_text(error.more["n_prompt_tokens"]) + " tokens > " +
                      json_text(error.more["n_ctx"]) + " maximum";
        else if (!error.param.empty() && !message.starts_with(error.param))
            message = dotted(error.param) + ": " + message;
        else if (!error.param.empty())
            message = dotted(error.param) + message.substr(error.param.size());
        return {{"type", "error"},
                {"error", {{"type", anthropic_type(error)}, {"message", std::move(message)}}},
                {"request_id", request_id}};
    }
    Json inner = {{"message", error.message},
                  {"type", error.type},
                  {"param", error.param.empty() ? Json() : Json(error.param)},
                  {"code", error.code.empty() ? Json() : Json(error.code)}};
    for (const auto& [key, value] : error.more.items()) inner[key] = value;
    return {{"error", std::move(inner)}};
}

int wire_status(const ApiError& error, Wire wire) {
    if (wire == Wire::anthropic && (error.status == 429 || error.status == 503)) return 529;
    return error.status;
}

HttpResponse error_response(const ApiError& error, Wire wire, const std::string& request_id) {
    HttpResponse response;
    response.status = wire_status(error, wire);
    response.body = json_text(error_json(error, wire, request_id));
    if (error.retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
    return response;
}

}  // namespace strata::server
