#include "cli/session.h"

#include <algorithm>
#include <atomic>

#include "cli/engine_start.h"
#include "grammar/grammar_text.h"
#include "text/detokenizer.h"

namespace strata::cli {
namespace {

constexpr int64_t kRoom = 8;  // tokens of the context that the engine keeps free

/// Tells the listener what became certain; false when it wants no more.
bool tell(const std::vector<AnswerEvent>& events, const Listener& listener) {
    bool go_on = true;
    for (const AnswerEvent& event : events) {
        if (event.type == AnswerEvent::Type::reasoning && listener.reasoning) listener.reasoning(event.text);
        if (event.type == AnswerEvent::Type::content && listener.content) go_on = listener.content(event.text) && go_on;
    }
    return go_on;
}

}  // namespace

bool is_thinking_level(std::string_view text) {
    return text == "on" || text == "off" || std::ranges::find(effort_levels, text) != effort_levels.end();
}

void apply_thinking(ChatRequest& request, const std::string& level) {
    if (level == "on" || level == "off") {
        request.thinking = level == "on";
    } else {
        request.effort = level;
    }
}

void add_think_flag(FlagSet& set, std::string& level) {
    set.text("--think", level, "Reasoning: on, off, or how much (default: as the template does by itself)",
             "on|off|LEVEL")
        .checked([](const std::string& text) {
            return is_thinking_level(text) ? std::string{}
                                           : "must be on, off, minimal, low, medium, high, xhigh or max";
        });
}

Result<ChatFormat> open_chat_format(const RunConfig& config, const gguf::File& file, const Tokenizer& tokenizer) {
    STRATA_TRY_ASSIGN(std::string source, chat_template_of(config, file));
    auto format = ChatFormat::make(
        ChatModel::from(tokenizer, file.file_name(), std::string(file.architecture()), std::move(source)));
    // A template that cannot be used is the file's fault, whatever kind the text room gives it.
    if (!format) return file_error(format.error().message, format.error().code);
    return format;
}

Result<std::unique_ptr<Session>> Session::open(SessionOptions options) {
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(options.model.path));
    STRATA_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(file));
    STRATA_TRY_ASSIGN(ChatFormat format, open_chat_format(options.model.config, file, tokenizer));
    STRATA_TRY_ASSIGN(Sampling sampling, options.sampling.sampling(options.model.config.sampling, file));
    return std::unique_ptr<Session>(
        new Session(std::move(options), std::move(tokenizer), std::move(format), std::move(sampling)));
}

Result<void> Session::load(const Listener& listener, Interrupts& interrupts) {
    if (engine_ && engine_->alive()) return {};
    engine_.reset();
    if (listener.loading) listener.loading("loading " + options_.model.id + " ...");
    STRATA_TRY_ASSIGN(engine_, start_engine(options_.model, options_.engine_arguments, interrupts));
    return {};
}

Result<GenerateRequest> Session::make_request(const ChatPrompt& prompt) const {
    GenerateRequest request;
    request.prompt = tokenizer_.encode_prompt(prompt.text);
    const int64_t context = engine_->ready().max_context;
    const int64_t room = context - static_cast<int64_t>(request.prompt.size()) - kRoom;
    if (room < 1)
        return failure("the conversation has " + std::to_string(request.prompt.size()) +
                       " tokens and the context holds " + std::to_string(context) +
                       ": start a new one, or give the engine a larger --max-context");
    request.max_new = options_.max_new > 0 ? std::min(options_.max_new, room) : room;
    request.sampling = sampling_;
    for (const int32_t id : tokenizer_.suppressed()) request.sampling.bias.emplace_back(id, -1e9f);
    request.stop_ids = tokenizer_.end_of_generation();
    if (options_.rules) {
        if (!engine_->can("grammar")) return failure("this engine cannot hold answers to a schema or a grammar");
        const auto grammar = grammar_of_reply(format_.dialect(), prompt.answer, *options_.rules);
        if (!grammar) return usage_error(grammar.error().message);
        request.grammar = grammar_text(*grammar);
    }
    return request;
}

Result<Reply> Session::answer(const Json& messages, const Listener& listener, Interrupts& interrupts) {
    ChatRequest chat;
    chat.messages = messages;
    apply_thinking(chat, options_.thinking);
    return answer(chat, listener, interrupts);
}

Result<Reply> Session::answer(const ChatRequest& chat, const Listener& listener, Interrupts& interrupts) {
    STRATA_TRY_ASSIGN(const ChatPrompt prompt, format_.render(chat));
    STRATA_TRY(load(listener, interrupts));
    STRATA_TRY_ASSIGN(const GenerateRequest request, make_request(prompt));

    std::atomic<bool> leave = false;
    const auto generation = engine_->submit(request);
    const Interrupts::Watch watch(interrupts, [&](bool again) {
        generation->stop();
        if (!again) return;
        leave = true;
        engine_->quit(std::chrono::milliseconds(0));
    });
    Result<Reply> reply = take_events(*generation, prompt, listener);
    if (leave) {  // whatever the engine still said
        Reply left;
        left.leave = true;
        return left;
    }
    return reply;
}

Result<Reply> Session::take_events(protocol::Generation& generation, const ChatPrompt& prompt,
                                   const Listener& listener) const {
    Reply reply;
    AnswerParser parser = format_.parser(prompt);
    Detokenizer text(tokenizer_, true);
    const auto take = [&](std::vector<AnswerEvent>& events) {
        reply.answer.add(events);
        return tell(events, listener);
    };
    while (const auto event = generation.next()) {
        if (const auto* error = std::get_if<Error>(&*event)) return *error;
        if (const auto* progress = std::get_if<protocol::Progress>(&*event); progress && listener.progress)
            listener.progress(progress->read, progress->total);
        if (const auto* token = std::get_if<protocol::Token>(&*event)) {
            if (tokenizer_.is_end_of_generation(token->id)) continue;
            std::vector<AnswerEvent> events;
            parser.push(text.push(token->id), events);
            if (!take(events) || parser.wants_stop()) generation.stop();
        }
        if (const auto* done = std::get_if<protocol::Done>(&*event)) {
            std::vector<AnswerEvent> events;
            parser.push(text.finish(), events);
            parser.finish(done->finish == "stop" ? AnswerEnd::stop : AnswerEnd::length, events);
            take(events);
            reply.done = *done;
            return reply;
        }
    }
    return failure("the engine did not end its answer");
}

}  // namespace strata::cli
