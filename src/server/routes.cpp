// The table of routes, and the handlers that are a few lines each.
#include "server/answering.h"
#include "server/anthropic.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/page.h"
#include "server/registry_routes.h"
#include "server/responses.h"
#include "server/router.h"
#include "server/state_routes.h"
#include "server/text_routes.h"

namespace strata::server {

void respond_json(const RouteCall& call, const Json& body, int status) {
    call.exchange.respond({.status = status, .body = json_text(body)});
}

void respond_error(const RouteCall& call, const ApiError& error, Wire wire) {
    call.exchange.respond(error_response(error, wire, call.request_id));
}

namespace {

void chat_completions(const RouteCall& call) {
    auto body = parse_body(call.exchange.request().body);
    if (!body) return respond_error(call, body.error(), Wire::openai);
    auto request = read_chat_request(std::move(*body));
    if (!request) return respond_error(call, request.error(), Wire::openai);
    answer(call.services, call.exchange, call.request_id, std::move(*request), Wire::openai, chat_writer);
}

void completions(const RouteCall& call) {
    auto body = parse_body(call.exchange.request().body);
    if (!body) return respond_error(call, body.error());
    auto request = read_completion_request(std::move(*body));
    if (!request) return respond_error(call, request.error());
    answer(call.services, call.exchange, call.request_id, std::move(*request), Wire::openai, completion_writer);
}

void responses(const RouteCall& call) {
    auto body = parse_body(call.exchange.request().body);
    if (!body) return respond_error(call, body.error());
    const auto request = read_responses_request(std::move(*body));
    if (!request) return respond_error(call, request.error());
    answer(call.services, call.exchange, call.request_id, request->answer, Wire::openai,
           [&](const AnswerRequest&, const AnswerIdentity& identity) { return responses_writer(*request, identity); });
}

void responses_input_tokens(const RouteCall& call) {
    auto body = parse_body(call.exchange.request().body);
    if (!body) return respond_error(call, body.error());
    const auto request = read_responses_request(std::move(*body));
    if (!request) return respond_error(call, request.error());
    const auto tokens = count_tokens(call.services, request->answer);
    if (!tokens) return respond_error(call, tokens.error());
    respond_json(call, {{"object", "response.input_tokens"}, {"input_tokens", *tokens}});
}

/// A stored response: none is.
void no_response(const RouteCall& call) {
    respond_error(call, not_found("responses are not stored: there is none with the id '" +
                                  std::string(call.rest.substr(0, 200)) + "'"));
}

AnthropicOptions anthropic_options(const Services& s) {
    const Serving now = s.host.serving();
    return {.short_requests_think = s.options.short_requests_think,
            .only_on_request = now.text && now.text->entry().config.thinks_on_request};
}

void messages(const RouteCall& call) {
    Services& s = call.services;
    auto body = parse_body(call.exchange.request().body);
    if (!body) return respond_error(call, body.error(), Wire::anthropic);
    const auto request = read_messages_request(std::move(*body), s.reasoning, anthropic_options(s));
    if (!request) return respond_error(call, request.error(), Wire::anthropic);
    answer(s, call.exchange, call.request_id, request->answer, Wire::anthropic,
           [&](const AnswerRequest&, const AnswerIdentity& identity) {
               return messages_writer(*request, identity, s.reasoning);
           });
}

void messages_count_tokens(const RouteCall& call) {
    Services& s = call.services;
    auto body = parse_body(call.exchange.request().body);
    if (!body) return respond_error(call, body.error(), Wire::anthropic);
    const auto request = read_messages_request(std::move(*body), s.reasoning, anthropic_options(s));
    if (!request) return respond_error(call, request.error(), Wire::anthropic);
    const auto tokens = count_tokens(s, request->answer);
    if (!tokens) return respond_error(call, tokens.error(), Wire::anthropic);
    respond_json(call, {{"input_tokens", *tokens}});
}

void not_offered(const RouteCall& call) {
    respond_error(call, not_found("this server does not offer " + std::string(call.exchange.request().path())),
                  Wire::openai);
}

}  // namespace

const std::vector<Route>& routes() {
    static const std::vector<Route> all = {
        {.method = "POST", .path = "/chat/completions", .handle = chat_completions, .versions = true},
        {.method = "POST", .path = "/chat/completions/input_tokens", .handle = chat_input_tokens, .versions = true},
        {.method = "POST", .path = "/completions", .handle = completions, .versions = true},
        {.method = "POST", .path = "/responses", .handle = responses, .versions = true},
        {.method = "POST", .path = "/responses/input_tokens", .handle = responses_input_tokens, .versions = true},
        {.method = "GET", .path = "/responses/*", .handle = no_response, .versions = true},
        {.method = "POST", .path = "/v1/messages", .handle = messages},
        {.method = "POST", .path = "/v1/messages/count_tokens", .handle = messages_count_tokens},
        {.method = "GET", .path = "/models", .handle = list_models, .versions = true},
        {.method = "GET", .path = "/models/*", .handle = one_model, .versions = true},
        {.method = "POST", .path = "/embeddings", .handle = not_offered, .versions = true},
        {.method = "GET", .path = "/api/models", .handle = registry_list},
        {.method = "GET", .path = "/api/models/current", .handle = registry_current},
        {.method = "POST", .path = "/api/models/load", .handle = registry_load, .control = true},
        {.method = "POST", .path = "/api/models/unload", .handle = registry_unload, .control = true},
        {.method = "POST", .path = "/load", .handle = registry_load, .versions = true, .control = true},
        {.method = "POST", .path = "/unload", .handle = registry_unload, .versions = true, .control = true},
        {.method = "POST", .path = "/v1/vram", .handle = set_vram, .control = true},
        {.method = "POST", .path = "/tokenize", .handle = tokenize},
        {.method = "POST", .path = "/detokenize", .handle = detokenize},
        {.method = "POST", .path = "/apply-template", .handle = apply_template},
        {.method = "GET", .path = "/props", .handle = props},
        {.method = "GET", .path = "/", .handle = page, .open = true},
        {.method = "GET", .path = "/web/*", .handle = page_file, .open = true},
        {.method = "GET", .path = "/health", .handle = health, .versions = true, .open = true},
        {.method = "GET", .path = "/api/health", .handle = health, .open = true},
        {.method = "GET", .path = "/ready", .handle = ready, .open = true},
        {.method = "GET", .path = "/status", .handle = status, .watch = true},
        {.method = "GET", .path = "/v1/status", .handle = whole_status, .watch = true},
        {.method = "GET", .path = "/slots", .handle = slots, .watch = true},
        {.method = "GET", .path = "/metrics", .handle = metrics, .watch = true},
        {.method = "GET", .path = "/settings", .handle = settings, .control = true},
        {.method = "POST", .path = "/settings", .handle = change_settings, .control = true},
        {.method = "GET", .path = "/api/version", .handle = version},
    };
    return all;
}

}  // namespace strata::server
