// polystrata render: the prompt that a chat becomes.

#include <cstdio>

#include "cli/command.h"
#include "cli/session.h"

namespace strata::cli {
namespace {

struct Flags {
    ModelFlags model;
    std::string messages;
    std::string tools;
    std::string think;
    bool ids = false;
};

Result<Json> read_json(const std::string& path) {
    STRATA_TRY_ASSIGN(const std::string text,
                      path == "-" ? Result<std::string>(read_standard_input()) : read_text_file(path));
    auto json = parse_json(text);
    if (!json) return file_error(path + ": " + json.error().message, "json");
    return json;
}

/// The request: a list of messages, or an object with "messages" and what else a request has.
Result<ChatRequest> make_request(const Flags& flags) {
    ChatRequest request;
    STRATA_TRY_ASSIGN(Json json, read_json(flags.messages));
    if (json.is_object()) {
        request.tools = json.value("tools", Json());
        request.tool_choice = json.value("tool_choice", Json());
        request.messages = json.value("messages", Json());
    } else {
        request.messages = std::move(json);
    }
    if (!request.messages.is_array())
        return file_error(flags.messages + ": must hold a list of messages, or an object with \"messages\"", "json");
    if (!flags.tools.empty()) {
        STRATA_TRY_ASSIGN(request.tools, read_json(flags.tools));
    }
    apply_thinking(request, flags.think);
    return request;
}

Outcome run(const Flags& flags) {
    STRATA_TRY_ASSIGN(const ModelEntry entry, flags.model.resolve());
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(entry.path));
    STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(file));
    STRATA_TRY_ASSIGN(const ChatFormat format, open_chat_format(entry.config, file, tokenizer));
    STRATA_TRY_ASSIGN(const ChatRequest request, make_request(flags));
    const Result<ChatPrompt> prompt = format.render(request);
    if (!prompt) return file_error(flags.messages + ": " + prompt.error().message, prompt.error().code);
    std::string out = prompt->text;
    if (flags.ids) {
        out.clear();
        for (const int32_t id : tokenizer.encode_prompt(prompt->text))
            out += (out.empty() ? "" : " ") + std::to_string(id);
        out += '\n';
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
    return 0;
}

}  // namespace

Run declare_render(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    flags->model.add(set).required();
    set.text("--messages", flags->messages,
             "JSON: a list of messages, or a request with \"messages\"; -: standard input", "FILE")
        .required();
    set.text("--tools", flags->tools, "JSON: the tools that the model is offered", "FILE");
    add_think_flag(set, flags->think);
    set.toggle("--ids", flags->ids, "Print token ids instead of text");
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
