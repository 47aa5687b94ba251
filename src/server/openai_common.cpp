#include "server/openai_common.h"

namespace strata::server {
namespace {

const char* finish_name(Finish finish) {
    switch (finish) {
        case Finish::tool_calls: return "tool_calls";
        case Finish::length: return "length";
        default: return "stop";
    }
}

Api<void> read_limits(const Fields& body, std::initializer_list<const char*> names, AnswerRequest& out) {
    for (const char* name : names) {
        STRATA_TRY_ASSIGN(const auto value, body.integer(name, INT64_MIN, INT64_MAX));
        if (!value) continue;
        if (*value > 0) out.max_tokens = *value;  // 0 and below mean: as many as fit
        return {};
    }
    return {};
}

}  // namespace

Api<void> read_openai_fields(const Fields& body, std::initializer_list<const char*> limits, AnswerRequest& out) {
    STRATA_TRY_ASSIGN(const auto model, body.text("model"));
    out.model = model.value_or("");
    const auto flag = [&](const char* name, bool& target) -> Api<void> {
        STRATA_TRY_ASSIGN(const auto value, body.boolean(name));
        target = value.value_or(target);
        return {};
    };
    STRATA_TRY(flag("stream", out.stream));
    STRATA_TRY(flag("ignore_eos", out.ignore_eos));
    STRATA_TRY(flag("cache_prompt", out.cache));
    STRATA_TRY(flag("return_progress", out.progress));
    STRATA_TRY(flag("timings_per_token", out.timings_per_token));
    STRATA_TRY_ASSIGN(const Json* options, body.object("stream_options"));
    if (options) {
        STRATA_TRY_ASSIGN(const auto usage, Fields(*options, "stream_options.").boolean("include_usage"));
        out.include_usage = usage.value_or(false);
    }
    STRATA_TRY(read_limits(body, limits, out));
    STRATA_TRY(read_sampling(body, out.sampling));
    STRATA_TRY_ASSIGN(out.stop, read_stop(body, "stop"));
    STRATA_TRY_ASSIGN(const auto n, body.integer("n", 1, 8));
    out.n = static_cast<int>(n.value_or(1));
    if (const Json* format = body.find("response_format")) {
        STRATA_TRY_ASSIGN(out.format, read_format(*format, "response_format", false));
    } else if (const Json* schema = body.find("json_schema")) {
        if (!schema->is_object()) return invalid_type("json_schema", "an object");
        out.format.kind = OutputFormat::Kind::json_schema;
        out.format.schema = *schema;
    }
    return {};
}

OpenAiWriter::OpenAiWriter(const Names& names, const AnswerRequest& request, const AnswerIdentity& identity)
    : names_(names), identity_(identity), include_usage_(request.include_usage) {
    chunk_head_ = "data: " + json_text(head(names_.chunk));
    chunk_head_.back() = ',';  // the object goes on
    chunk_head_ += "\"choices\":[";
}

Json OpenAiWriter::head(const char* object) const {
    return {{"id", names_.prefix + identity_.id},
            {"object", object},
            {"created", identity_.created},
            {"model", identity_.model},
            {"system_fingerprint", fingerprint()}};
}

std::string OpenAiWriter::chunk(const Json& choice, const Json& more) const {
    std::string out = chunk_head_;
    if (!choice.is_null()) out += json_text(choice);
    out += ']';
    const auto member = [&](const char* name, const Json& value) {
        out.append(",\"").append(name).append("\":").append(json_text(value));
    };
    if (include_usage_ && !more.contains("usage")) member("usage", nullptr);
    if (!so_far_.is_null() && !more.contains("timings")) member("timings", so_far_);
    for (const auto& [name, value] : more.items()) member(name.c_str(), value);
    return out.append("}\n\n");
}

std::string OpenAiWriter::end_reply(int reply, const ReplyResult& result, const Totals& totals) {
    return chunk(last_choice(reply, finish_name(result.finish)), {{"timings", timings_json(totals)}});
}

std::string OpenAiWriter::end(const Totals& totals) {
    so_far_ = nullptr;
    const std::string usage = include_usage_ ? chunk(nullptr, {{"usage", usage_json(totals)}}) : "";
    return usage + "data: [DONE]\n\n";
}

std::string OpenAiWriter::error(const ApiError& error, const std::string& request_id) {
    return sse("", error_json(error, Wire::openai, request_id));
}

Json OpenAiWriter::whole(std::span<const ReplyResult> replies, const Totals& totals) {
    Json out = head(names_.whole);
    out["choices"] = Json::array();
    for (size_t i = 0; i < replies.size(); ++i)
        out["choices"].push_back(whole_choice(static_cast<int>(i), replies[i], finish_name(replies[i].finish)));
    out["usage"] = usage_json(totals);
    out["timings"] = timings_json(totals);
    return out;
}

}  // namespace strata::server
