#include "server/responses.h"

namespace strata::server {
namespace {

std::string text_of(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Parts of a message's content in the form of chat completions.
Api<Json> content_of(const Json& content, const std::string& where) {
    if (content.is_string()) return content;
    if (content.is_null()) return Json("");
    if (!content.is_array()) return invalid_type(where, "a string or a list of parts");
    Json parts = Json::array();
    for (size_t i = 0; i < content.size(); ++i) {
        const Json& part = content[i];
        const std::string here = where + "[" + std::to_string(i) + "]";
        if (!part.is_object()) return invalid_type(here, "an object");
        const std::string type = text_of(part, "type");
        if (type == "input_text" || type == "output_text" || type == "text")
            parts.push_back({{"type", "text"}, {"text", text_of(part, "text")}});
        else if (type == "refusal")
            parts.push_back({{"type", "text"}, {"text", text_of(part, "refusal")}});
        else if (type == "input_image")
            parts.push_back({{"type", "image_url"}, {"image_url", {{"url", text_of(part, "image_url")}}}});
        else
            return unsupported_value(here + ".type", here + ".type '" + type + "' is not supported");
    }
    return parts;
}

/// Items to messages: what one turn of the assistant has (reasoning, text, calls) becomes one message.
class Items {
  public:
    explicit Items(std::vector<std::string>& notes) : notes_(notes) {}

    void system(const std::string& text) { messages_.push_back({{"role", "system"}, {"content", text}}); }

    Api<void> add(const Json& item, const std::string& where) {
        if (!item.is_object()) return invalid_type(where, "an object");
        const std::string type = text_of(item, "type");
        if (type.empty() || type == "message") return message(item, where);
        if (type == "reasoning") {
            turn()["reasoning_content"] = text_of(turn(), "reasoning_content") + reasoning_of(item);
            return {};
        }
        if (type == "function_call" || type == "custom_tool_call") return call(item, type == "custom_tool_call", where);
        if (type == "function_call_output" || type == "custom_tool_call_output") {
            const auto output = item.find("output");
            STRATA_TRY_ASSIGN(Json content, content_of(output == item.end() ? Json() : *output, where + ".output"));
            close();
            messages_.push_back(
                {{"role", "tool"}, {"tool_call_id", text_of(item, "call_id")}, {"content", std::move(content)}});
            return {};
        }
        notes_.push_back("an item of type '" + type + "' was left out");
        return {};
    }

    Json take() {
        close();
        return std::move(messages_);
    }

  private:
    Api<void> message(const Json& item, const std::string& where) {
        const std::string role = text_of(item, "role");
        if (role.empty()) return missing(where + ".role");
        const auto content = item.find("content");
        STRATA_TRY_ASSIGN(Json parts, content_of(content == item.end() ? Json() : *content, where + ".content"));
        if (role != "assistant") {
            close();
            messages_.push_back({{"role", role}, {"content", std::move(parts)}});
            return {};
        }
        Json& now = turn();
        std::string text = text_of(now, "content");
        if (parts.is_string()) {
            text += parts.get<std::string>();
        } else {
            for (const Json& part : parts) text += text_of(part, "text");
        }
        now["content"] = text;
        return {};
    }

    Api<void> call(const Json& item, bool custom, const std::string& where) {
        const std::string name = text_of(item, "name");
        if (name.empty()) return missing(where + ".name");
        Json arguments = custom ? Json{{"input", text_of(item, "input")}} : Json(text_of(item, "arguments"));
        Json& now = turn();
        if (!now.contains("tool_calls")) now["tool_calls"] = Json::array();
        now["tool_calls"].push_back({{"id", text_of(item, "call_id")},
                                     {"type", "function"},
                                     {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
        return {};
    }

    static std::string reasoning_of(const Json& item) {
        const auto texts = [&](const char* name) {
            std::string all;
            if (const auto list = item.find(name); list != item.end() && list->is_array())
                for (const Json& part : *list)
                    if (part.is_object()) all += text_of(part, "text");
            return all;
        };
        if (std::string text = texts("content"); !text.empty()) return text;
        const std::string sealed = text_of(item, "encrypted_content");
        if (sealed.starts_with(kSealed))
            if (std::string text = unbase64(std::string_view(sealed).substr(kSealed.size())); !text.empty())
                return text;
        return texts("summary");
    }

    Json& turn() {
        if (turn_.is_null()) turn_ = {{"role", "assistant"}, {"content", ""}};
        return turn_;
    }
    void close() {
        if (!turn_.is_null()) messages_.push_back(std::exchange(turn_, Json()));
    }

    std::vector<std::string>& notes_;
    Json messages_ = Json::array();
    Json turn_;
};

Api<void> read_tools(const Json& tools, ResponsesRequest& out) {
    Json kept = Json::array();
    for (size_t i = 0; i < tools.size(); ++i) {
        const Json& tool = tools[i];
        if (!tool.is_object()) return invalid_type("tools[" + std::to_string(i) + "]", "an object");
        const std::string type = text_of(tool, "type"), name = text_of(tool, "name");
        Json function = {{"name", name}, {"description", text_of(tool, "description")}};
        if (type == "function") {
            if (const auto parameters = tool.find("parameters"); parameters != tool.end() && !parameters->is_null())
                function["parameters"] = *parameters;
        } else if (type == "custom") {
            function["parameters"] = {{"type", "object"},
                                      {"properties", {{"input", {{"type", "string"}}}}},
                                      {"required", Json::array({"input"})}};
            out.custom_tools.insert(name);
        } else {
            out.answer.notes.push_back("a tool of type '" + type + "' was left out");
            continue;
        }
        kept.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    if (!kept.empty()) out.answer.chat.tools = std::move(kept);
    return {};
}

Api<void> read_choice(const Json& choice, ChatRequest& chat) {
    if (choice.is_string()) {
        chat.tool_choice = choice;
        return {};
    }
    if (!choice.is_object()) return invalid_type("tool_choice", "a string or an object");
    const std::string type = text_of(choice, "type");
    if (type == "function" || type == "custom")
        chat.tool_choice = {{"type", "function"}, {"function", {{"name", text_of(choice, "name")}}}};
    else
        return unsupported_value("tool_choice.type", "tool_choice.type '" + type + "' is not supported");
    return {};
}

Api<void> read_reasoning(const Fields& body, ResponsesRequest& out) {
    STRATA_TRY_ASSIGN(const Json* reasoning, body.object("reasoning"));
    if (!reasoning) return {};
    const Fields fields(*reasoning, "reasoning.");
    STRATA_TRY_ASSIGN(const auto effort, fields.text("effort"));
    STRATA_TRY_ASSIGN(const auto summary, fields.text("summary"));
    out.answer.chat.effort = effort.value_or("");
    out.summary = summary.has_value() && *summary != "none";
    return {};
}

/// What the answer repeats of the request, with the defaults of what it left out.
Json echo_of(const Fields& body) {
    const auto or_else = [&](const char* name, Json otherwise) {
        const Json* value = body.find(name);
        return value ? *value : std::move(otherwise);
    };
    return {{"instructions", or_else("instructions", nullptr)},
            {"max_output_tokens", or_else("max_output_tokens", nullptr)},
            {"parallel_tool_calls", or_else("parallel_tool_calls", true)},
            {"previous_response_id", nullptr},
            {"reasoning", or_else("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
            {"store", false},
            {"temperature", or_else("temperature", 1.0)},
            {"text", or_else("text", {{"format", {{"type", "text"}}}})},
            {"tool_choice", or_else("tool_choice", "auto")},
            {"tools", or_else("tools", Json::array())},
            {"top_p", or_else("top_p", 1.0)},
            {"truncation", or_else("truncation", "disabled")},
            {"metadata", or_else("metadata", Json::object())}};
}

}  // namespace

Api<ResponsesRequest> read_responses_request(Json json) {
    ResponsesRequest out;
    AnswerRequest& answer = out.answer;
    const Fields body(json);
    for (const char* name : {"previous_response_id", "conversation"})
        if (body.has(name))
            return unsupported_parameter(name, "stored responses are not supported, send the whole input");
    STRATA_TRY_ASSIGN(const auto background, body.boolean("background"));
    if (background.value_or(false)) return unsupported_parameter("background", "background is not supported");
    const Json* input = body.find("input");
    if (!input) return missing("input");
    STRATA_TRY_ASSIGN(const auto model, body.text("model"));
    answer.model = model.value_or("");
    STRATA_TRY_ASSIGN(const auto stream, body.boolean("stream"));
    answer.stream = stream.value_or(false);
    STRATA_TRY_ASSIGN(const auto limit, body.integer("max_output_tokens", 1, INT64_MAX));
    answer.max_tokens = limit;
    STRATA_TRY(read_sampling(body, answer.sampling));
    STRATA_TRY(read_reasoning(body, out));
    STRATA_TRY_ASSIGN(const Json* include, body.array("include"));
    if (include)
        for (const Json& item : *include) {
            out.encrypted = out.encrypted || item == "reasoning.encrypted_content";
            out.logprobs = out.logprobs || item == "message.output_text.logprobs";
        }
    STRATA_TRY_ASSIGN(const auto top, body.integer("top_logprobs", 0, 20));
    if (out.logprobs || top.value_or(0) > 0) answer.logprobs = static_cast<int>(top.value_or(0));
    STRATA_TRY_ASSIGN(const Json* text, body.object("text"));
    if (text)
        if (const auto format = text->find("format"); format != text->end() && !format->is_null()) {
            STRATA_TRY_ASSIGN(answer.format, read_format(*format, "text.format", true));
        }

    Items items(answer.notes);
    STRATA_TRY_ASSIGN(const auto instructions, body.text("instructions"));
    if (instructions && !instructions->empty()) items.system(*instructions);
    if (input->is_string()) {
        STRATA_TRY(items.add({{"role", "user"}, {"content", *input}}, "input"));
    } else {
        if (!input->is_array()) return invalid_type("input", "a string or a list of items");
        if (input->size() > static_cast<size_t>(kMostMessages))
            return invalid_value("input", "input has more than 10,000 items");
        for (size_t i = 0; i < input->size(); ++i)
            STRATA_TRY(items.add((*input)[i], "input[" + std::to_string(i) + "]"));
    }
    answer.chat.messages = items.take();
    STRATA_TRY_ASSIGN(const Json* tools, body.array("tools"));
    if (tools) STRATA_TRY(read_tools(*tools, out));
    if (const Json* choice = body.find("tool_choice"); choice && !answer.chat.tools.is_null())
        STRATA_TRY(read_choice(*choice, answer.chat));
    STRATA_TRY_ASSIGN(const auto parallel, body.boolean("parallel_tool_calls"));
    answer.chat.parallel_tool_calls = parallel.value_or(true);
    STRATA_TRY_ASSIGN(const Json* kwargs, body.object("chat_template_kwargs"));
    if (kwargs) answer.chat.template_kwargs = *kwargs;
    // A last message of the assistant is context here, not the beginning of the answer.
    answer.chat.add_generation_prompt = true;
    out.echo = echo_of(body);
    STRATA_TRY(check_sizes(answer.chat));
    return out;
}

std::string base64(std::string_view bytes) {
    static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        const auto at = [&](size_t k) {
            return i + k < bytes.size() ? static_cast<uint32_t>(static_cast<unsigned char>(bytes[i + k])) : 0u;
        };
        const uint32_t three = at(0) << 16 | at(1) << 8 | at(2);
        for (int k = 0; k < 4; ++k)
            out += i + static_cast<size_t>(k) <= bytes.size() ? kLetters[three >> (18 - 6 * k) & 63] : '=';
    }
    return out;
}

std::string unbase64(std::string_view text) {
    while (text.ends_with('=')) text.remove_suffix(1);
    std::string out;
    uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                          : c >= 'a' && c <= 'z' ? c - 'a' + 26
                          : c >= '0' && c <= '9' ? c - '0' + 52
                          : c == '+' || c == '-' ? 62
                          : c == '/' || c == '_' ? 63
                                                 : -1;
        if (digit < 0) return {};
        bits = bits << 6 | static_cast<uint32_t>(digit);
        count += 6;
        if (count >= 8) {
            count -= 8;
            out += static_cast<char>(bits >> count & 255);
        }
    }
    return out;
}

}  // namespace strata::server
