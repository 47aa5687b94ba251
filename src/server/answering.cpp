#include "server/answering.h"

#include <algorithm>
#include <mutex>

#include "server/reply.h"
#include "server/stages.h"

namespace strata::server {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
}

constexpr size_t kMostHeld = 16 << 10;  // bytes that wait for those of tokens that are here already

/// Rows that an answer may have at most; below 1: none.
int64_t room_of(const TokenPrompt& prompt, int64_t context) {
    return context - static_cast<int64_t>(prompt.ids.size()) - kContextReserve;
}

ApiError engine_error(const Error& error) {
    if (error.message.starts_with("prompt (") || error.kind == ErrorKind::usage) {
        ApiError refused;
        refused.code = "invalid_value";
        refused.message = "the engine refused the request: " + error.message;
        return refused;
    }
    if (error.code == "engine-ended") {
        ApiError failed = internal_error(
            "the engine failed while it worked on this request; it is started again, "
            "send the request once more");
        failed.code = "engine_failed";
        return failed;
    }
    return internal_error("the engine failed: " + error.message);
}

/// One request on its way.
class Answering {
  public:
    Answering(Services& services, Exchange& exchange, const std::string& request_id, AnswerRequest request, Wire wire)
        : s_(services), exchange_(exchange), request_id_(request_id), request_(std::move(request)), wire_(wire) {
        activity_ = s_.activities.add(request_id, std::string(exchange.request().path()));
        record_.id = request_id;
        record_.path = activity_->path;
        record_.when = std::time(nullptr);
    }
    ~Answering() { exchange_.on_gone({}); }

    void run(const MakeWriter& make_writer) {
        const Api<void> done = prepare(make_writer);
        if (!done) return refuse(done.error());
        if (request_.stream) begin_stream();
        Api<void> worked = work();
        place_.reset();
        if (gone_ || exchange_.gone()) {
            record_.finish = "gone";
            finish_record(0);
        } else if (!worked) {
            record_.finish = worked.error().code;
            finish_record(worked.error().status);
            refuse(worked.error());
        } else if (finish_record(200); request_.stream) {  // counted before the client can ask for the counts
            send(writer_->end(totals_));
            flush();
            exchange_.end_stream();
        } else {
            exchange_.respond({.body = json_text(writer_->whole(results_, totals_))});
        }
    }

  private:
    Api<void> prepare(const MakeWriter& make_writer) {
        for (const std::string& note : request_.notes) s_.log.info(request_id_ + " " + note);
        request_.sampling.fill_from(s_.settings.sampling());
        STRATA_TRY_ASSIGN(const Serving serving, choose_model(s_, request_.model));
        text_ = serving.text;
        STRATA_TRY_ASSIGN(prompts_, make_prompts(*text_, request_, s_.host.context()));
        STRATA_TRY_ASSIGN(const auto stages, Stages::make(*text_, request_, prompts_[0]));
        if (stages->needs_grammar() && serving.engine && !serving.engine->can("grammar"))
            return unsupported_value("response_format", "this engine cannot hold answers to a form");
        place_ = s_.queue.enter();
        if (!place_) return queue_full(static_cast<int>(s_.queue.limit()));
        AnswerIdentity identity{random_id(24), text_->entry().id, request_.model, std::time(nullptr)};
        activity_->model = record_.model = identity.model;
        int64_t tokens = 0;
        for (const TokenPrompt& prompt : prompts_) tokens += static_cast<int64_t>(prompt.ids.size());
        activity_->prompt = tokens;
        writer_ = make_writer(request_, identity);
        exchange_.on_gone([this] {
            gone_ = true;
            const std::lock_guard lock(generation_mutex_);
            if (generation_) generation_->stop();
        });
        return {};
    }

    void begin_stream() {
        exchange_.start_stream("text/event-stream",
                               {{"Cache-Control", "no-cache, no-transform"}, {"X-Accel-Buffering", "no"}});
        streaming_ = true;
        send(writer_->begin(activity_->prompt));
        flush();
    }

    /// Puts bytes on their way: they leave with the next flush, so that tokens that come together leave together.
    void send(std::string_view bytes) { outbox_ += bytes; }
    void flush() {
        if (outbox_.empty()) return;
        exchange_.write(outbox_);
        outbox_.clear();
        last_sent_ = Clock::now();
    }

    /// While nothing else is sent.
    void keep_alive() {
        if (streaming_ && outbox_.empty() && Clock::now() - last_sent_ >= s_.options.ping) send(writer_->ping());
    }

    bool late() const {
        return s_.options.request_limit.count() > 0 && Clock::now() - began_ > s_.options.request_limit;
    }
    ApiError too_late() const {
        ApiError error = internal_error("the request took longer than the server's limit of " +
                                        seconds_text(s_.options.request_limit));
        error.code = "timeout";
        return error;
    }

    void refuse(const ApiError& error) {
        record_.finish = error.code;
        s_.log.warning(request_id_ + " " + std::to_string(error.status) + " " + error.message);
        if (streaming_) {
            send(writer_->error(error, request_id_));
            flush();
            exchange_.end_stream();
        } else {
            exchange_.respond(error_response(error, wire_, request_id_));
        }
    }

    Api<void> work() {
        STRATA_TRY(wait_for_turn());
        record_.queued_ms = seconds_since(began_) * 1000;
        if (gone_) return {};
        for (size_t p = 0; p < prompts_.size(); ++p) {
            Totals of_prompt;
            for (int i = 0; i < request_.n && !gone_; ++i) {
                STRATA_TRY_ASSIGN(const Totals one, run_reply(p, static_cast<int>(results_.size()), i));
                of_prompt.add_reply(one);
            }
            totals_.add(of_prompt);
        }
        return {};
    }

    Api<void> wait_for_turn() {
        while (!place_->wait(patience_)) {
            if (gone_) return {};
            if (late()) return too_late();
            keep_alive();
            flush();
        }
        activity_->phase = Phase::loading;
        return wait_for_engine();
    }

    Api<void> wait_for_engine() {
        while (!gone_) {
            if (late()) return too_late();
            auto ready = s_.host.wait_ready(patience_);
            keep_alive();
            flush();
            if (!ready) continue;
            STRATA_TRY_ASSIGN(const Serving serving, std::move(*ready));
            engine_ = serving.engine;
            if (serving.text != text_) return change_model(serving.text);
            // Now the context is known for certain.
            const int64_t context = engine_->ready().max_context;
            for (const TokenPrompt& prompt : prompts_)
                if (room_of(prompt, context) < 1)
                    return context_exceeded(context, static_cast<int64_t>(prompt.ids.size()));
            return {};
        }
        return {};
    }

    /// Another model came into use while the request waited.
    Api<void> change_model(std::shared_ptr<const ModelText> text) {
        text_ = std::move(text);
        STRATA_TRY_ASSIGN(prompts_, make_prompts(*text_, request_, engine_->ready().max_context));
        return {};
    }

    /// One reply, in as many requests to the engine as its stages want.
    Api<Totals> run_reply(size_t prompt_index, int reply, int repetition) {
        const TokenPrompt& prompt = prompts_[prompt_index];
        STRATA_TRY_ASSIGN(const auto stages, Stages::make(*text_, request_, prompt));
        const int64_t room = room_of(prompt, engine_->ready().max_context);
        GenerateRequest wanted = engine_request(*text_, request_, prompt, room, repetition);
        ReplyReader reader(*text_, request_, stages->answer_options());
        Totals totals;
        int64_t left = wanted.max_new;
        activity_->phase = Phase::reading;
        cached_ = 0;
        reply_tokens_ = 0;
        asked_ = Clock::now();
        for (bool first = true;;) {
            const Stage stage = stages->next(reader.parser());
            for (const int32_t id : stage.forced) {
                if (left == 0) break;
                wanted.prompt.push_back(id);
                take_token({.id = id}, reader, reply);
                ++totals.reply_tokens;
                --left;
            }
            if (left == 0 || gone_) {
                finish_reader("length", reader, reply);
                break;
            }
            if (stage.most <= 0) continue;
            wanted.max_new = std::min(left, stage.most);
            wanted.grammar = stage.grammar;
            const std::vector<int32_t> ends = *wanted.stop_ids;
            wanted.stop_ids->insert(wanted.stop_ids->end(), stage.more_stops.begin(), stage.more_stops.end());
            const size_t before = wanted.prompt.size();
            STRATA_TRY_ASSIGN(const StageEnd end, run_stage(wanted, stage, *stages, reader, reply));
            wanted.stop_ids = ends;
            wanted.cache = true;  // what this request has read itself
            const auto kept = static_cast<int64_t>(wanted.prompt.size() - before);
            left -= kept;
            add_stage(totals, end.done, first, kept);
            first = false;
            const bool cut = left == 0 && !end.reply_ended;
            if (!stage.last && !end.reply_ended && !cut && !gone_) continue;
            finish_reader(cut ? "length" : end.done.finish, reader, reply);
            break;
        }
        s_.host.answered();
        if (request_.max_tokens == 0) totals.reply_tokens = 0;
        totals.reasoning_tokens = reader.reasoning_tokens();
        if (!logprobs_.empty()) reader.result().logprobs = std::exchange(logprobs_.back(), {});
        results_.push_back(std::move(reader.result()));
        if (streaming_) send(writer_->end_reply(reply, results_.back(), totals));
        record_.finish = finish_name(results_.back().finish);
        return totals;
    }

    struct StageEnd {
        protocol::Done done;
        bool reply_ended = false;  // by an end token, a stop string, or the parser
    };

    void add_stage(Totals& t, const protocol::Done& done, bool first, int64_t kept) {
        if (first) {
            t.prompt_tokens = done.prompt_tokens;
            t.cached_tokens = done.reused;
            t.prompt_ms = done.prompt_ms;
        } else {
            t.reply_ms += done.prompt_ms;
        }
        t.reply_ms += done.decode_ms;
        t.reply_tokens += std::max<int64_t>(kept, done.generated);
        t.guesses += done.offered;
        t.guesses_right += done.accepted;
        record_.hits += done.hits;
        record_.lookups += done.lookups;
    }

    /// One request to the engine. The tokens that count are added to its prompt.
    Api<StageEnd> run_stage(GenerateRequest& wanted, const Stage& stage, Stages& stages, ReplyReader& reader,
                            int reply) {
        const auto generation = engine_->submit(wanted);
        {
            const std::lock_guard lock(generation_mutex_);
            generation_ = generation.get();
        }
        if (gone_) generation->stop();
        Api<StageEnd> end = take_events(*generation, wanted, stage, stages, reader, reply);
        const std::lock_guard lock(generation_mutex_);
        generation_ = nullptr;
        return end;
    }

    static const char* finish_name(Finish finish) {
        switch (finish) {
            case Finish::stop: return "stop";
            case Finish::stop_string: return "stop_string";
            case Finish::tool_calls: return "tool_calls";
            case Finish::length: return "length";
        }
        return "stop";
    }

    Api<StageEnd> take_events(protocol::Generation& generation, GenerateRequest& wanted, const Stage& stage,
                              Stages& stages, ReplyReader& reader, int reply) {
        StageEnd end;
        bool over = false;  // of this stage: what the engine still sends does not count
        auto last_progress = Clock::now();
        while (true) {
            keep_alive();
            if (outbox_.size() > kMostHeld || !generation.pending()) flush();
            const auto event = generation.next(patience_);
            if (late()) return too_late();
            if (!event) continue;
            if (const auto* token = std::get_if<protocol::Token>(&*event)) {
                if (over || request_.max_tokens == 0) continue;
                wanted.prompt.push_back(token->id);
                if (!take_token(*token, reader, reply)) {
                    over = end.reply_ended = true;
                    generation.stop();
                } else if (text_->tokenizer().is_end_of_generation(token->id)) {
                    end.reply_ended = true;
                } else if (stage.reasoning) {
                    stages.reasoned();
                    over = reader.parser().phase() != AnswerParser::Phase::reasoning;
                    if (over) generation.stop();
                }
            } else if (const auto* progress = std::get_if<protocol::Progress>(&*event)) {
                activity_->read = progress->read;
                if (streaming_ && request_.progress && Clock::now() - last_progress >= 400ms) {
                    send(writer_->progress(progress->total, cached_, progress->read, seconds_since(asked_) * 1000));
                    last_progress = Clock::now();
                }
            } else if (const auto* reused = std::get_if<protocol::Reused>(&*event)) {
                cached_ = reused->rows;
            } else if (auto* done = std::get_if<protocol::Done>(&*event)) {
                end.done = *done;
                return end;
            } else {
                const Error& error = std::get<Error>(*event);
                if (error.code == "engine-ended") s_.host.engine_ended(engine_);
                return engine_error(error);
            }
        }
    }

    /// Reads a token and tells the client. False: the reply should end here.
    bool take_token(const protocol::Token& token, ReplyReader& reader, int reply) {
        const auto now = Clock::now();
        if (activity_->written == 0) {
            record_.first_token_ms = seconds_since(began_) * 1000;
            activity_->first_token_ns = (now - activity_->began).count();
            s_.metrics.first_token(record_.first_token_ms / 1000);
        } else {
            s_.metrics.between_tokens(std::chrono::duration<double>(now - last_token_).count());
        }
        if (reply_tokens_++ == 0) {
            first_token_ = now;
            s_.host.answered();
        }
        if (request_.timings_per_token) writer_->so_far(so_far(now));
        last_token_ = now;
        ++activity_->written;
        events_.clear();
        token_logprobs_.clear();
        const bool more = reader.take(token, events_, token_logprobs_);
        note_phase(reader);
        tell(reply);
        return more;
    }

    Totals so_far(Clock::time_point now) const {
        const auto ms = [](auto time) { return std::chrono::duration<double, std::milli>(time).count(); };
        return {.prompt_tokens = static_cast<int64_t>(prompts_[0].ids.size()),
                .cached_tokens = cached_,
                .reply_tokens = reply_tokens_,
                .prompt_ms = ms(first_token_ - asked_),
                .reply_ms = ms(now - first_token_)};
    }

    void finish_reader(const std::string& how, ReplyReader& reader, int reply) {
        events_.clear();
        token_logprobs_.clear();
        reader.finish(how, events_, token_logprobs_);
        tell(reply);
    }

    void tell(int reply) {
        if (streaming_ && !(events_.empty() && token_logprobs_.empty()))
            send(writer_->events(reply, events_, token_logprobs_));
        if (token_logprobs_.empty() || streaming_) return;
        if (static_cast<size_t>(reply) >= logprobs_.size()) logprobs_.resize(static_cast<size_t>(reply) + 1);
        auto& all = logprobs_[static_cast<size_t>(reply)];
        all.insert(all.end(), token_logprobs_.begin(), token_logprobs_.end());
    }

    void note_phase(ReplyReader& reader) {
        switch (reader.parser().phase()) {
            case AnswerParser::Phase::reasoning: activity_->phase = Phase::thinking; break;
            case AnswerParser::Phase::call: activity_->phase = Phase::calling; break;
            default: activity_->phase = Phase::answering;
        }
    }

    void finish_record(int status) {
        record_.status = status;
        record_.totals = totals_;
        record_.total_ms = seconds_since(began_) * 1000;
        s_.metrics.answered(record_);
        char line[256];
        std::snprintf(
            line, sizeof line,
            " %s: prompt %lld (cached %lld), reply %lld, queued %.0f ms, first token %.0f ms, total %.0f ms, %s",
            record_.model.c_str(), static_cast<long long>(totals_.prompt_tokens),
            static_cast<long long>(totals_.cached_tokens), static_cast<long long>(totals_.reply_tokens),
            record_.queued_ms, record_.first_token_ms, record_.total_ms, record_.finish.c_str());
        s_.log.info(request_id_ + line);
    }

    Services& s_;
    Exchange& exchange_;
    const std::string request_id_;
    AnswerRequest request_;
    const Wire wire_;
    const Clock::time_point began_ = Clock::now();
    std::shared_ptr<Activity> activity_;
    RequestRecord record_;

    std::shared_ptr<const ModelText> text_;
    std::shared_ptr<protocol::EngineProcess> engine_;
    std::vector<TokenPrompt> prompts_;
    std::unique_ptr<Queue::Place> place_;
    std::unique_ptr<AnswerWriter> writer_;
    std::vector<ReplyResult> results_;
    std::vector<std::vector<TokenLogprob>> logprobs_;
    Totals totals_;
    std::vector<AnswerEvent> events_;  // of the token at hand
    std::vector<TokenLogprob> token_logprobs_;
    Clock::time_point first_token_{}, last_token_{};  // of the reply at hand
    int64_t reply_tokens_ = 0;
    bool streaming_ = false;
    std::string outbox_;
    Clock::time_point last_sent_ = Clock::now();
    /// How often a request that waits looks up: for keep-alives, its time limit, a client that has gone.
    const std::chrono::milliseconds patience_ = std::min<std::chrono::milliseconds>(100ms, s_.options.ping);
    int64_t cached_ = 0;         // tokens of the prompt at hand
    Clock::time_point asked_{};  // when the engine was asked for the reply at hand

    std::atomic<bool> gone_{false};
    std::mutex generation_mutex_;
    protocol::Generation* generation_ = nullptr;
};

}  // namespace

Api<std::vector<TokenPrompt>> make_prompts(const ModelText& text, const AnswerRequest& request, int64_t context) {
    std::vector<TokenPrompt> prompts;
    if (request.raw.empty()) {
        STRATA_TRY_ASSIGN(TokenPrompt prompt, text.render(request.chat));
        prompts.push_back(std::move(prompt));
    }
    for (const RawPrompt& raw : request.raw) {
        STRATA_TRY_ASSIGN(TokenPrompt prompt, text.raw_prompt(raw, request.suffix));
        prompts.push_back(std::move(prompt));
    }
    for (const TokenPrompt& prompt : prompts)
        if (context > 0 && room_of(prompt, context) < 1)
            return context_exceeded(context, static_cast<int64_t>(prompt.ids.size()));
    return prompts;
}

Api<Serving> choose_model(Services& s, const std::string& name) {
    const Serving now = s.host.serving();
    if (s.closing) return unavailable("the server is shutting down", "shutting_down");
    if (!now.text && name.empty())
        return unavailable("no model is in use: POST /api/models/load chooses one", "no_model");
    if (now.text) {
        const ModelEntry& entry = now.text->entry();
        if (name.empty() || lower(name) == lower(entry.id) ||
            std::ranges::find(entry.config.aliases, name) != entry.config.aliases.end())
            return now;
    }
    // Reading the registry costs milliseconds: only for names that are not the current model's.
    auto registry = s.host.registry();
    const auto found = registry ? (*registry)->find(name) : Result<const ModelEntry*>(registry.error());
    if (!found) {
        if (now.text) return now;
        return unavailable("no model is in use: POST /api/models/load chooses one", "no_model");
    }
    const ModelEntry& entry = **found;
    if (now.text && entry.id == now.text->entry().id) return now;
    if (s.options.switch_on_request && entry.available()) {
        STRATA_TRY(s.host.load(entry));
        return s.host.serving();
    }
    if (now.text && lower(entry.id) != lower(name)) return now;
    return not_found("model '" + name + "' is installed but not in use; POST /api/models/load switches to it",
                     "model_not_found");
}

void answer(Services& services, Exchange& exchange, const std::string& request_id, AnswerRequest request, Wire wire,
            const MakeWriter& make_writer) {
    Answering(services, exchange, request_id, std::move(request), wire).run(make_writer);
}

}  // namespace strata::server
