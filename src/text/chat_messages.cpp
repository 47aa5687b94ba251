#include "text/chat_messages.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/chat_dialect.h"
#include "text/json_lenient.h"

namespace strata {
namespace {

Error invalid(std::string message) {
    return {ErrorKind::failed, std::move(message), "invalid_request"};
}

const Json* present(const Json& object, const char* key) {
    auto place = object.find(key);
    return place == object.end() || place->is_null() ? nullptr : &*place;
}

std::string text_of(const Json& object, const char* key) {
    const Json* value = present(object, key);
    return value && value->is_string() ? value->get<std::string>() : std::string();
}

/// Request text that spells the mark of a picture would be taken for one: a zero-width space after its first character
/// keeps it readable.
void defuse(Json& value, std::string_view mark) {
    if (mark.empty()) return;
    if (value.is_string()) {
        auto& text = value.get_ref<std::string&>();
        for (size_t at = 0; (at = text.find(mark, at)) != text.npos; at += mark.size()) text.insert(at + 1, "\u200B");
    } else if (value.is_structured()) {
        for (Json& member : value) defuse(member, mark);
    }
}

/// Content as one string, or as parts where pictures or unknown parts are among them and the template takes them.
Result<Json> read_content(const Json& content, const std::string& where, bool join, const MessageOptions& options,
                          int& pictures) {
    if (content.is_null()) return Json("");
    if (content.is_string()) return content;
    if (!content.is_array()) return invalid(where + " must be a string or a list of parts");
    Json parts = Json::array();
    bool only_text = true;
    for (size_t i = 0; i < content.size(); ++i) {
        const Json& part = content[i];
        std::string here = where + "[" + std::to_string(i) + "]";
        if (part.is_string()) {
            parts.push_back({{"type", "text"}, {"text", part}});
            continue;
        }
        if (!part.is_object()) return invalid(here + " must be an object");
        std::string type = text_of(part, "type");
        if (type == "text" || type == "input_text" || type == "output_text" || type == "refusal") {
            const Json* text = present(part, type == "refusal" ? "refusal" : "text");
            if (text && !text->is_string()) return invalid(here + ".text must be a string");
            parts.push_back({{"type", "text"}, {"text", text ? *text : Json("")}});
        } else if (type == "image_url" || type == "image" || type == "input_image") {
            parts.push_back({{"type", "image"}});
            only_text = false;
            ++pictures;
        } else if (type == "input_audio" || type == "audio" || type == "video" || type == "video_url" ||
                   type == "file" || type == "input_file" || type == "document") {
            return invalid(here + ": parts of type '" + type + "' are not supported");
        } else {
            parts.push_back(part);  // a part of the template's own
            only_text = false;
        }
    }
    if (only_text && (parts.size() <= 1 || join || !options.parts)) {
        std::string text;
        for (const Json& part : parts) {
            if (!text.empty()) text += "\n";
            text += part["text"].get_ref<const std::string&>();
        }
        return Json(std::move(text));
    }
    if (!options.parts && pictures > 0) {
        return Error{ErrorKind::failed, "image input is not supported by this model", "pictures_unsupported"};
    }
    return parts;
}

/// A history's arguments: whatever a client sends back becomes an object.
Result<Json> read_arguments(const Json* given, const std::string& where) {
    if (!given) return Json::object();
    if (given->is_object()) return *given;
    Json value = *given;
    if (given->is_string()) {
        const std::string& text = given->get_ref<const std::string&>();
        if (text.find_first_not_of(" \t\r\n") == text.npos) return Json::object();
        auto read = read_lenient_json(text);
        if (!read) return Json{{"arguments", text}};  // broken once, and sent back as it was
        value = std::move(*read);
        if (value.is_object()) return value;
    }
    // An empty list is how some languages write an object without members.
    if (value.is_null() || (value.is_array() && value.empty())) return Json::object();
    return invalid(where + " must be a JSON object, not " +
                   (value.is_array() ? "a list" : json_text(value).substr(0, 40)));
}

Result<Json> read_calls(const Json& calls, const std::string& where) {
    if (!calls.is_array()) return invalid(where + " must be a list");
    Json out = Json::array();
    for (size_t i = 0; i < calls.size(); ++i) {
        std::string here = where + "[" + std::to_string(i) + "]";
        if (!calls[i].is_object()) return invalid(here + " must be an object");
        const Json* function = present(calls[i], "function");
        if (!function || !function->is_object()) return invalid(here + ".function is missing");
        std::string name = text_of(*function, "name");
        if (name.empty()) return invalid(here + ".function.name is missing");
        STRATA_TRY_ASSIGN(Json arguments,
                          read_arguments(present(*function, "arguments"), here + ".function.arguments"));
        Json call = Json::object();
        if (const Json* id = present(calls[i], "id")) call["id"] = *id;
        call["type"] = "function";
        call["function"] = {{"name", name}, {"arguments", std::move(arguments)}};
        out.push_back(std::move(call));
    }
    return out;
}

/// The reasoning of an earlier turn, under whichever name it came.
std::string read_reasoning(const Json& message) {
    for (const char* key : {"reasoning_content", "reasoning", "thinking"}) {
        std::string text = text_of(message, key);
        if (!text.empty()) return text;
    }
    return {};
}

Result<Json> read_message(const Json& given, const std::string& where, const MessageOptions& options, Messages& all) {
    if (!given.is_object()) return invalid(where + " must be an object");
    std::string role = text_of(given, "role");
    if (role == "developer") role = "system";
    if (role == "function") role = "tool";
    if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
        return invalid(where + ".role must be system, user, assistant or tool, not '" + role + "'");
    }
    const Json* content = present(given, "content");
    STRATA_TRY_ASSIGN(Json read, read_content(content ? *content : Json(), where + ".content", role == "tool", options,
                                              all.pictures));
    Json message = {{"role", role}};
    if (const Json* name = present(given, "name"); name && name->is_string()) message["name"] = *name;
    message["content"] = std::move(read);

    if (role == "assistant") {
        std::string reasoning = read_reasoning(given);
        if (!reasoning.empty()) {
            all.reasoning = true;
            for (const char* key : {"reasoning_content", "reasoning", "thinking"}) message[key] = reasoning;
        } else if (message["content"].is_string() && !options.reasoning_closer.empty()) {
            // Templates split an answer at the closer. One that only mentions it, and did not begin with the opener, is
            // no reasoning: an empty field says so.
            const std::string& text = message["content"].get_ref<const std::string&>();
            std::string_view start = std::string_view(text).substr(skip_blanks(text, 0));
            if (text.find(options.reasoning_closer) != text.npos && !start.starts_with(options.reasoning_opener)) {
                message["reasoning_content"] = "";
            }
        }
        const Json* calls = present(given, "tool_calls");
        if (calls && !(calls->is_array() && calls->empty())) {
            STRATA_TRY_ASSIGN(message["tool_calls"], read_calls(*calls, where + ".tool_calls"));
        } else if (const Json* call = present(given, "function_call")) {  // the old form
            Json list = Json::array({{{"type", "function"}, {"function", *call}}});
            STRATA_TRY_ASSIGN(message["tool_calls"], read_calls(list, where + ".function_call"));
        }
    }
    if (role == "tool") {
        if (const Json* id = present(given, "tool_call_id")) message["tool_call_id"] = *id;
    }
    // Keys of the template's own, for example DeepSeek's; what the API itself adds to messages is for clients.
    static constexpr std::string_view kKnown[] = {"role",          "name",     "content",    "reasoning_content",
                                                  "reasoning",     "thinking", "tool_calls", "tool_call_id",
                                                  "function_call", "refusal",  "audio",      "annotations",
                                                  "cache_control", "id",       "object",     "reasoning_details"};
    for (const auto& [key, value] : given.items()) {
        if (value.is_null() || std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown)) continue;
        message[key] = value;
    }
    return message;
}

/// Joins the system messages at the start; later ones become user messages where the template wants that.
void arrange_system(Json& list, bool late_system) {
    size_t leading = 0;
    while (leading < list.size() && list[leading]["role"] == "system") ++leading;
    bool texts = std::all_of(list.begin(), list.begin() + static_cast<ptrdiff_t>(leading),
                             [](const Json& message) { return message["content"].is_string(); });
    if (leading > 1 && texts) {
        std::string joined;
        for (size_t i = 0; i < leading; ++i) {
            const std::string& text = list[i]["content"].get_ref<const std::string&>();
            if (!joined.empty() && !text.empty()) joined += "\n\n";
            joined += text;
        }
        list[0]["content"] = std::move(joined);
        list.erase(list.begin() + 1, list.begin() + static_cast<ptrdiff_t>(leading));
        leading = 1;
    }
    for (size_t i = leading; i < list.size() && !late_system; ++i) {
        if (list[i]["role"] == "system") list[i]["role"] = "user";
    }
}

/// Puts each run of results into the order of the calls they answer: models read them by position. Fills in names.
void arrange_results(Json& list) {
    for (size_t i = 0; i < list.size();) {
        if (list[i]["role"] != "tool") {
            ++i;
            continue;
        }
        size_t end = i;
        while (end < list.size() && list[end]["role"] == "tool") ++end;
        std::unordered_map<std::string, std::pair<size_t, std::string>> calls;  // id: place and name
        if (i > 0 && list[i - 1].contains("tool_calls")) {
            size_t place = 0;
            for (const Json& call : list[i - 1]["tool_calls"]) {
                std::string id = text_of(call, "id");
                if (!id.empty()) calls.emplace(id, std::pair(place, call["function"]["name"].get<std::string>()));
                ++place;
            }
        }
        std::vector<std::pair<size_t, Json>> results;
        for (size_t r = i; r < end; ++r) {
            auto call = calls.find(text_of(list[r], "tool_call_id"));
            size_t place = call == calls.end() ? static_cast<size_t>(-1) : call->second.first;
            if (call != calls.end() && !list[r].contains("name")) list[r]["name"] = call->second.second;
            results.emplace_back(place, std::move(list[r]));
        }
        std::stable_sort(results.begin(), results.end(), [](auto& a, auto& b) { return a.first < b.first; });
        for (size_t r = i; r < end; ++r) list[r] = std::move(results[r - i].second);
        i = end;
    }
}

}  // namespace

Result<Messages> normalise_messages(const Json& messages, const MessageOptions& options) {
    if (!messages.is_array() || messages.empty()) return invalid("messages must be a list of at least one message");
    Messages all;
    for (size_t i = 0; i < messages.size(); ++i) {
        STRATA_TRY_ASSIGN(Json message, read_message(messages[i], "messages[" + std::to_string(i) + "]", options, all));
        all.list.push_back(std::move(message));
    }
    arrange_system(all.list, options.late_system);
    arrange_results(all.list);
    defuse(all.list, options.picture_mark);
    return all;
}

Result<Json> normalise_tools(const Json& tools, const MessageOptions& options) {
    if (tools.is_null()) return Json();
    if (!tools.is_array()) return invalid("tools must be a list");
    Json out = Json::array();
    std::unordered_set<std::string> names;
    for (size_t i = 0; i < tools.size(); ++i) {
        std::string where = "tools[" + std::to_string(i) + "]";
        if (!tools[i].is_object()) return invalid(where + " must be an object");
        std::string type = text_of(tools[i], "type");
        if (!type.empty() && type != "function") continue;  // of other programs
        const Json* function = present(tools[i], "function");
        if (!function) function = &tools[i];  // the flat form
        if (!function->is_object()) return invalid(where + ".function must be an object");
        std::string name = text_of(*function, "name");
        constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/-";
        if (name.empty() || name.size() > 128 || name.find_first_not_of(kAllowed) != name.npos) {
            return invalid(where + ".function.name must be 1 to 128 letters, digits and characters of _.:/-");
        }
        if (!names.insert(name).second) return invalid(where + ".function.name '" + name + "' comes twice");
        Json shown = {{"name", name}};
        if (const Json* description = present(*function, "description")) shown["description"] = *description;
        const Json* parameters = present(*function, "parameters");
        shown["parameters"] = parameters ? *parameters : Json{{"type", "object"}, {"properties", Json::object()}};
        out.push_back({{"type", "function"}, {"function", std::move(shown)}});
    }
    if (out.empty()) return Json();
    defuse(out, options.picture_mark);
    return out;
}

Result<ToolChoice> choose_tools(Json& tools, const Json& tool_choice) {
    ToolChoice choice;
    auto find = [&](std::string_view name) {
        return std::find_if(tools.begin(), tools.end(),
                            [&](const Json& tool) { return tool["function"]["name"] == name; });
    };
    // The name in {"function": {"name"}} or {"name"}.
    auto name_in = [](const Json& object) {
        const Json* function = object.is_object() ? present(object, "function") : nullptr;
        return function && function->is_object() ? text_of(*function, "name")
               : object.is_object()              ? text_of(object, "name")
                                                 : std::string();
    };
    auto unknown = [](const std::string& name) {
        return invalid("tool_choice names '" + name + "', which is not in tools");
    };
    std::string mode;
    if (tool_choice.is_null()) {
        mode = "auto";
    } else if (tool_choice.is_string()) {
        mode = tool_choice.get<std::string>();
    } else if (tool_choice.is_object() && text_of(tool_choice, "type") == "allowed_tools") {
        const Json* inner = present(tool_choice, "allowed_tools");
        const Json& allowed = inner && inner->is_object() ? *inner : tool_choice;
        mode = text_of(allowed, "mode");
        if (mode.empty()) mode = "auto";
        Json kept = Json::array();
        const Json* list = present(allowed, "tools");
        if (!list || !list->is_array()) return invalid("tool_choice.allowed_tools.tools must be a list");
        for (const Json& one : *list) {
            std::string name = name_in(one);
            auto place = find(name);
            if (place == tools.end()) return unknown(name);
            kept.push_back(*place);
        }
        tools = kept.empty() ? Json() : std::move(kept);
    } else if (tool_choice.is_object()) {
        choice.name = name_in(tool_choice);
        if (choice.name.empty()) return invalid("tool_choice must name a function");
        if (find(choice.name) == tools.end()) return unknown(choice.name);
        mode = "required";
    }
    if (mode == "none") {
        tools = nullptr;
    } else if (mode == "required" || mode == "any") {
        if (tools.is_null()) return invalid("tool_choice requires a call, but there are no tools");
        choice.required = true;
    } else if (mode != "auto") {
        return invalid("tool_choice must be none, auto, required or a function");
    }
    return choice;
}

}  // namespace strata
