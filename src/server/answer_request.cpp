#include "server/answer_request.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/answer_writer.h"

namespace strata::server {
namespace {

constexpr int kMany = std::numeric_limits<int>::max();

Api<void> read_bias(const Fields& body, SamplingFields& out) {
    STRATA_TRY_ASSIGN(const Json* bias, body.object("logit_bias"));
    if (!bias) return {};
    for (const auto& [key, value] : bias->items()) {
        int32_t id = 0;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error != std::errc{} || end != key.data() + key.size() || id < 0)
            return invalid_value("logit_bias", "logit_bias: '" + key + "' is no token id");
        if (!value.is_number() || value.get<double>() < -100 || value.get<double>() > 100)
            return invalid_value("logit_bias", "logit_bias: the value of '" + key + "' must be between -100 and 100");
        const auto amount = value.get<double>();
        out.bias.emplace_back(id, amount <= -100 ? -1e9f : static_cast<float>(amount));
    }
    return {};
}

template <class T, class U>
void take(std::optional<T>& out, const std::optional<U>& value) {
    if (value) out = static_cast<T>(*value);
}

}  // namespace

void SamplingFields::fill_from(const SamplingFields& other) {
    const auto fill = [](auto& mine, const auto& theirs) {
        if (!mine) mine = theirs;
    };
    fill(temperature, other.temperature);
    fill(top_p, other.top_p);
    fill(min_p, other.min_p);
    fill(typical, other.typical);
    fill(penalty_repeat, other.penalty_repeat);
    fill(penalty_present, other.penalty_present);
    fill(penalty_freq, other.penalty_freq);
    fill(top_k, other.top_k);
    fill(penalty_last_n, other.penalty_last_n);
    fill(dry_multiplier, other.dry_multiplier);
    fill(dry_base, other.dry_base);
    fill(dry_allowed_length, other.dry_allowed_length);
    fill(dry_last_n, other.dry_last_n);
    fill(seed, other.seed);
}

Api<Json> parse_body(std::string_view body) {
    if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);
    auto parsed = parse_json(displayed(body));  // bytes that are no UTF-8 become U+FFFD here, and occur nowhere else
    if (!parsed) {
        ApiError error;
        error.code = "invalid_json";
        error.message = "the request's body is not JSON: " + parsed.error().message;
        return error;
    }
    if (!parsed->is_object()) {
        ApiError error;
        error.code = "invalid_type";
        error.message = "the request's body must be a JSON object";
        return error;
    }
    return std::move(parsed).value();
}

Api<void> read_sampling(const Fields& body, SamplingFields& out) {
    STRATA_TRY_ASSIGN(const auto temperature, body.number("temperature", 0, 2));
    STRATA_TRY_ASSIGN(const auto top_p, body.number("top_p", 0, 1));
    if (top_p && *top_p == 0) return invalid_value(body.path("top_p"), body.path("top_p") + " must be above 0");
    STRATA_TRY_ASSIGN(const auto top_k, body.integer("top_k", -1, kMany));
    STRATA_TRY_ASSIGN(const auto min_p, body.number("min_p", 0, 1));
    STRATA_TRY_ASSIGN(const auto typical, body.number("typical_p", 0, 1));
    STRATA_TRY_ASSIGN(const auto presence, body.number("presence_penalty", -2, 2));
    STRATA_TRY_ASSIGN(const auto frequency, body.number("frequency_penalty", -2, 2));
    STRATA_TRY_ASSIGN(const auto repeat, body.number("repeat_penalty", 0.01, 100));
    STRATA_TRY_ASSIGN(const auto repetition, body.number("repetition_penalty", 0.01, 100));
    STRATA_TRY_ASSIGN(const auto last_n, body.integer("repeat_last_n", -1, kMany));
    STRATA_TRY_ASSIGN(const auto penalty_last_n, body.integer("penalty_last_n", -1, kMany));
    STRATA_TRY_ASSIGN(const auto seed, body.integer("seed", -1, std::numeric_limits<int64_t>::max()));
    STRATA_TRY_ASSIGN(const auto dry_multiplier, body.number("dry_multiplier", 0, 100));
    STRATA_TRY_ASSIGN(const auto dry_base, body.number("dry_base", 1, 100));
    STRATA_TRY_ASSIGN(const auto dry_allowed, body.integer("dry_allowed_length", 0, kMany));
    STRATA_TRY_ASSIGN(const auto dry_last_n, body.integer("dry_penalty_last_n", -1, kMany));
    if (body.has("grammar")) return unsupported_parameter("grammar", "grammar is not supported: use response_format");
    if (body.has("samplers"))
        return unsupported_parameter("samplers", "samplers is not supported: the order is fixed (docs/api.md)");
    take(out.temperature, temperature);
    take(out.top_p, top_p);
    if (top_k) out.top_k = static_cast<int>(std::max<int64_t>(*top_k, 0));
    take(out.min_p, min_p);
    if (typical && *typical > 0) take(out.typical, typical);
    take(out.penalty_present, presence);
    take(out.penalty_freq, frequency);
    take(out.penalty_repeat, repeat ? repeat : repetition);
    if (const auto& n = last_n ? last_n : penalty_last_n) out.penalty_last_n = *n < 0 ? kMany : static_cast<int>(*n);
    if (seed && *seed >= 0) out.seed = static_cast<uint64_t>(*seed);
    take(out.dry_multiplier, dry_multiplier);
    take(out.dry_base, dry_base);
    take(out.dry_allowed_length, dry_allowed);
    if (dry_last_n) out.dry_last_n = static_cast<int>(std::max<int64_t>(*dry_last_n, 0));
    return read_bias(body, out);
}

Api<std::vector<std::string>> read_stop(const Fields& body, const char* name) {
    const Json* value = body.find(name);
    std::vector<std::string> stops;
    if (!value) return stops;
    const Json list = value->is_string() ? Json::array({*value}) : *value;
    if (!list.is_array()) return invalid_type(body.path(name), "a string or a list of strings");
    if (list.size() > kMostStops)
        return invalid_value(body.path(name), body.path(name) + " may have at most " + std::to_string(kMostStops) +
                                                  " strings, not " + std::to_string(list.size()));
    for (const Json& item : list) {
        if (!item.is_string()) return invalid_type(body.path(name), "a string or a list of strings");
        auto text = item.get<std::string>();
        if (text.size() > kLongestStop)
            return invalid_value(body.path(name), body.path(name) + ": a string is longer than 256 bytes");
        if (!text.empty()) stops.push_back(std::move(text));
    }
    return stops;
}

Api<OutputFormat> read_format(const Json& format, const std::string& path, bool flat) {
    OutputFormat out;
    if (!format.is_object()) return invalid_type(path, "an object");
    const Fields fields(format, path + ".");
    STRATA_TRY_ASSIGN(const auto type, fields.text("type"));
    if (!type) return missing(path + ".type");
    if (*type == "text") return out;
    if (*type == "json_object") {
        out.kind = OutputFormat::Kind::json_object;
        // An older extension: {"type": "json_object", "schema": ..}.
        if (const Json* schema = fields.find("schema")) {
            out.kind = OutputFormat::Kind::json_schema;
            out.schema = *schema;
        }
        return out;
    }
    if (*type != "json_schema")
        return unsupported_value(path + ".type",
                                 path + ".type must be text, json_object or json_schema, not '" + *type + "'");
    out.kind = OutputFormat::Kind::json_schema;
    const Json* holder = &format;
    std::string where = path;
    if (!flat) {
        STRATA_TRY_ASSIGN(holder, fields.object("json_schema"));
        where += ".json_schema";
        if (!holder) return missing(where);
    }
    const Fields inner(*holder, where + ".");
    STRATA_TRY_ASSIGN(const auto strict, inner.boolean("strict"));
    const Json* schema = inner.find("schema");
    if (!schema) return missing(where + ".schema");
    if (!schema->is_object() && !schema->is_boolean()) return invalid_type(where + ".schema", "an object");
    out.schema = *schema;
    out.strict = strict.value_or(false);
    return out;
}

Api<void> check_sizes(const ChatRequest& chat) {
    if (chat.messages.is_array() && chat.messages.size() > kMostMessages)
        return invalid_value("messages", "messages has more than 10,000 entries");
    if (chat.tools.is_array() && chat.tools.size() > kMostTools)
        return invalid_value("tools", "tools has more than 1,024 entries");
    return {};
}

}  // namespace strata::server
