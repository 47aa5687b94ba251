#include "server/anthropic.h"

namespace strata::server {
namespace {

constexpr std::string_view kBilling = "x-anthropic-billing-header:";
constexpr std::string_view kReminder = "<system-reminder>";
constexpr int64_t kShortReply = 1024;

std::string text_of(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The text of blocks that have one, for kinds that are only read.
std::string any_text(const Json& block) {
    std::string text = text_of(block, "text");
    if (const auto content = block.find("content"); text.empty() && content != block.end()) {
        if (content->is_string()) return content->get<std::string>();
        if (content->is_array())
            for (const Json& item : *content)
                if (item.is_object()) text += (text.empty() ? "" : "\n") + any_text(item);
    }
    return text;
}

Api<std::string> system_text(const Json& system) {
    if (system.is_string()) return without_billing_header(system.get<std::string>());
    if (!system.is_array()) return invalid_type("system", "a string or a list of text blocks");
    std::string joined;
    for (size_t i = 0; i < system.size(); ++i) {
        if (!system[i].is_object() || text_of(system[i], "type") != "text")
            return invalid_type("system[" + std::to_string(i) + "]", "a text block");
        const std::string text = without_billing_header(text_of(system[i], "text"));
        if (text.empty()) continue;
        joined += (joined.empty() ? "" : "\n\n") + text;
    }
    return joined;
}

Api<Json> image_part(const Json& block, const std::string& where) {
    const auto source = block.find("source");
    if (source == block.end() || !source->is_object()) return missing(where + ".source");
    const std::string type = text_of(*source, "type");
    if (type != "base64")
        return unsupported_value(where + ".source.type", where + ".source.type '" + type +
                                                             "' is not supported: pictures come as base64 data only");
    return Json{
        {"type", "image_url"},
        {"image_url", {{"url", "data:" + text_of(*source, "media_type") + ";base64," + text_of(*source, "data")}}}};
}

Api<std::string> document_text(const Json& block, const std::string& where) {
    const auto source = block.find("source");
    if (source == block.end() || !source->is_object()) return missing(where + ".source");
    const std::string type = text_of(*source, "type");
    if (type == "text") return text_of(*source, "data");
    if (type == "content") return any_text(*source);
    return unsupported_value(where + ".source.type", where + ": documents of type '" + type + "' are not supported");
}

/// Content of a tool_result as a tool message has it.
Api<Json> result_content(const Json& block, const std::string& where) {
    const auto content = block.find("content");
    if (content == block.end() || content->is_null()) return Json("");
    if (content->is_string()) return *content;
    if (!content->is_array()) return invalid_type(where + ".content", "a string or a list of blocks");
    Json parts = Json::array();
    for (size_t i = 0; i < content->size(); ++i) {
        const Json& item = (*content)[i];
        const std::string here = where + ".content[" + std::to_string(i) + "]";
        if (!item.is_object()) return invalid_type(here, "an object");
        if (text_of(item, "type") == "image") {
            STRATA_TRY_ASSIGN(Json image, image_part(item, here));
            parts.push_back(std::move(image));
        } else {
            parts.push_back({{"type", "text"}, {"text", any_text(item)}});
        }
    }
    return parts;
}

class Conversation {
  public:
    explicit Conversation(const ReasoningMemory& memory) : memory_(memory) {}

    void system(const std::string& text) {
        if (!text.empty()) messages_.push_back({{"role", "system"}, {"content", text}});
    }

    Api<void> message(const Json& message, const std::string& where) {
        if (!message.is_object()) return invalid_type(where, "an object");
        const std::string role = text_of(message, "role");
        const auto content = message.find("content");
        if (role != "user" && role != "assistant" && role != "system")
            return invalid_value(where + ".role", where + ".role must be user or assistant, not '" + role + "'");
        if (content == message.end()) return missing(where + ".content");
        if (role == "system") {
            STRATA_TRY_ASSIGN(const std::string text, system_text(*content));
            system(text);
            return {};
        }
        Json blocks = *content;
        if (blocks.is_string()) blocks = Json::array({{{"type", "text"}, {"text", blocks}}});
        if (!blocks.is_array()) return invalid_type(where + ".content", "a string or a list of blocks");
        for (size_t i = 0; i < blocks.size(); ++i)
            if (!blocks[i].is_object()) return invalid_type(where + ".content[" + std::to_string(i) + "]", "an object");
        return role == "user" ? user(blocks, where) : assistant(blocks);
    }

    Json take() { return std::move(messages_); }

  private:
    Api<void> user(const Json& blocks, const std::string& where) {
        Json parts = Json::array();
        bool results = false, only_reminders = true;
        for (size_t i = 0; i < blocks.size(); ++i) {
            const Json& block = blocks[i];
            const std::string type = text_of(block, "type"), here = where + ".content[" + std::to_string(i) + "]";
            if (type == "tool_result") {
                STRATA_TRY_ASSIGN(Json result, result_content(block, here));
                messages_.push_back({{"role", "tool"},
                                     {"tool_call_id", text_of(block, "tool_use_id")},
                                     {"content", std::move(result)}});
                results = true;
            } else if (type == "image") {
                STRATA_TRY_ASSIGN(Json image, image_part(block, here));
                parts.push_back(std::move(image));
                only_reminders = false;
            } else {
                std::string text;
                if (type == "document") {
                    STRATA_TRY_ASSIGN(text, document_text(block, here));
                } else {
                    text = type == "text" ? text_of(block, "text") : any_text(block);
                }
                if (text.empty()) continue;
                only_reminders = only_reminders && text.starts_with(kReminder);
                parts.push_back({{"type", "text"}, {"text", std::move(text)}});
            }
        }
        if (parts.empty() && results) return {};
        // Reminders beside results belong to the last result: as a turn of the user they would end the loop of tools.
        if (results && only_reminders) {
            Json& last = messages_.back()["content"];
            for (const Json& part : parts) {
                if (last.is_string())
                    last = last.get<std::string>() + "\n" + part["text"].get<std::string>();
                else
                    last.push_back(part);
            }
            return {};
        }
        Json content = parts.size() == 1 && parts[0]["type"] == "text" ? parts[0]["text"] : std::move(parts);
        if (content.is_array() && content.empty()) content = "";
        messages_.push_back({{"role", "user"}, {"content", std::move(content)}});
        return {};
    }

    Api<void> assistant(const Json& blocks) {
        std::string text, reasoning;
        Json calls = Json::array();
        for (const Json& block : blocks) {
            const std::string type = text_of(block, "type");
            if (type == "text") {
                text += text_of(block, "text");
            } else if (type == "thinking") {
                std::string thought = text_of(block, "thinking");
                if (thought.empty()) thought = memory_.find(text_of(block, "signature"));
                reasoning += thought;
            } else if (type == "tool_use") {
                const auto input = block.find("input");
                calls.push_back(
                    {{"id", text_of(block, "id")},
                     {"type", "function"},
                     {"function",
                      {{"name", text_of(block, "name")},
                       {"arguments", input != block.end() && !input->is_null() ? *input : Json::object()}}}});
            } else if (type != "redacted_thinking") {
                text += any_text(block);
            }
        }
        if (text.empty() && reasoning.empty() && calls.empty()) return {};
        Json message = {{"role", "assistant"}, {"content", text}};
        if (!reasoning.empty()) message["reasoning_content"] = reasoning;
        if (!calls.empty()) message["tool_calls"] = std::move(calls);
        messages_.push_back(std::move(message));
        return {};
    }

    const ReasoningMemory& memory_;
    Json messages_ = Json::array();
};

Api<Json> read_tools(const Json& tools, std::vector<std::string>& notes) {
    if (!tools.is_array()) return invalid_type("tools", "a list");
    Json out = Json::array();
    for (size_t i = 0; i < tools.size(); ++i) {
        const Json& tool = tools[i];
        const std::string where = "tools[" + std::to_string(i) + "]";
        if (!tool.is_object()) return invalid_type(where, "an object");
        const std::string type = text_of(tool, "type"), name = text_of(tool, "name");
        const bool custom = type.empty() || type == "custom" || type == "function";
        if (!custom && !tool.contains("input_schema")) {
            for (const char* client : {"bash_", "text_editor_", "computer_", "memory_"})
                if (type.starts_with(client))
                    return unsupported_value(where + ".type", where + ".type '" + type +
                                                                  "' is not supported: give the tool an input_schema");
            notes.push_back("a tool of type '" + type + "' was left out");
            continue;
        }
        if (name.empty()) return missing(where + ".name");
        Json function = {{"name", name}};
        if (const std::string description = text_of(tool, "description"); !description.empty())
            function["description"] = description;
        if (const auto schema = tool.find("input_schema"); schema != tool.end() && !schema->is_null())
            function["parameters"] = *schema;
        out.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    return out.empty() ? Json() : std::move(out);
}

Api<void> read_choice(const Json& choice, ChatRequest& chat) {
    if (!choice.is_object()) return invalid_type("tool_choice", "an object");
    const std::string type = text_of(choice, "type");
    if (type == "any")
        chat.tool_choice = "required";
    else if (type == "auto" || type == "none")
        chat.tool_choice = type;
    else if (type == "tool")
        chat.tool_choice = {{"type", "function"}, {"function", {{"name", text_of(choice, "name")}}}};
    else
        return invalid_value("tool_choice.type",
                             "tool_choice.type must be auto, any, tool or none, not '" + type + "'");
    STRATA_TRY_ASSIGN(const auto single, Fields(choice, "tool_choice.").boolean("disable_parallel_tool_use"));
    chat.parallel_tool_calls = !single.value_or(false);
    return {};
}

Api<void> read_thinking(const Fields& body, AnthropicRequest& out, const AnthropicOptions& options) {
    AnswerRequest& answer = out.answer;
    STRATA_TRY_ASSIGN(const Json* thinking, body.object("thinking"));
    STRATA_TRY_ASSIGN(const Json* config, body.object("output_config"));
    if (config) {
        const Fields fields(*config, "output_config.");
        STRATA_TRY_ASSIGN(const auto effort, fields.text("effort"));
        answer.chat.effort = effort.value_or("");
        if (const Json* format = fields.find("format")) {
            STRATA_TRY_ASSIGN(answer.format, read_format(*format, "output_config.format", true));
        }
    }
    if (thinking) {
        const Fields fields(*thinking, "thinking.");
        STRATA_TRY_ASSIGN(const auto type, fields.text("type"));
        if (!type || (*type != "enabled" && *type != "adaptive" && *type != "disabled"))
            return invalid_value("thinking.type", "thinking.type must be enabled, adaptive or disabled");
        answer.chat.thinking = *type != "disabled";
        if (*type == "disabled") answer.chat.effort.clear();
        STRATA_TRY_ASSIGN(const auto budget, fields.integer("budget_tokens", 0, INT64_MAX));
        if (*type == "enabled" && budget) answer.reasoning_budget = budget;
        STRATA_TRY_ASSIGN(const auto display, fields.text("display"));
        out.omit_thinking = display == "omitted";
        return {};
    }
    const bool is_short = !options.short_requests_think && answer.max_tokens && *answer.max_tokens < kShortReply;
    if (answer.chat.effort.empty() && (is_short || options.only_on_request)) answer.chat.thinking = false;
    return {};
}

}  // namespace

std::string without_billing_header(std::string text) {
    if (!text.starts_with(kBilling)) return text;
    const size_t value = text.find("cch=");
    const size_t end = value == std::string::npos ? text.find('\n') : text.find(';', value);
    if (end == std::string::npos) return {};
    const size_t rest = text.find_first_not_of(" \t\r\n", end + 1);
    return rest == std::string::npos ? std::string() : text.substr(rest);
}

Api<AnthropicRequest> read_messages_request(Json json, const ReasoningMemory& memory, const AnthropicOptions& options) {
    AnthropicRequest out;
    AnswerRequest& answer = out.answer;
    const Fields body(json);
    STRATA_TRY_ASSIGN(const auto model, body.text("model"));
    answer.model = model.value_or("");
    STRATA_TRY_ASSIGN(const auto stream, body.boolean("stream"));
    answer.stream = stream.value_or(false);
    STRATA_TRY_ASSIGN(answer.max_tokens, body.integer("max_tokens", 0, INT64_MAX));
    STRATA_TRY_ASSIGN(const Json* messages, body.array("messages"));
    if (!messages) return missing("messages");
    if (messages->empty()) return invalid_value("messages", "messages must have at least one message");
    if (messages->size() > static_cast<size_t>(kMostMessages))
        return invalid_value("messages", "messages has more than 10,000 entries");
    STRATA_TRY(read_sampling(body, answer.sampling));
    STRATA_TRY_ASSIGN(answer.stop, read_stop(body, "stop_sequences"));
    STRATA_TRY(read_thinking(body, out, options));

    Conversation conversation(memory);
    if (const Json* system = body.find("system")) {
        STRATA_TRY_ASSIGN(const std::string text, system_text(*system));
        conversation.system(text);
    }
    for (size_t i = 0; i < messages->size(); ++i)
        STRATA_TRY(conversation.message((*messages)[i], "messages[" + std::to_string(i) + "]"));
    answer.chat.messages = conversation.take();
    if (const Json* tools = body.find("tools")) {
        STRATA_TRY_ASSIGN(answer.chat.tools, read_tools(*tools, answer.notes));
    }
    if (const Json* choice = body.find("tool_choice"); choice && !answer.chat.tools.is_null())
        STRATA_TRY(read_choice(*choice, answer.chat));
    STRATA_TRY_ASSIGN(const Json* kwargs, body.object("chat_template_kwargs"));
    if (kwargs) answer.chat.template_kwargs = *kwargs;
    STRATA_TRY(check_sizes(answer.chat));
    return out;
}

}  // namespace strata::server
