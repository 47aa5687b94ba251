#include "text/chat.h"

#include <algorithm>

#include "text/chat_messages.h"
#include "text/tokenizer.h"

namespace strata {
namespace {

constexpr size_t npos = std::string_view::npos;

// For files that have none, with the tokens of ChatML.
constexpr std::string_view kChatMl =
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- "
    "endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}";

// What stands for a picture, by what the template mentions. The first that fits.
constexpr std::string_view kPictureMarks[] = {"<|image_pad|>", "<|image|>", "<image>"};

Error invalid(std::string message) {
    return {ErrorKind::failed, std::move(message), "invalid_request"};
}

/// A template's error as one of a request.
Error refused(Error error) {
    if (error.code == "template_raised") {
        error.code = "template_error";
    } else {
        error.code = "template_broken";
        error.message = "the model's chat template failed: " + error.message;
    }
    return error;
}

/// The levels to try instead, nearest first.
std::span<const std::string_view> nearest_efforts(std::string_view level) {
    static constexpr std::string_view kMinimal[] = {"low", "medium"}, kLow[] = {"medium"}, kMedium[] = {"low"},
                                      kHigh[] = {"xhigh", "medium"}, kXhigh[] = {"max", "high", "medium"},
                                      kMax[] = {"xhigh", "high", "medium"};
    if (level == "minimal") return kMinimal;
    if (level == "low") return kLow;
    if (level == "medium") return kMedium;
    if (level == "high") return kHigh;
    if (level == "xhigh") return kXhigh;
    if (level == "max") return kMax;
    return {};
}

Json user_message(std::string_view text) {
    return {{"role", "user"}, {"content", text}};
}

/// What `whole` has behind the part it shares with `part`.
std::string behind_common(const std::string& whole, const std::string& part) {
    auto end = std::mismatch(whole.begin(), whole.end(), part.begin(), part.end()).first;
    while (end != whole.begin() && end != whole.end() && (*end & 0xC0) == 0x80) --end;  // not within a character
    return std::string(end, whole.end());
}

int count(std::string_view text, std::string_view mark) {
    int found = 0;
    for (size_t at = 0; !mark.empty() && (at = text.find(mark, at)) != npos; at += mark.size()) ++found;
    return found;
}

std::string content_text(const Json& message) {
    const Json& content = message["content"];
    if (content.is_string()) return content.get<std::string>();
    std::string text;
    for (const Json& part : content) {
        if (part.contains("text") && part["text"].is_string()) text += part["text"].get_ref<const std::string&>();
    }
    return text;
}

}  // namespace

ChatModel ChatModel::from(const Tokenizer& tokenizer, std::string name, std::string architecture,
                          std::string chat_template) {
    return {std::move(name),
            std::move(chat_template),
            std::move(architecture),
            std::string(tokenizer.kind_name()),
            std::string(tokenizer.bos_text()),
            std::string(tokenizer.eos_text()),
            [&tokenizer](std::string_view text) { return tokenizer.token_id(text).has_value(); }};
}

/// What a request, the configuration and the defaults say together.
struct ChatFormat::Switches {
    bool thinking = true;
    std::string effort;  // what the template gets
};

ChatFormat::ChatFormat(ChatModel model, ChatSettings settings, Template parsed, const Dialect& dialect)
    : model_(std::move(model)), settings_(std::move(settings)), template_(std::move(parsed)), dialect_(&dialect) {}

Result<ChatFormat> ChatFormat::make(ChatModel model, ChatSettings settings) {
    auto has_token = [&](std::string_view text) { return model.has_token && model.has_token(text); };
    DialectClues clues{model.chat_template, model.architecture, model.tokenizer_kind, has_token("<|tool_call_start|>"),
                       has_token("<think>")};
    const Dialect* dialect = &pick_dialect(clues);
    if (!settings.dialect.empty()) {
        dialect = find_dialect(settings.dialect);
        if (!dialect) return usage_error("there is no chat dialect '" + settings.dialect + "'");
    }
    if (model.chat_template.empty()) {
        if (!has_token("<|im_start|>")) {
            return Error{
                ErrorKind::file,
                model.name + ": the file has no chat template and no ChatML tokens; only plain completions work",
                "no_template"};
        }
        model.chat_template = kChatMl;
    }
    auto parsed = Template::parse(model.chat_template);
    if (!parsed.ok()) {
        return Error{ErrorKind::file, model.name + ": the chat template cannot be used: " + parsed.error().message,
                     "template_broken"};
    }
    model.has_token = nullptr;
    ChatFormat format(std::move(model), std::move(settings), std::move(*parsed), *dialect);
    format.probe();
    return format;
}

/// The messages in the family's shape, among the variables.
Json ChatFormat::template_input(Json messages, Json variables) const {
    TemplateInput input{std::move(messages), std::move(variables), model_.chat_template};
    dialect_->prepare(input);
    input.variables["messages"] = std::move(input.messages);
    return std::move(input.variables);
}

/// Tries the template out on small chats, so that requests need no guessing.
void ChatFormat::probe() {
    constexpr std::string_view kText = "probe text 7431";
    Json base = {{"add_generation_prompt", true},
                 {"bos_token", model_.bos_token},
                 {"eos_token", model_.eos_token},
                 {"tools", nullptr},
                 {"documents", nullptr},
                 {"enable_thinking", true},
                 {"thinking", true}};
    auto attempt = [&](Json messages, const Json& variables) {
        return template_.render(template_input(std::move(messages), variables));
    };

    for (std::string_view mark : kPictureMarks) {
        if (picture_mark_.empty() && model_.chat_template.find(mark) != npos) picture_mark_ = mark;
    }
    Json part = {{"type", "text"}, {"text", kText}};
    auto parts = attempt(Json::array({{{"role", "user"}, {"content", Json::array({part})}}}), base);
    handles_parts_ =
        parts.ok() && parts->find(kText) != npos && parts->find("'text'") == npos && parts->find("\"text\"") == npos;

    Json late = Json::array({{{"role", "system"}, {"content", "first"}},
                             user_message("question"),
                             {{"role", "assistant"}, {"content", "answer"}},
                             {{"role", "system"}, {"content", kText}},
                             user_message("another")});
    auto late_text = attempt(late, base);
    handles_late_system_ = late_text.ok() && late_text->find(kText) != npos;

    takes_effort_ = template_.mentions("reasoning_effort");
    if (!takes_effort_) return;
    auto with_effort = [&](std::string_view level) {
        Json variables = base;
        variables["reasoning_effort"] = level;
        return attempt(Json::array({user_message("question")}), variables);
    };
    auto unknown = with_effort("no-such-level");
    for (size_t i = 0; i < effort_levels.size(); ++i) {
        std::string_view level = effort_levels[i];
        auto own = with_effort(level);
        if (own.ok()) {
            efforts_[i] = level;
            // The template may take a level it does not know for its default: then the dialect knows a nearer one.
            std::string better = dialect_->effort(level);
            if (better != level && unknown.ok() && *unknown == *own) {
                if (auto other = with_effort(better); other.ok()) efforts_[i] = better;
            }
            continue;
        }
        for (std::string_view other : nearest_efforts(level)) {
            if (!with_effort(other).ok()) continue;
            efforts_[i] = other;
            break;
        }
    }
}

std::string ChatFormat::effort_for(std::string_view level) const {
    if (!takes_effort_) return {};
    auto place = std::find(effort_levels.begin(), effort_levels.end(), level);
    if (place == effort_levels.end()) return std::string(level);  // one of the template's own
    return efforts_[static_cast<size_t>(place - effort_levels.begin())];
}

ChatFormat::Switches ChatFormat::switches(const ChatRequest& request) const {
    // The strongest that says something: template arguments, the request, the configuration; else thinking is on.
    auto argument = [&](const char* name) -> const Json* {
        for (const Json* arguments : {&request.template_kwargs, &settings_.template_kwargs}) {
            if (arguments->is_object() && arguments->contains(name) && !(*arguments)[name].is_null())
                return &(*arguments)[name];
        }
        return nullptr;
    };
    Switches all;
    std::string level;
    auto take = [&](std::optional<bool> thinking, const std::string& effort) {
        if (level.empty() && !effort.empty() && effort != "none") level = effort;
        return thinking ? thinking : effort.empty() ? std::nullopt : std::optional(effort != "none");
    };
    std::optional<bool> by_argument;
    for (const char* name : {"enable_thinking", "thinking"}) {
        const Json* value = argument(name);
        if (!by_argument && value && value->is_boolean()) by_argument = value->get<bool>();
    }
    const Json* effort = argument("reasoning_effort");
    std::optional<bool> from_arguments =
        take(by_argument, effort && effort->is_string() ? effort->get<std::string>() : "");
    std::optional<bool> from_request = take(request.thinking, request.effort);
    std::optional<bool> from_settings = take(settings_.thinking, settings_.effort);
    all.thinking = from_arguments ? *from_arguments : from_request ? *from_request : from_settings.value_or(true);
    if (all.thinking && !level.empty()) all.effort = effort_for(level);
    return all;
}

Json ChatFormat::variables(const ChatRequest& request, const Switches& switches, const Json& tools,
                           const Json& messages) const {
    Json all = {{"tools", tools},
                {"documents", nullptr},
                {"bos_token", model_.bos_token},
                {"eos_token", model_.eos_token},
                {"enable_thinking", switches.thinking},
                {"thinking", switches.thinking}};
    bool keep =
        settings_.keep_reasoning.value_or(std::any_of(messages.begin(), messages.end(), [](const Json& message) {
            auto reasoning = message.find("reasoning_content");
            return reasoning != message.end() && *reasoning != "";
        }));
    if (keep) {
        all["preserve_thinking"] = true;
        for (const char* name : {"clear_thinking", "drop_thinking", "truncate_history_thinking"}) all[name] = false;
    }
    if (!request.response_schema.is_null() && template_.mentions("response_format")) {
        all["response_format"] = request.response_schema;
    }
    for (const Json* arguments : {&settings_.template_kwargs, &request.template_kwargs}) {
        if (!arguments->is_object()) continue;
        for (const auto& [name, value] : arguments->items()) {
            if (name != "messages" && name != "tools" && name != "add_generation_prompt") all[name] = value;
        }
    }
    if (auto effort = all.find("reasoning_effort"); effort != all.end() && effort->is_string()) all.erase(effort);
    if (!switches.effort.empty()) all["reasoning_effort"] = switches.effort;  // the one the template takes
    return all;
}

/// The reply goes on from a beginning: reasoning inside of the block, content behind it, and no end token.
void ChatFormat::continue_answer(const Json& beginning, ChatPrompt& prompt) const {
    auto append = [&](std::string_view text) {
        prompt.text += text;
        prompt.generation_prompt += text;
    };
    std::string_view opener = dialect_->reasoning_opener(), closer = dialect_->reasoning_closer();
    auto given = beginning.find("reasoning_content");
    std::string reasoning = given == beginning.end() ? std::string() : given->get<std::string>();
    std::string content = content_text(beginning);
    AnswerStart start = answer_start(*dialect_, prompt.generation_prompt);
    if (!reasoning.empty() && start != AnswerStart::content) {
        if (start == AnswerStart::undecided) append(dialect_->open_reasoning());
        append(reasoning);
        if (!content.empty()) append(dialect_->close_reasoning());
    } else if (start == AnswerStart::reasoning && !content.empty()) {
        if (content.starts_with(opener)) content.erase(0, opener.size());  // the prompt has it already
        // Content that closes the block itself continues as content.
        if (content.find(closer) == content.npos) append(dialect_->close_reasoning());
    }
    append(content);
    prompt.answer.continues = !content.empty();
}

/// Lets the reply begin with a call: at once, or after its reasoning.
void ChatFormat::force_call(const ToolChoice& choice, ChatPrompt& prompt) const {
    if (!choice.required) return;
    std::string name = choice.name;
    for (const Tool& tool : prompt.answer.tools.all()) prompt.call_names.push_back(tool.name);
    if (name.empty() && prompt.call_names.size() == 1) name = prompt.call_names[0];
    if (!name.empty()) prompt.call_names.clear();
    prompt.force_call = dialect_->forced_call(name);
    if (prompt.force_call.empty()) return;
    if (prompt.answer.start == AnswerStart::content) {
        prompt.text += prompt.force_call;
        prompt.answer.given = prompt.force_call;
    } else {
        prompt.answer.forced = prompt.force_call;
    }
}

Result<ChatPrompt> ChatFormat::render(const ChatRequest& request) const {
    MessageOptions options{handles_parts_, handles_late_system_, picture_mark_, dialect_->reasoning_opener(),
                           dialect_->reasoning_closer()};
    STRATA_TRY_ASSIGN(Messages messages, normalise_messages(request.messages, options));
    STRATA_TRY_ASSIGN(Json tools, normalise_tools(request.tools, options));
    STRATA_TRY_ASSIGN(ToolChoice choice, choose_tools(tools, request.tool_choice));
    if (messages.pictures > 0 && picture_mark_.empty()) {
        return Error{ErrorKind::failed, "image input is not supported by this model", "pictures_unsupported"};
    }

    // A last message of the assistant is continued, unless the request wants a new one.
    bool last_is_answer = !messages.list.empty() && messages.list.back()["role"] == "assistant";
    bool continues = request.continue_final_message || (last_is_answer && !request.add_generation_prompt.has_value());
    Json beginning;
    if (continues) {
        if (request.add_generation_prompt.value_or(false)) {
            return invalid("add_generation_prompt and continue_final_message exclude each other");
        }
        if (!last_is_answer) return invalid("continue_final_message needs a last message of the assistant");
        beginning = std::move(messages.list.back());
        messages.list.erase(messages.list.size() - 1);
        if (beginning.contains("tool_calls")) return invalid("the last message has tool calls: it cannot be continued");
        if (!messages.list.empty() && messages.list.back()["role"] == "assistant") {
            return invalid("the last two messages are both of the assistant");
        }
    }

    Switches switches = this->switches(request);
    Json variables = this->variables(request, switches, tools, messages.list);
    bool generation = continues || request.add_generation_prompt.value_or(true);
    Json input = template_input(std::move(messages.list), std::move(variables));
    RenderOptions render_options;
    render_options.now = request.now;
    input["add_generation_prompt"] = generation;
    auto text = template_.render(input, render_options);
    if (!text.ok()) return refused(std::move(text).error());

    ChatPrompt prompt;
    prompt.text = std::move(*text);
    prompt.thinking = switches.thinking;
    prompt.effort = switches.effort;
    prompt.close_reasoning = dialect_->close_reasoning();
    if (generation) {
        dialect_->complete(prompt.text);
        input["add_generation_prompt"] = false;
        auto without = template_.render(input, render_options);
        prompt.generation_prompt = without.ok() ? behind_common(prompt.text, *without) : prompt.text;
    }
    if (continues) {
        continue_answer(beginning, prompt);
    } else if (!switches.thinking && answer_start(*dialect_, prompt.generation_prompt) == AnswerStart::reasoning) {
        // The template has no switch and left the block open.
        prompt.text += dialect_->close_reasoning();
        prompt.generation_prompt += dialect_->close_reasoning();
    }

    prompt.pictures = messages.pictures;
    prompt.picture_mark = picture_mark_;
    if (int marks = count(prompt.text, picture_mark_); messages.pictures > 0 && marks != messages.pictures) {
        return Error{ErrorKind::failed,
                     "the model's chat template wrote " + std::to_string(marks) + " picture marks for " +
                         std::to_string(messages.pictures) + " pictures",
                     "template_broken"};
    }
    prompt.answer.start = answer_start(*dialect_, prompt.generation_prompt);
    prompt.answer.tools = ToolSet(tools);
    prompt.answer.split_reasoning = request.split_reasoning;
    prompt.answer.drop_reasoning = !switches.thinking;
    prompt.answer.parallel_calls = request.parallel_tool_calls;
    force_call(choice, prompt);
    return prompt;
}

}  // namespace strata
