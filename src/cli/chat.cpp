// polystrata chat: answers one prompt, or talks with a person at the terminal.

#include <cstdio>
#include <unistd.h>

#include "cli/chat_console.h"
#include "cli/command.h"

namespace strata::cli {
namespace {

struct Flags {
    ModelFlags model;
    SamplingFlags sampling;
    EngineFlags engine;
    std::string prompt;
    std::string system;
    std::string think;
    std::string schema, grammar;  // files
    int64_t max_new = 0;
    bool json = false;
};

double per_second(int64_t tokens, double ms) {
    return ms > 0 ? static_cast<double>(tokens) / (ms / 1000) : 0;
}

std::string reply_json(const Reply& reply, const ModelEntry& model) {
    const protocol::Done& done = reply.done;
    const auto seed = done.more.find("seed");
    const Json json = {{"model", model.id},
                       {"content", reply.answer.content},
                       {"reasoning", reply.answer.reasoning},
                       {"finish", done.finish},
                       {"prompt_tokens", done.prompt_tokens},
                       {"reused", done.reused},
                       {"new_tokens", done.generated},
                       {"read_ms", done.prompt_ms},
                       {"write_ms", done.decode_ms},
                       {"read_tps", per_second(done.prompt_tokens - done.reused, done.prompt_ms)},
                       {"write_tps", per_second(done.generated, done.decode_ms)},
                       {"guesses_offered", done.offered},
                       {"guesses_right", done.accepted},
                       {"expert_uses", done.lookups},
                       {"expert_hits", done.hits},
                       {"seed", seed == done.more.end() ? Json() : Json(seed->second)}};
    return json_text(json);
}

/// Answers once: the answer alone on standard output, reasoning and status on standard error where that is a terminal.
Outcome answer_once(const Flags& flags, SessionOptions options, Interrupts& interrupts) {
    STRATA_TRY_ASSIGN(const auto session, Session::open(std::move(options)));
    AnswerPrinter printer(stdout, stderr);
    Json messages = Json::array();
    if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
    messages.push_back({{"role", "user"}, {"content", flags.prompt}});
    Listener listener;
    listener.loading = [&](const std::string& what) { printer.status(what); };
    listener.progress = [&](int64_t read, int64_t total) {
        printer.status("reading " + std::to_string(read) + " of " + std::to_string(total) + " tokens");
    };
    listener.reasoning = [&](std::string_view text) { printer.reasoning(text); };
    listener.content = [&](std::string_view text) {
        if (!flags.json) printer.content(text);
        return printer.ok();
    };
    const Result<Reply> reply = session->answer(messages, listener, interrupts);
    printer.finish();
    if (!reply) return reply.error();
    if (!printer.ok()) return failure("standard output cannot be written");
    if (reply->answer.content.empty() && reply->done.finish == "length")
        std::fputs("polystrata chat: the model was still thinking when it was cut (--max-new, --think off)\n", stderr);
    if (flags.json && !reply->leave) std::printf("%s\n", reply_json(*reply, session->model()).c_str());
    return reply->leave || reply->done.finish == "cancel" ? 130 : 0;
}

/// What --json-schema and --grammar ask for; compiled once here, so that what they refuse is told before a model loads.
Result<std::optional<ReplyRules>> reply_rules(const Flags& flags) {
    if (flags.schema.empty() && flags.grammar.empty()) return std::optional<ReplyRules>();
    ReplyRules rules;
    const std::string& path = flags.schema.empty() ? flags.grammar : flags.schema;
    STRATA_TRY_ASSIGN(rules.grammar, read_text_file(path));
    rules.content = ReplyRules::Content::grammar;
    if (!flags.schema.empty()) {
        auto schema = parse_json(rules.grammar);
        if (!schema) return file_error(path + ": " + schema.error().message, "json");
        rules.schema = std::move(*schema);
        rules.content = ReplyRules::Content::schema;
    }
    AnswerOptions content;
    content.start = AnswerStart::content;
    const auto compiled = grammar_of_reply(plain_dialect(false), content, rules);
    if (!compiled) return file_error(path + ": " + compiled.error().message, compiled.error().code);
    return std::optional<ReplyRules>(std::move(rules));
}

Outcome run(const Flags& flags, bool prompt_given) {
    if (flags.json && !prompt_given) return usage_error("--json needs --prompt");
    SessionOptions options;
    STRATA_TRY_ASSIGN(options.model, flags.model.resolve());
    STRATA_TRY_ASSIGN(options.engine_arguments, flags.engine.split());
    options.sampling = flags.sampling;
    options.max_new = flags.max_new;
    options.thinking = flags.think;
    STRATA_TRY_ASSIGN(options.rules, reply_rules(flags));
    if (prompt_given) {
        Interrupts interrupts;
        return answer_once(flags, std::move(options), interrupts);
    }
    LineEditor editor(STDIN_FILENO, STDOUT_FILENO);
    Interrupts interrupts([&editor] { editor.restore(); });
    STRATA_TRY_ASSIGN(const std::filesystem::path home, flags.model.home());
    ChatConsole console(std::move(options), flags.system, home, editor, interrupts);
    return console.run();
}

}  // namespace

Run declare_chat(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    flags->model.add(set);
    const Flag prompt =
        set.text("--prompt,-p", flags->prompt, "Answer this once: the answer alone goes to standard output");
    set.text("--system", flags->system, "The system message");
    add_think_flag(set, flags->think);
    set.number("--max-new", flags->max_new, 1, 1 << 30, "Most tokens of an answer (default: what the context leaves)");
    const Flag schema = set.text("--json-schema", flags->schema, "Answers are JSON that fits this schema", "FILE");
    set.text("--grammar", flags->grammar, "Answers follow this grammar: root ::= \"yes\" | \"no\"", "FILE")
        .excludes(schema);
    set.toggle("--json", flags->json, "With --prompt: print the answer, its reasoning and its numbers as JSON");
    flags->engine.add(set);
    flags->sampling.add(set);
    return [flags, prompt] { return run(*flags, prompt.given()); };
}

}  // namespace strata::cli
