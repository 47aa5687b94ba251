#include "cli/chat_console.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "cli/model_text.h"

namespace strata::cli {

struct ChatConsole::Command {
    const char* name;
    const char* arguments;
    const char* summary;
    Next (ChatConsole::*run)(const std::string& argument);
};

const ChatConsole::Command ChatConsole::kCommands[] = {
    {"help", "", "this list", &ChatConsole::help},
    {"model", "[list | info [NAME] | switch NAME | unload]", "the model that answers", &ChatConsole::model},
    {"think", "on|off|low|medium|high|show|hide", "how much it thinks, and whether that is shown", &ChatConsole::think},
    {"system", "TEXT", "the system message; a new conversation starts", &ChatConsole::system},
    {"new", "", "a new conversation", &ChatConsole::start_anew},
    {"retry", "", "answer the last message again", &ChatConsole::retry},
    {"save", "FILE", "write the conversation as JSON", &ChatConsole::save},
    {"quit", "", "end (also Ctrl-D)", &ChatConsole::quit},
};

namespace {

/// "12.3": a rate for people.
std::string rate(int64_t tokens, double ms) {
    char text[32];
    std::snprintf(text, sizeof text, ms > 0 && tokens / (ms / 1000) >= 100 ? "%.0f" : "%.1f",
                  ms > 0 ? static_cast<double>(tokens) / (ms / 1000) : 0.0);
    return text;
}

std::string summary(const protocol::Done& done) {
    std::string text = std::to_string(done.generated) + " tokens, " + rate(done.generated, done.decode_ms) +
                       " tokens/s; read " + std::to_string(done.prompt_tokens - done.reused) + " at " +
                       rate(done.prompt_tokens - done.reused, done.prompt_ms) + " tokens/s";
    if (done.reused > 0) text += ", " + std::to_string(done.reused) + " reused";
    if (done.finish == "cancel") text += "; stopped";
    if (done.finish == "length") text += "; cut at the most tokens";
    if (done.finish == "context") text += "; the context is full (/new starts anew)";
    return text;
}

}  // namespace

ChatConsole::ChatConsole(SessionOptions options, std::string system, std::filesystem::path home, LineEditor& editor,
                         Interrupts& interrupts)
    : options_(std::move(options)),
      system_(std::move(system)),
      home_(std::move(home)),
      editor_(editor),
      interrupts_(interrupts),
      printer_(stdout, stdout) {
    reset();
}

Result<int> ChatConsole::run() {
    STRATA_TRY(open(options_));
    if (editor_.edited()) {
        say(session_->model().display_name + ". /help lists commands; Ctrl-C stops an answer, Ctrl-D ends.");
    }
    for (;;) {
        const Message message = editor_.read("> ");
        if (message.kind == Message::Kind::end) return 0;
        if (message.kind == Message::Kind::interrupt) {
            if (interrupts_.note()) return 130;
            printer_.note("(Ctrl-C once more, or Ctrl-D, ends the chat)");
            continue;
        }
        if (message.text.find_first_not_of(" \t\n") == std::string::npos) continue;
        Next next = Next::go_on;
        if (message.text.starts_with('/')) {
            next = command(message.text);
        } else {
            messages_.push_back({{"role", "user"}, {"content", message.text}});
            next = answer();
        }
        if (next == Next::leave) return left_by_interrupt_ ? 130 : 0;
    }
}

Result<void> ChatConsole::open(SessionOptions options) {
    STRATA_TRY_ASSIGN(std::unique_ptr<Session> session, Session::open(options));
    session_ = std::move(session);  // ends the earlier engine: two models are never in memory together
    options_ = std::move(options);
    reset();
    return {};
}

void ChatConsole::reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
}

ChatConsole::Next ChatConsole::answer() {
    Listener listener;
    listener.loading = [this](const std::string& what) { printer_.status(what); };
    listener.progress = [this](int64_t read, int64_t total) {
        printer_.status("reading " + std::to_string(read) + " of " + std::to_string(total) + " tokens");
    };
    listener.reasoning = [this](std::string_view text) { printer_.reasoning(text); };
    listener.content = [this](std::string_view text) {
        printer_.content(text);
        return printer_.ok();
    };
    const Result<Reply> reply = session_->answer(messages_, listener, interrupts_);
    printer_.finish();
    if (!reply) {
        complain(reply.error().message);
        messages_.erase(messages_.size() - 1);  // the message that had no answer
        return Next::go_on;
    }
    left_by_interrupt_ = reply->leave;
    if (reply->leave || !printer_.ok()) return Next::leave;
    Json message = {{"role", "assistant"}, {"content", reply->answer.content}};
    if (!reply->answer.reasoning.empty()) message["reasoning_content"] = reply->answer.reasoning;
    messages_.push_back(std::move(message));
    printer_.note("[" + summary(reply->done) + "]");
    return Next::go_on;
}

ChatConsole::Next ChatConsole::command(const std::string& line) {
    const size_t name_end = std::min(line.find_first_of(" \t\n"), line.size());
    const std::string name = line.substr(1, name_end - 1);
    const size_t start = line.find_first_not_of(" \t\n", name_end);
    const size_t end = line.find_last_not_of(" \t\n");
    const std::string argument = start == std::string::npos ? std::string{} : line.substr(start, end - start + 1);
    for (const Command& command : kCommands)
        if (name == command.name) return (this->*command.run)(argument);
    complain("/" + name + " is no command; /help lists what there is");
    return Next::go_on;
}

ChatConsole::Next ChatConsole::help(const std::string&) {
    std::string text;
    for (const Command& command : kCommands)
        text += fact_line("/" + std::string(command.name) + (*command.arguments ? " " : "") + command.arguments,
                          command.summary);
    text.pop_back();
    say(text);
    return Next::go_on;
}

ChatConsole::Next ChatConsole::model(const std::string& argument) {
    const size_t end = std::min(argument.find(' '), argument.size());
    const std::string what = argument.substr(0, end);
    const size_t start = argument.find_first_not_of(' ', end);
    const std::string name = start == std::string::npos ? std::string{} : argument.substr(start);
    if (what.empty()) {
        say(session_->model().id + " (" + session_->model().display_name + "), " +
            (session_->loaded() ? "loaded" : "not loaded: the next message loads it"));
    } else if (what == "list") {
        const auto registry = Registry::read(home_);
        if (!registry) {
            complain(registry.error().message);
        } else if (registry->entries().empty()) {
            say("no model is installed");
        } else {
            std::fputs(models_table(*registry).c_str(), stdout);
            std::fflush(stdout);
        }
    } else if (what == "info") {
        const auto entry = name.empty() ? Result<ModelEntry>(session_->model()) : resolve_model(name, home_);
        if (entry)
            say(model_text(*entry).substr(0, model_text(*entry).size() - 1));
        else
            complain(entry.error().message);
    } else if (what == "switch" && !name.empty()) {
        switch_model(name);
    } else if (what == "unload") {
        session_->unload();
        say("unloaded; the next message loads it again");
    } else {
        complain("/model [list | info [NAME] | switch NAME | unload]");
    }
    return Next::go_on;
}

void ChatConsole::switch_model(const std::string& name) {
    auto entry = resolve_model(name, home_);
    if (!entry) return complain(entry.error().message);
    SessionOptions options = options_;
    options.model = std::move(entry).value();
    if (const auto opened = open(std::move(options)); !opened) return complain(opened.error().message);
    say(session_->model().id + " answers from now on; a new conversation starts");
}

ChatConsole::Next ChatConsole::think(const std::string& argument) {
    if (argument == "show" || argument == "hide") {
        printer_.show_reasoning(argument == "show");
    } else if (argument == "none" || is_thinking_level(argument)) {
        options_.thinking = argument == "none" ? "off" : argument;
        session_->set_thinking(options_.thinking);
    } else {
        complain("/think on|off|low|medium|high|show|hide");
    }
    return Next::go_on;
}

ChatConsole::Next ChatConsole::system(const std::string& argument) {
    system_ = argument;
    reset();
    say(argument.empty() ? "no system message; a new conversation starts" : "a new conversation starts");
    return Next::go_on;
}

ChatConsole::Next ChatConsole::start_anew(const std::string&) {
    reset();
    say("a new conversation starts");
    return Next::go_on;
}

ChatConsole::Next ChatConsole::retry(const std::string&) {
    if (!messages_.empty() && messages_.back()["role"] == "assistant") messages_.erase(messages_.size() - 1);
    if (messages_.empty() || messages_.back()["role"] != "user") {
        complain("/retry: there is no message to answer");
        return Next::go_on;
    }
    return answer();
}

ChatConsole::Next ChatConsole::save(const std::string& argument) {
    if (argument.empty()) {
        complain("/save FILE");
        return Next::go_on;
    }
    std::ofstream out(argument, std::ios::binary);
    out << json_text(messages_, {.key_separator = ": ", .indent = 2}) << '\n';
    out.flush();
    if (out)
        say("saved to " + argument);
    else
        complain(argument + ": cannot be written");
    return Next::go_on;
}

ChatConsole::Next ChatConsole::quit(const std::string&) {
    return Next::leave;
}

void ChatConsole::say(const std::string& text) const {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
}

void ChatConsole::complain(const std::string& text) const {
    std::fprintf(stderr, "polystrata chat: %s\n", text.c_str());
}

}  // namespace strata::cli
