#include "server/text_routes.h"

#include "server/answering.h"
#include "server/openai_chat.h"
#include "server/registry_routes.h"
#include "text/utf8.h"

namespace strata::server {
namespace {

Api<std::shared_ptr<const ModelText>> text_in_use(Services& s) {
    Serving now = s.host.serving();
    if (!now.text) return unavailable("no model is in use", "no_model");
    return std::move(now.text);
}

bool is_utf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const CodePoint point = decode_utf8(text, at);
        if (!point.valid) return false;
        at += point.size;
    }
    return true;
}

Api<Json> tokenize_json(const RouteCall& call) {
    STRATA_TRY_ASSIGN(const auto text, text_in_use(call.services));
    STRATA_TRY_ASSIGN(const Json json, parse_body(call.exchange.request().body));
    const Fields body(json);
    STRATA_TRY_ASSIGN(const auto content, body.text("content"));
    if (!content) return missing("content");
    STRATA_TRY_ASSIGN(const auto special, body.boolean("add_special"));
    STRATA_TRY_ASSIGN(const auto parse, body.boolean("parse_special"));
    STRATA_TRY_ASSIGN(const auto pieces, body.boolean("with_pieces"));
    const auto ids = text->tokenizer().encode(
        *content, {.parse_special = parse.value_or(true),
                   .add_special = special.value_or(false) ? AddSpecial::once : AddSpecial::none});
    Json tokens = Json::array();
    for (const int32_t id : ids) {
        if (!pieces.value_or(false)) {
            tokens.push_back(id);
            continue;
        }
        const std::string_view piece = text->tokenizer().piece(id, true);
        Json shown = std::string(piece);
        if (!is_utf8(piece)) {
            shown = Json::array();
            for (const char c : piece) shown.push_back(static_cast<unsigned char>(c));
        }
        tokens.push_back({{"id", id}, {"piece", std::move(shown)}});
    }
    return Json{{"tokens", std::move(tokens)}};
}

Api<Json> detokenize_json(const RouteCall& call) {
    STRATA_TRY_ASSIGN(const auto text, text_in_use(call.services));
    STRATA_TRY_ASSIGN(const Json json, parse_body(call.exchange.request().body));
    STRATA_TRY_ASSIGN(const Json* tokens, Fields(json).array("tokens"));
    if (!tokens) return missing("tokens");
    std::vector<int32_t> ids;
    for (size_t i = 0; i < tokens->size(); ++i) {
        const Json& item = (*tokens)[i];
        const std::string where = "tokens[" + std::to_string(i) + "]";
        if (!item.is_number_integer()) return invalid_type(where, "a token id");
        if (item < 0 || item >= text->tokenizer().vocab_size())
            return invalid_value(where, where + " is no token of this model");
        ids.push_back(item.get<int32_t>());
    }
    return Json{{"content", displayed(text->tokenizer().decode(ids, true))}};
}

Api<Json> template_json(const RouteCall& call) {
    STRATA_TRY_ASSIGN(const auto text, text_in_use(call.services));
    STRATA_TRY_ASSIGN(Json json, parse_body(call.exchange.request().body));
    STRATA_TRY_ASSIGN(const AnswerRequest request, read_chat_request(std::move(json)));
    STRATA_TRY_ASSIGN(const TokenPrompt prompt, text->render(request.chat));
    return Json{{"prompt", prompt.chat.text}, {"generation_prompt", prompt.chat.generation_prompt}};
}

Api<Json> props_json(Services& s) {
    STRATA_TRY_ASSIGN(const auto text, text_in_use(s));
    const ModelEntry& entry = text->entry();
    const ChatFormat* chat = text->chat();
    const Sampling& d = text->default_sampling();
    Json efforts = Json::array();
    if (chat)
        for (const std::string_view level : effort_levels)
            if (!chat->effort_for(level).empty()) efforts.push_back(level);
    return Json{{"model", entry.id},
                {"model_path", entry.path.filename().string()},
                {"architecture", entry.facts ? entry.facts->architecture : ""},
                {"n_ctx", s.host.context()},
                {"total_slots", s.queue.slots()},
                {"chat_template", chat ? chat->template_source() : ""},
                {"chat_problem", chat ? Json() : Json(text->chat_problem())},
                {"bos_token", text->tokenizer().bos_text()},
                {"eos_token", text->tokenizer().eos_text()},
                {"dialect", chat ? chat->dialect().name() : "none"},
                {"thinking",
                 {{"switch", chat && chat->template_source().find("enable_thinking") != std::string::npos},
                  {"efforts", std::move(efforts)},
                  {"default", true}}},
                {"modalities", {{"vision", false}}},
                {"response_formats", Json::array({"text", "json_object", "json_schema"})},
                {"default_generation_settings",
                 {{"temperature", d.temperature},
                  {"top_k", d.top_k},
                  {"top_p", d.top_p},
                  {"min_p", d.min_p},
                  {"repeat_penalty", d.penalty_repeat},
                  {"presence_penalty", d.penalty_present},
                  {"frequency_penalty", d.penalty_freq}}},
                {"build", fingerprint()}};
}

void respond(const RouteCall& call, const Api<Json>& result) {
    if (result)
        respond_json(call, *result);
    else
        respond_error(call, result.error());
}

}  // namespace

Api<int64_t> count_tokens(Services& services, const AnswerRequest& request) {
    STRATA_TRY_ASSIGN(const auto text, text_in_use(services));
    STRATA_TRY_ASSIGN(const TokenPrompt prompt, text->render(request.chat));
    return static_cast<int64_t>(prompt.ids.size());
}

void tokenize(const RouteCall& call) {
    respond(call, tokenize_json(call));
}

void detokenize(const RouteCall& call) {
    respond(call, detokenize_json(call));
}

void apply_template(const RouteCall& call) {
    respond(call, template_json(call));
}

void chat_input_tokens(const RouteCall& call) {
    const auto count = [&]() -> Api<Json> {
        STRATA_TRY_ASSIGN(Json json, parse_body(call.exchange.request().body));
        STRATA_TRY_ASSIGN(const AnswerRequest request, read_chat_request(std::move(json)));
        STRATA_TRY_ASSIGN(const int64_t tokens, count_tokens(call.services, request));
        return Json{{"object", "response.input_tokens"}, {"input_tokens", tokens}};
    };
    respond(call, count());
}

void props(const RouteCall& call) {
    respond(call, props_json(call.services));
}

}  // namespace strata::server
