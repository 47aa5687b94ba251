// The body of a chat request as the fields a prompt depends on.
#include "text/chat.h"

namespace strata {
namespace {

Error invalid(std::string message) {
    return {ErrorKind::failed, std::move(message), "invalid_request"};
}

const Json* present(const Json& object, const char* key) {
    auto place = object.find(key);
    return place == object.end() || place->is_null() ? nullptr : &*place;
}

Result<std::optional<bool>> read_bool(const Json& object, const char* key) {
    const Json* value = present(object, key);
    if (!value) return std::optional<bool>();
    if (!value->is_boolean()) return invalid(std::string(key) + " must be true or false");
    return std::optional(value->get<bool>());
}

Result<std::string> read_effort(const Json& object, const char* key) {
    const Json* value = present(object, key);
    if (!value) return std::string();
    if (!value->is_string()) return invalid(std::string(key) + " must be a string");
    return value->get<std::string>();
}

}  // namespace

Result<ChatRequest> ChatRequest::from_body(Json body) {
    if (!body.is_object()) return invalid("the request must be a JSON object");
    ChatRequest request;
    if (!present(body, "messages")) return invalid("messages is missing");
    request.messages = std::move(body["messages"]);
    if (present(body, "tools")) {
        request.tools = std::move(body["tools"]);
    } else if (const Json* functions = present(body, "functions")) {  // the old form
        if (!functions->is_array()) return invalid("functions must be a list");
        request.tools = Json::array();
        for (const Json& function : *functions) request.tools.push_back({{"type", "function"}, {"function", function}});
    }
    if (const Json* choice = present(body, "tool_choice")) {
        request.tool_choice = *choice;
    } else if (const Json* call = present(body, "function_call")) {
        request.tool_choice = *call;
    }
    STRATA_TRY_ASSIGN(auto parallel, read_bool(body, "parallel_tool_calls"));
    request.parallel_tool_calls = parallel.value_or(true);

    STRATA_TRY_ASSIGN(request.effort, read_effort(body, "reasoning_effort"));
    if (const Json* reasoning = present(body, "reasoning"); reasoning && reasoning->is_object()) {
        STRATA_TRY_ASSIGN(std::string effort, read_effort(*reasoning, "effort"));
        if (request.effort.empty()) request.effort = effort;
        STRATA_TRY_ASSIGN(request.thinking, read_bool(*reasoning, "enabled"));
    }
    if (const Json* thinking = present(body, "thinking")) {
        if (thinking->is_boolean()) {
            request.thinking = thinking->get<bool>();
        } else if (thinking->is_object() && thinking->contains("type")) {
            request.thinking = (*thinking)["type"] != "disabled";
        } else {
            return invalid("thinking must be true, false or an object with a type");
        }
    }
    if (const Json* format = present(body, "reasoning_format")) request.split_reasoning = *format != "none";

    if (const Json* arguments = present(body, "chat_template_kwargs")) {
        if (!arguments->is_object()) return invalid("chat_template_kwargs must be an object");
        for (const char* name : {"enable_thinking", "thinking"}) {
            if (!read_bool(*arguments, name).ok()) {
                return invalid("chat_template_kwargs." + std::string(name) + " must be true or false");
            }
        }
        request.template_kwargs = *arguments;
    }
    if (const Json* format = present(body, "response_format"); format && format->is_object()) {
        if (const Json* schema = present(*format, "json_schema"); schema && schema->is_object()) {
            if (const Json* inner = present(*schema, "schema")) request.response_schema = *inner;
        }
    }
    STRATA_TRY_ASSIGN(request.add_generation_prompt, read_bool(body, "add_generation_prompt"));
    STRATA_TRY_ASSIGN(auto continues, read_bool(body, "continue_final_message"));
    request.continue_final_message = continues.value_or(false);
    return request;
}

}  // namespace strata
