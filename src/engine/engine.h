// Requests to answers: reads prompts in calls of many rows, writes in rounds in which every conversation that writes
// advances by a window of its known token and guesses, and remembers conversations. Knows tokens alone, no text.
//
// One thread drives it: submit, then step until there is nothing to do. Cancelling may come from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/conversation_store.h"
#include "engine/expert_store.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/window_policy.h"
#include "models/model.h"
#include "protocol/request.h"

namespace strata {

struct EngineLimits {
    int max_context = 32768;      // rows of a conversation
    int prompt_batch = 512;       // rows of a call while reading
    int parallel = 1;             // conversations that advance at once
    int window = 0;               // most rows of a window; 0: 4, and 8 where a repeat matched 8 tokens or more
    int checkpoint_every = 2048;  // rows between checkpoints of a read; 0: only at the ends of turns
    int checkpoints = 6;          // of a conversation; 0: nothing is reused
    uint64_t park_bytes = 0;
    int park_slots = 4;
    uint64_t park_min_free = 0;
    bool drafts = true;
    bool repeats = true;

    /// What the model's calls may need at most.
    RunnerLimits runner() const;
};

struct EngineRequest : GenerateRequest {
    std::vector<int> read_calls;  // sizes of the first calls of the prompt; the rest as usual
    bool every_logits = false;    // Answer::logits for every row that is evaluated
    bool probabilities = false;   // p of every token; also where top is above 0
    /// Limits the tokens behind `follow`. An answer whose constraint is complete ends there.
    std::shared_ptr<TokenConstraint> constraint;
};

struct AnswerToken {
    int32_t id = 0;
    int step = 0;
    bool guessed = false;    // it was evaluated as a guess
    std::optional<float> p;  // the model's own probability
    std::vector<TokenProbability> top;
};

struct AnswerSummary {
    enum class Finish { stop, length, cancel };
    Finish finish = Finish::length;
    std::optional<int32_t> stop_id;
    int generated = 0;
    int prompt_tokens = 0;
    int reused = 0;
    double prompt_ms = 0;  // from submit to the first round of writing
    double decode_ms = 0;
    int offered = 0;  // guesses
    int accepted = 0;
    int windows = 0;  // rounds of writing
    int read_calls = 0;
    int64_t expert_uses = 0;  // while writing
    int64_t expert_hits = 0;  // of them, those whose expert was in a card's memory
    ExpertCounters experts;   // of the cache, while the request ran; without one empty
    uint64_t seed = 0;
    std::optional<uint64_t> state_hash;
};

/// Receives what happens to a request, from the thread that drives the engine.
class Answer {
  public:
    virtual ~Answer() = default;
    virtual void progress(int /*rows*/, int /*total*/) {}
    virtual void reused(int /*rows*/) {}
    virtual void logits(int /*row*/, std::span<const float> /*logits*/) {}
    virtual void token(const AnswerToken& token) = 0;
    /// A round of writing is over: time to flush.
    virtual void round_ended() {}
    /// One of these two comes last.
    virtual void done(const AnswerSummary& summary) = 0;
    virtual void failed(const Error& error) = 0;
};

/// Set to end a request early; shared with whoever may want to.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;

class Engine {
  public:
    /// `end_ids`: tokens that end an answer whose request names none. `scratch_bytes`: ModelRunner::measure of
    /// limits.runner(). `experts`: of a device with slots, outlives the engine.
    static Result<std::unique_ptr<Engine>> make(Model& model, Device& device, const EngineLimits& limits,
                                                uint64_t scratch_bytes, std::vector<int32_t> end_ids,
                                                ExpertStore* experts = nullptr);

    const EngineLimits& limits() const { return limits_; }
    const ModelFacts& facts() const { return model_.facts(); }
    bool has_draft() const { return runner_->draft() != nullptr; }

    /// Takes a request in; `answer` outlives it. A request that cannot be served fails at once. `state_hash`: of the
    /// conversation at the end.
    void submit(EngineRequest request, Answer& answer, CancelFlag cancel = {}, bool state_hash = false);
    /// Requests that run or wait.
    int active() const { return static_cast<int>(running_.size() + waiting_.size()); }

    /// One call of the model, or the end of requests. False: nothing to do. An error is the device's: it failed all
    /// requests, and the engine is of no more use.
    Result<bool> step();
    /// Step until every request has ended.
    Result<void> run();

    /// The conversation that was used last, to a file and from one. Only while nothing is active.
    Result<int> save_conversation(const std::string& path, uint64_t model_id);
    Result<int> load_conversation(const std::string& path, uint64_t model_id);
    void forget_conversations() { store_->forget_all(); }

    /// Replaces the measuring policy of guesses, for checks.
    void set_policy(std::unique_ptr<GuessPolicy> policy) { policy_ = std::move(policy); }
    /// Lines for the log since the last call.
    std::vector<std::string> take_notes();

    /// Counts up with every layer that is done: whoever watches sees that something moves. Any thread.
    uint64_t heartbeat() const { return heartbeat_.load(std::memory_order_relaxed); }

    ~Engine();

  private:
    struct Running;

    Engine(Model& model, Device& device, const EngineLimits& limits, std::vector<int32_t> end_ids,
           ExpertStore* experts);
    /// The runner's next call of the model has experts for so many rows.
    void experts_begin(int rows, ExpertStore::Work work) {
        if (experts_) experts_->begin_call(rows, work);
    }
    Result<void> check(const EngineRequest& request) const;
    void admit();
    Result<void> open(Running& r);
    Result<void> read_step(Running& r);
    bool checkpoint_due(const Running& r, int64_t row) const;
    int next_read_rows(const Running& r) const;
    Result<void> write_round();
    Result<void> choose_guesses();
    void cut_forbidden(Running& r);
    Result<void> ask_draft();
    void sync_repeats(Running& r);
    int window_limit(const Running& r, int64_t match_length) const;
    void take_tokens(Running& r, int output);
    static bool wants_only_likeliest(const Running& r);
    bool take_token(Running& r, int output, bool guessed);
    void end_round(Running& r);
    void finish(Running& r, AnswerSummary::Finish how);
    void fail(Running& r, const Error& error);
    void fail_all(const Error& error);
    void sweep();
    bool keep_reading(Running& r, int layer, int rows);

    Model& model_;
    Device& device_;
    const EngineLimits limits_;
    const std::vector<int32_t> end_ids_;
    ExpertStore* const experts_;  // or null
    std::unique_ptr<ModelRunner> runner_;
    std::unique_ptr<ConversationStore> store_;
    std::unique_ptr<GuessPolicy> policy_;

    std::vector<std::unique_ptr<Running>> waiting_;  // oldest first
    std::vector<std::unique_ptr<Running>> running_;
    std::vector<std::unique_ptr<Sampler>> samplers_;  // free ones: each has vocabulary-sized tables
    size_t next_reader_ = 0;
    bool wrote_last_ = false;

    // Of the current round.
    std::vector<float> raw_logits_;  // [vocabulary]
    std::vector<Running*> readers_;
    std::vector<Running*> writers_;
    std::vector<Running*> askers_;  // of the draft block, most guesses first
    std::vector<Conversation*> asked_conversations_;
    std::vector<int32_t> asked_tokens_;
    std::vector<KeptRows> kept_;

    std::atomic<uint64_t> heartbeat_{0};
};

}  // namespace strata
