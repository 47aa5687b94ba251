#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "engine/conversation_file.h"
#include "engine/random.h"
#include "engine/state_copy.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kProgressEvery = std::chrono::milliseconds(1000);
constexpr int kReadRowsBesideWriters = 128;  // of a call that conversations which write have to wait for
constexpr int kSharedStart = 512;            // rows in common with another conversation that are worth a checkpoint

double milliseconds_since(Clock::time_point then) {
    return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
}

uint64_t clock_seed() {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    return mix64(static_cast<uint64_t>(now)) | 1;
}

}  // namespace

RunnerLimits EngineLimits::runner() const {
    const int window_rows = parallel * kMaxWindow;
    return {.rows = std::max(prompt_batch, window_rows), .outputs = window_rows, .spans = parallel, .drafts = drafts};
}

/// A request on its way. Its tokens so far are `sequence`, of which the conversation's rows are a beginning; while
/// writing the last token is the only one that is not a row yet.
struct Engine::Running {
    EngineRequest request;
    Answer* answer;
    CancelFlag cancel;
    bool wants_hash;

    Conversation* conversation = nullptr;
    std::unique_ptr<Sampler> sampler;
    std::vector<int32_t> sequence;
    std::vector<RowKey> keys;  // of the sequence
    std::optional<PictureInput> pictures;
    AnswerSummary summary;
    ExpertCounters experts_before;
    int shared = 0;        // rows in common with a remembered conversation
    int read_from = 0;     // rows that were reused
    size_t next_call = 0;  // of request.read_calls
    bool writing = false;
    bool complete = false;  // by the constraint
    bool stuck = false;     // the constraint allows nothing
    bool ended = false;
    Clock::time_point submitted = Clock::now(), write_began, last_progress = Clock::now();

    // Of the current round: the guesses, their source, and the row of the call that holds the known token.
    std::array<int32_t, kMaxWindow> guesses;
    GuessChoice choice;
    int64_t match_length = 0;
    int32_t watched = 0;  // what the repeat would have guessed
    int first_row = 0;

    int prompt_size() const { return static_cast<int>(request.prompt.size()); }
    /// Whether the token of this step is chosen under the constraint, and which ones are allowed.
    bool constrained(size_t step) const { return request.constraint && step >= request.follow.size(); }
    AllowedTokens allowed(size_t step) const {
        return constrained(step) ? request.constraint->allowed() : AllowedTokens{};
    }
    bool cancelled() const { return cancel && cancel->load(std::memory_order_relaxed); }
};

Engine::Engine(Model& model, Device& device, const EngineLimits& limits, std::vector<int32_t> end_ids,
               ExpertStore* experts)
    : model_(model),
      device_(device),
      limits_(limits),
      end_ids_(std::move(end_ids)),
      experts_(experts),
      policy_(std::make_unique<MeasuredGuess>()) {
    const auto n = static_cast<size_t>(limits.parallel);
    raw_logits_.resize(static_cast<size_t>(model.facts().vocabulary));
    readers_.reserve(n);
    writers_.reserve(n);
    askers_.reserve(n);
    asked_conversations_.reserve(n);
    asked_tokens_.reserve(n);
    kept_.reserve(n);
}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::make(Model& model, Device& device, const EngineLimits& limits,
                                             uint64_t scratch_bytes, std::vector<int32_t> end_ids,
                                             ExpertStore* experts) {
    std::unique_ptr<Engine> engine(new Engine(model, device, limits, std::move(end_ids), experts));
    STRATA_TRY_ASSIGN(engine->runner_, ModelRunner::make(model, device, limits.runner(), scratch_bytes));
    const StoreLimits store{.slots = limits.parallel,
                            .max_rows = limits.max_context,
                            .checkpoints = limits.checkpoints,
                            .park_bytes = limits.park_bytes,
                            .park_slots = limits.park_slots,
                            .park_min_free = limits.park_min_free};
    engine->store_ = std::make_unique<ConversationStore>(device, model, *engine->runner_, store);
    return Result<std::unique_ptr<Engine>>(std::move(engine));
}

// ---- requests
// ---------------------------------------------------------------------------------------------------------------

Result<void> Engine::check(const EngineRequest& request) const {
    if (request.prompt.empty()) return usage_error("bad request: the prompt has no tokens");
    if (request.max_new < 0) return usage_error("bad request: max_new is negative");
    if (!request.rows_file.empty() && facts().pictures == ModelFacts::Pictures::none)
        return usage_error("this model reads no pictures");
    if (!request.rows_file.empty() && !request.image_pad) return usage_error("bad request: pictures need image_pad");
    for (const auto* ids : {&request.prompt, &request.follow})
        for (const int32_t id : *ids)
            if (id < 0 || id >= facts().vocabulary)
                return usage_error("a token id is outside the vocabulary (" + std::to_string(id) + "; ids are 0 to " +
                                   std::to_string(facts().vocabulary - 1) + ")");
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    if (prompt + kMaxWindow > limits_.max_context || request.max_new > limits_.max_context - prompt - kMaxWindow)
        return usage_error("prompt (" + std::to_string(prompt) + " tokens) + max_new (" +
                           std::to_string(request.max_new) + ") exceeds the context (" +
                           std::to_string(limits_.max_context) + ")");
    return {};
}

void Engine::submit(EngineRequest request, Answer& answer, CancelFlag cancel, bool state_hash) {
    if (auto fit = check(request); !fit) return answer.failed(fit.error());
    auto r = std::make_unique<Running>();
    r->request = std::move(request);
    r->answer = &answer;
    r->cancel = std::move(cancel);
    r->wants_hash = state_hash;
    if (!r->request.rows_file.empty()) {
        auto pictures = place_pictures(r->request.rows_file, r->request.prompt, *r->request.image_pad, facts());
        if (!pictures) return answer.failed(pictures.error());
        for (const PictureInput::Place& place : pictures->places)
            if (facts().pictures_whole && place.rows > runner_->limits().rows)
                return answer.failed(usage_error("an image of " + std::to_string(place.rows) +
                                                 " rows does not fit a call of " +
                                                 std::to_string(runner_->limits().rows) + " rows (--prompt-batch)"));
        r->pictures = std::move(*pictures);
    }
    waiting_.push_back(std::move(r));
}

void Engine::admit() {
    if (experts_ && running_.empty() && !waiting_.empty()) experts_->between_requests();
    while (!waiting_.empty() && running_.size() < static_cast<size_t>(limits_.parallel)) {
        running_.push_back(std::move(waiting_.front()));
        waiting_.erase(waiting_.begin());
        Running& r = *running_.back();
        if (auto opened = open(r); !opened) fail(r, opened.error());
    }
}

Result<void> Engine::open(Running& r) {
    const GenerateRequest& request = r.request;
    if (experts_) r.experts_before = experts_->counters();
    r.sequence = request.prompt;
    r.sequence.reserve(request.prompt.size() + static_cast<size_t>(request.max_new));
    if (r.pictures)
        r.keys = r.pictures->keys;
    else
        r.keys.assign(request.prompt.begin(), request.prompt.end());
    r.keys.reserve(r.sequence.capacity());
    r.summary.prompt_tokens = r.prompt_size();
    r.summary.seed = request.sampling.seed;
    if (r.summary.seed == 0 && request.sampling.temperature > 0) r.summary.seed = clock_seed();
    if (r.cancelled()) {
        finish(r, AnswerSummary::Finish::cancel);
        return {};
    }
    STRATA_TRY_ASSIGN(const ConversationStore::Opened opened,
                      store_->open(r.keys, static_cast<int>(r.sequence.size()) + kMaxWindow, request.cache));
    r.conversation = opened.conversation;
    r.shared = opened.shared;
    r.read_from = r.summary.reused = opened.reused;

    if (samplers_.empty()) samplers_.push_back(std::make_unique<Sampler>(facts().vocabulary));
    r.sampler = std::move(samplers_.back());
    samplers_.pop_back();
    r.sampler->begin(request.sampling, r.summary.seed, static_cast<int64_t>(r.sequence.capacity()) + kMaxWindow);
    for (const int32_t id : r.sequence) r.sampler->accept(id);
    return {};
}

void Engine::finish(Running& r, AnswerSummary::Finish how) {
    r.ended = true;
    r.summary.finish = how;
    if (!r.writing)
        r.summary.prompt_ms = milliseconds_since(r.submitted);
    else
        r.summary.decode_ms = milliseconds_since(r.write_began);
    if (r.conversation && r.wants_hash && runner_->settle(*r.conversation).ok())
        r.summary.state_hash = hash_state(device_, r.conversation->state());
    if (experts_ && !r.experts_before.layers.empty())  // not where it never began
        r.summary.experts = experts_->counters().since(r.experts_before);
    r.answer->done(r.summary);
    if (experts_) experts_->answer_ended();
}

void Engine::fail(Running& r, const Error& error) {
    r.ended = true;
    r.answer->failed(error);
}

void Engine::fail_all(const Error& error) {
    for (auto& r : running_)
        if (!r->ended) fail(*r, error);
    for (auto& r : waiting_) fail(*r, error);
    waiting_.clear();
}

/// Takes out what has ended.
void Engine::sweep() {
    for (auto& r : running_) {
        if (!r->ended) continue;
        if (r->conversation) store_->close(*r->conversation);
        if (r->sampler) samplers_.push_back(std::move(r->sampler));
    }
    for (auto* list : {&running_, &waiting_}) std::erase_if(*list, [](const auto& r) { return r->ended; });
}

Result<void> Engine::run() {
    while (true) {
        STRATA_TRY_ASSIGN(const bool more, step());
        if (!more) return {};
    }
}

Result<bool> Engine::step() {
    admit();
    for (auto* list : {&running_, &waiting_})
        for (auto& r : *list)
            if (!r->ended && r->cancelled()) finish(*r, AnswerSummary::Finish::cancel);
    sweep();
    if (running_.empty()) return !waiting_.empty();

    writers_.clear();
    readers_.clear();
    for (auto& r : running_) (r->writing ? writers_ : readers_).push_back(r.get());
    // Reading and writing take turns, and so do those who read.
    Result<void> result;
    if (!readers_.empty() && (writers_.empty() || wrote_last_)) {
        wrote_last_ = false;
        result = read_step(*readers_[next_reader_++ % readers_.size()]);
    } else {
        wrote_last_ = true;
        result = write_round();
    }
    if (!result) fail_all(result.error());
    sweep();
    if (!result) return std::move(result).error();
    return true;
}

// ---- reading
// ----------------------------------------------------------------------------------------------------------------

/// Whether a checkpoint is wanted at a row of the prompt: before its last row, where its last turn or what it shares
/// with another begins to differ, and at multiples of checkpoint_every, of which only those are saved that will be
/// kept: the first and the last.
bool Engine::checkpoint_due(const Running& r, int64_t row) const {
    const int64_t before_last = r.prompt_size() - 1;
    if (row == before_last || row == r.request.turn_at || (row == r.shared && row >= kSharedStart)) return true;
    const int64_t every = limits_.checkpoint_every;
    if (every == 0 || row % every != 0) return false;
    const int64_t kept = std::max(1, limits_.checkpoints - (r.request.turn_at ? 3 : 2));
    return row == every || row > (before_last - 1) / every * every - kept * every;
}

/// Rows of the next call: to the next place where a checkpoint is wanted. All but the prompt's last row are read; the
/// last one begins the writing. So the same prompt can be answered again from the checkpoint before it.
int Engine::next_read_rows(const Running& r) const {
    const int at = r.conversation->rows(), size = r.prompt_size();
    int end = size - 1;
    if (r.next_call < r.request.read_calls.size()) {
        end = std::min({size, at + r.request.read_calls[r.next_call], at + runner_->limits().rows});
    } else {
        end = std::min(end, at + (writers_.empty() ? limits_.prompt_batch
                                                   : std::min(limits_.prompt_batch, kReadRowsBesideWriters)));
        const auto stop_at = [&](int64_t row) {
            if (row > at && row < end) end = static_cast<int>(row);
        };
        if (const int64_t every = limits_.checkpoint_every; every > 0)
            for (int64_t row = (at / every + 1) * every; row < end; row += every)
                if (checkpoint_due(r, row)) stop_at(row);
        if (r.request.turn_at) stop_at(*r.request.turn_at);
        if (r.shared >= kSharedStart) stop_at(r.shared);
    }
    if (r.pictures && facts().pictures_whole) end = r.pictures->end_outside_pictures(at, end);
    return end - at;
}

bool Engine::keep_reading(Running& r, int layer, int rows) {
    heartbeat_.fetch_add(1, std::memory_order_relaxed);
    if (Clock::now() - r.last_progress >= kProgressEvery) {
        const int part = static_cast<int>(static_cast<int64_t>(rows) * layer / facts().layers);
        r.answer->progress(r.conversation->rows() + part, r.prompt_size());
        r.last_progress = Clock::now();
    }
    return !r.cancelled();
}

Result<void> Engine::read_step(Running& r) {
    Conversation& c = *r.conversation;
    const int rows = next_read_rows(r);
    if (rows > 0) {
        const int first = c.rows();
        if (auto room = store_->reserve(c, first + rows + kMaxWindow); !room) {
            fail(r, room.error());
            return {};
        }
        const bool to_the_end = first + rows == r.prompt_size();
        runner_->begin();
        const auto tokens = std::span(r.sequence).subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
        if (r.pictures)
            runner_->add(c, tokens, *r.pictures);
        else
            runner_->add(c, tokens, false);
        if (to_the_end) runner_->want(rows - 1);
        runner_->rank_only(wants_only_likeliest(r));
        ModelRunner::EveryRow every_row;
        if (r.request.every_logits)
            every_row = [&](int row, std::span<const float> logits) { r.answer->logits(first + row, logits); };
        experts_begin(rows, ExpertStore::Work::read);
        const auto ran = runner_->run([&](int layer) { return keep_reading(r, layer, rows); }, every_row);
        if (!ran) return ran.error();
        if (!*ran) {
            store_->fall_back(c);
            finish(r, AnswerSummary::Finish::cancel);
            return {};
        }
        std::optional<int> next_position;
        if (r.pictures) next_position = r.pictures->next_positions[static_cast<size_t>(first + rows - 1)];
        c.keep(std::span(r.keys).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)), false, next_position);
        const KeptRows kept{&c, 0, rows};
        runner_->advance_drafts({&kept, 1});
        ++r.summary.read_calls;
        if (r.next_call < r.request.read_calls.size()) ++r.next_call;
        r.answer->progress(c.rows(), r.prompt_size());
        r.last_progress = Clock::now();
        if (checkpoint_due(r, c.rows())) store_->checkpoint(c);
    }
    if (c.rows() < r.prompt_size() - 1) return {};
    if (r.next_call < r.request.read_calls.size() && c.rows() < r.prompt_size()) return {};
    r.writing = true;
    device_.wait();  // what the last call still does is part of reading
    r.summary.prompt_ms = milliseconds_since(r.submitted);
    r.write_began = Clock::now();
    r.answer->reused(r.read_from);
    policy_->answer_begins(writers_.empty());
    if (r.constrained(0) && r.request.constraint->complete()) {  // the grammar of an empty answer
        r.complete = true;
        end_round(r);
        return {};
    }
    if (c.rows() == r.prompt_size()) {  // the last row was read too: its logits are there
        if (r.request.max_new > 0) take_token(r, 0, false);
        end_round(r);
    }
    return {};
}

// ---- writing
// ----------------------------------------------------------------------------------------------------------------

void Engine::sync_repeats(Running& r) {
    SuffixIndex& index = r.conversation->repeats();
    for (auto i = static_cast<size_t>(index.size()); i < r.sequence.size(); ++i) index.append(r.sequence[i]);
}

int Engine::window_limit(const Running& r, int64_t match_length) const {
    const int most = limits_.window > 0 ? limits_.window : match_length >= 8 ? kMaxWindow : 4;
    // No guess is worth more than what is left to write.
    const int64_t left = r.request.max_new - r.summary.generated;
    return static_cast<int>(std::clamp<int64_t>(left, 1, std::min(most, kMaxWindow)));
}

Result<void> Engine::choose_guesses() {
    const int others = static_cast<int>(writers_.size()) - 1;
    askers_.clear();
    for (Running* r : writers_) {
        r->choice = {};
        GuessOffer offer;
        if (limits_.repeats && r->request.repeats) {
            sync_repeats(*r);
            offer.match_length = r->conversation->repeats().longest_match().length;
            if (offer.match_length > 0) offer.repeat_guesses = window_limit(*r, offer.match_length) - 1;
        }
        if (r->request.draft && runner_->draft() && r->conversation->drafts())
            offer.draft_guesses = window_limit(*r, 0) - 1;
        r->match_length = offer.match_length;
        if (offer.repeat_guesses > 0 || offer.draft_guesses > 0) r->choice = policy_->choose(offer, others);
        if (r->choice.source == GuessSource::repeats) {
            r->conversation->repeats().guess(std::span(r->guesses).first(static_cast<size_t>(r->choice.guesses)));
            cut_forbidden(*r);
        } else if (offer.match_length > 0)
            r->conversation->repeats().guess(std::span(&r->watched, 1));
        if (r->choice.source == GuessSource::draft) askers_.push_back(r);
    }
    return askers_.empty() ? Result<void>{} : ask_draft();
}

/// Guesses from the first one on that the constraint forbids cannot be right.
void Engine::cut_forbidden(Running& r) {
    if (!r.request.constraint) return;
    TokenConstraint& constraint = *r.request.constraint;
    constraint.look_ahead();
    int allowed = 0;
    while (allowed < r.choice.guesses) {
        const auto step = static_cast<size_t>(r.summary.generated + allowed);
        if (r.constrained(step) && !constraint.accept(r.guesses[static_cast<size_t>(allowed)])) break;
        ++allowed;
    }
    constraint.come_back();
    r.choice.guesses = allowed;
    if (allowed == 0) r.choice = {};
}

/// Chains of guesses, all conversations' at one depth in one call. A guess is drawn as the token itself will be: with
/// the same penalties, constraint and noise.
Result<void> Engine::ask_draft() {
    std::stable_sort(askers_.begin(), askers_.end(),
                     [](Running* a, Running* b) { return a->choice.guesses > b->choice.guesses; });
    for (Running* r : askers_)
        if (r->request.constraint) r->request.constraint->look_ahead();
    for (int depth = 0; !askers_.empty() && depth < askers_[0]->choice.guesses; ++depth) {
        asked_conversations_.clear();
        asked_tokens_.clear();
        for (Running* r : askers_) {
            if (r->choice.guesses <= depth) break;
            asked_conversations_.push_back(r->conversation);
            asked_tokens_.push_back(depth == 0 ? r->sequence.back() : r->guesses[static_cast<size_t>(depth - 1)]);
        }
        runner_->rank_only(std::all_of(askers_.begin(), askers_.end(), [](Running* r) {
            return r->sampler->greedy_and_plain() && !r->request.constraint;
        }));
        experts_begin(static_cast<int>(asked_tokens_.size()), ExpertStore::Work::draft);
        STRATA_TRY(runner_->guess(asked_conversations_, asked_tokens_, depth));
        heartbeat_.fetch_add(1, std::memory_order_relaxed);
        for (size_t i = 0; i < asked_conversations_.size(); ++i) {
            Running& r = *askers_[i];
            const auto step = static_cast<uint64_t>(r.summary.generated + depth);
            const Likeliest* likeliest = runner_->likeliest(static_cast<int>(i));
            const int32_t guess = likeliest
                                      ? likeliest->token
                                      : r.sampler->sample(runner_->logits(static_cast<int>(i)), step, r.allowed(step));
            r.guesses[static_cast<size_t>(depth)] = guess;
            r.sampler->accept(guess);
            if (r.constrained(step)) r.request.constraint->accept(guess);
        }
    }
    for (Running* r : askers_) {
        for (int i = 0; i < r->choice.guesses; ++i) r->sampler->retract();
        if (r->request.constraint) r->request.constraint->come_back();
    }
    return {};
}

Result<void> Engine::write_round() {
    const auto began = Clock::now();
    for (Running* r : writers_) {
        if (auto room = store_->reserve(*r->conversation, r->conversation->rows() + kMaxWindow); !room)
            fail(*r, room.error());
    }
    std::erase_if(writers_, [](Running* r) { return r->ended; });
    if (writers_.empty()) return {};
    STRATA_TRY(choose_guesses());
    const double ask_ms = askers_.empty() ? 0 : milliseconds_since(began);
    const int asked = askers_.empty() ? 0 : askers_[0]->choice.guesses;

    runner_->begin();
    std::array<int32_t, kMaxWindow> window;
    for (Running* r : writers_) {
        window[0] = r->sequence.back();
        std::copy_n(r->guesses.begin(), r->choice.guesses, window.begin() + 1);
        const auto rows = static_cast<size_t>(r->choice.guesses + 1);
        r->first_row = runner_->add(*r->conversation, std::span(window).first(rows), facts().recurrent && rows > 1);
        for (size_t i = 0; i < rows; ++i) runner_->want(r->first_row + static_cast<int>(i));
    }
    const int rows = runner_->rows();
    runner_->rank_only(
        std::all_of(writers_.begin(), writers_.end(), [](Running* r) { return wants_only_likeliest(*r); }));
    experts_begin(rows, ExpertStore::Work::write);
    const auto ran = runner_->run([&](int) {
        heartbeat_.fetch_add(1, std::memory_order_relaxed);
        return true;
    });
    if (!ran) return ran.error();

    kept_.clear();
    int tokens = 0;
    for (Running* r : writers_) {
        const int before = r->summary.generated;
        take_tokens(*r, r->first_row);
        tokens += r->summary.generated - before;
    }
    runner_->advance_drafts(kept_);
    policy_->round_took(rows, static_cast<int>(writers_.size()), tokens, milliseconds_since(began), asked, ask_ms);
    for (Running* r : writers_) end_round(*r);
    return {};
}

/// Ends the answer where its last token was the last one.
void Engine::end_round(Running& r) {
    if (r.stuck)
        fail(r, failure("the grammar goes on with bytes that no token of this model has"));
    else if (r.summary.stop_id || r.complete)
        finish(r, AnswerSummary::Finish::stop);
    else if (r.summary.generated >= r.request.max_new)
        finish(r, AnswerSummary::Finish::length);
    else
        r.answer->round_ended();
}

/// The tokens of a window: of the known token's row, then of every guess that was right.
void Engine::take_tokens(Running& r, int output) {
    const int guesses = r.choice.guesses;
    int right = 0, kept = 0;
    const int first = r.conversation->rows();
    bool more = true;
    for (int i = 0; i <= guesses && more; ++i) {
        if (r.request.every_logits) r.answer->logits(first + i, runner_->logits(output + i));
        ++kept;
        more = r.request.max_new > 0 && take_token(r, output + i, i > 0);
        const bool was_right =
            i < guesses && r.request.max_new > 0 && r.sequence.back() == r.guesses[static_cast<size_t>(i)];
        right += was_right ? 1 : 0;
        more = more && was_right;
    }
    const int64_t uses_a_row =
        static_cast<int64_t>(facts().expert_layers - facts().draft_expert_layers) * facts().experts_used;
    r.summary.expert_uses += uses_a_row * kept;
    if (experts_)
        for (int i = 0; i < kept; ++i) r.summary.expert_hits += experts_->row_hits(r.first_row + i);
    else if (device_.facts().memory_total > 0)  // all of them are in the card's memory
        r.summary.expert_hits = r.summary.expert_uses;
    ++r.summary.windows;
    r.summary.offered += guesses;
    r.summary.accepted += right;
    if (guesses > 0) policy_->checked(r.choice, r.match_length, right);
    if (r.choice.source != GuessSource::repeats && r.match_length > 0 && r.request.max_new > 0)
        policy_->observed(r.match_length, r.watched == r.sequence[static_cast<size_t>(first) + 1]);

    r.conversation->keep(std::span(r.keys).subspan(static_cast<size_t>(first), static_cast<size_t>(kept)),
                         facts().recurrent && guesses > 0);
    kept_.push_back({r.conversation, r.first_row, kept});
}

/// No more of a row of logits than its largest and that one's probability.
bool Engine::wants_only_likeliest(const Running& r) {
    const GenerateRequest& request = r.request;
    return r.sampler->greedy_and_plain() && !r.request.constraint && request.top == 0 && !r.request.every_logits &&
           static_cast<size_t>(r.summary.generated) >= request.follow.size();
}

/// The next token from an output of the call. False: the answer ends with it.
bool Engine::take_token(Running& r, int output, bool guessed) {
    const GenerateRequest& request = r.request;
    AnswerToken token;
    token.step = r.summary.generated;
    token.guessed = guessed;
    const auto step = static_cast<size_t>(token.step);
    const bool wants_p = r.request.probabilities || request.top > 0;
    if (const Likeliest* likeliest = runner_->likeliest(output)) {
        token.id = likeliest->token;
        if (wants_p) token.p = likeliest->p;
    } else {
        const std::span<float> logits = runner_->logits(output);
        // Drawing changes the logits, unless it is the plain largest: the model's own probabilities want a copy.
        const bool changes = step >= request.follow.size() && (!r.sampler->greedy_and_plain() || r.constrained(step));
        if (wants_p && changes) std::copy(logits.begin(), logits.end(), raw_logits_.begin());
        if (step < request.follow.size())
            token.id = request.follow[step];
        else
            token.id = r.sampler->sample(logits, step, r.allowed(step));
        if (wants_p) {
            token.top.resize(static_cast<size_t>(request.top));
            token.p = probabilities(changes ? std::span<const float>(raw_logits_) : logits, token.id, token.top);
        }
    }
    r.sampler->accept(token.id);
    if (r.constrained(step)) r.stuck = !r.request.constraint->accept(token.id);
    if (r.constrained(step + 1)) r.complete = r.request.constraint->complete();
    r.sequence.push_back(token.id);
    r.keys.push_back(token.id);
    ++r.summary.generated;
    if (r.stuck) return false;
    r.answer->token(token);
    const std::vector<int32_t>& stops = request.stop_ids ? *request.stop_ids : end_ids_;
    if (std::find(stops.begin(), stops.end(), token.id) != stops.end()) r.summary.stop_id = token.id;
    return !r.summary.stop_id && !r.complete && r.summary.generated < request.max_new;
}

std::vector<std::string> Engine::take_notes() {
    std::vector<std::string> notes = store_->take_notes();
    if (experts_)
        for (std::string& note : experts_->take_notes()) notes.push_back(std::move(note));
    return notes;
}

// ---- files
// ------------------------------------------------------------------------------------------------------------------

Result<int> Engine::save_conversation(const std::string& path, uint64_t model_id) {
    if (active() > 0) return usage_error("a conversation can be saved between requests only");
    Conversation* last = store_->last_used();
    if (!last) return failure("there is no conversation to save");
    const auto packed = last->pack();
    if (!packed) return failure("not enough memory to save the conversation");
    STRATA_TRY(write_conversation(path, *packed, model_.layout(), model_id));
    return packed->rows();
}

Result<int> Engine::load_conversation(const std::string& path, uint64_t model_id) {
    if (active() > 0) return usage_error("a conversation can be loaded between requests only");
    STRATA_TRY_ASSIGN(const auto packed,
                      read_conversation(path, model_.layout(), facts(), limits_.max_context, model_id));
    STRATA_TRY(store_->adopt(*packed));
    return packed->rows();
}

}  // namespace strata
