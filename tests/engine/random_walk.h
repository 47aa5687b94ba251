// The property test of the engine, for any model: a random sequence of requests (fresh, continued, cut back,
// regenerated, several at once, stopped midway, parked, saved and loaded, with guesses of any kind, in calls of any
// size) gives at every step the tokens and the state of a plain re-read.
#pragma once

#include <filesystem>
#include <unistd.h>

#include "harness.h"

namespace strata {

struct WalkOptions {
    uint32_t seed = 1;
    int steps = 1000;  // requests
    int max_context = 512;
    int longest_prompt = 240;
    int longest_answer = 24;
    int parallel = 3;
    int prompt_batch = 64;
    int checkpoint_every = 32;
    bool fresh_plain = true;                     // every comparison with a new engine; false: with one that starts over
    Bench* plain = nullptr;                      // of those engines; null: the walk's own
    std::function<void(std::mt19937&)> between;  // between two rounds of requests
};

/// The seed of a random test: its own, or POLYSTRATA_SEED to run another one (again).
inline uint32_t seed_or(uint32_t seed) {
    const char* given = std::getenv("POLYSTRATA_SEED");
    return given ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : seed;
}

class RandomWalk {
  public:
    RandomWalk(Bench& bench, const WalkOptions& options) : bench_(bench), o_(options), random_(options.seed) {
        file_ = std::filesystem::temp_directory_path() /
                ("strata_walk_" + std::to_string(getpid()) + "_" + std::to_string(options.seed));
        restart();
    }
    ~RandomWalk() { std::filesystem::remove(file_); }

    void run() {
        SCOPED_TRACE("seed " + std::to_string(o_.seed));
        for (int step = 0; step < o_.steps && !testing::Test::HasFailure();) step += round();
    }

    int64_t reused = 0, read = 0, accepted = 0, offered = 0, cancelled = 0, loaded = 0;

  private:
    uint32_t below(uint32_t n) { return random_() % n; }
    bool one_in(uint32_t n) { return below(n) == 0; }

    void restart() {
        EngineLimits limits;
        limits.max_context = o_.max_context;
        limits.prompt_batch = o_.prompt_batch;
        limits.parallel = 1 + static_cast<int>(below(static_cast<uint32_t>(o_.parallel)));
        limits.window = static_cast<int>(below(9));
        limits.checkpoint_every = one_in(4) ? 0 : o_.checkpoint_every;
        limits.checkpoints = 1 + static_cast<int>(below(6));
        limits.park_bytes = one_in(3) ? 0 : uint64_t{1} << 30;
        limits.park_slots = 1 + static_cast<int>(below(4));
        limits.drafts = !one_in(4);
        engine_ = bench_.engine(limits);
        engine_->set_policy(std::make_unique<RandomGuess>(random_()));
    }

    std::vector<int32_t> random_tokens(int count) {
        std::vector<int32_t> ids;
        const auto vocabulary = static_cast<uint32_t>(bench_.model().facts().vocabulary);
        const uint32_t kinds = one_in(2) ? vocabulary : std::min(vocabulary, 5u);  // few kinds: many repeats
        for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(below(kinds)));
        return ids;
    }

    /// A prompt that has something to do with earlier ones: mostly the last conversation goes on, or an earlier one,
    /// from its end or from somewhere inside.
    std::vector<int32_t> prompt() {
        std::vector<int32_t> ids;
        if (!known_.empty() && !one_in(6))
            ids = one_in(2) ? known_.back() : known_[below(static_cast<uint32_t>(known_.size()))];
        if (static_cast<int>(ids.size()) >= o_.longest_prompt) ids.clear();
        if (!ids.empty() && one_in(3)) ids.resize(1 + below(static_cast<uint32_t>(ids.size())));
        const bool again = !ids.empty() && one_in(5);  // the same prompt, or a part of it, as it is
        if (!again) {
            const auto more = random_tokens(1 + static_cast<int>(below(static_cast<uint32_t>(o_.longest_prompt / 4))));
            ids.insert(ids.end(), more.begin(), more.end());
        }
        if (static_cast<int>(ids.size()) > o_.longest_prompt) ids.resize(static_cast<size_t>(o_.longest_prompt));
        return ids;
    }

    EngineRequest request() {
        EngineRequest r;
        r.prompt = prompt();
        r.max_new = 1 + below(static_cast<uint32_t>(o_.longest_answer));
        Sampling& s = r.sampling;
        if (one_in(2)) {
            s.temperature = 0.2f + 0.1f * static_cast<float>(below(15));
            s.top_k = static_cast<int>(below(70));
            s.top_p = one_in(2) ? 1 : 0.3f + 0.1f * static_cast<float>(below(7));
            s.min_p = one_in(2) ? 0 : 0.1f;
            s.typical = one_in(4) ? 0.7f : 1;
            s.seed = 1 + below(1000);
        }
        if (one_in(3)) {
            s.penalty_last_n = 1 + static_cast<int>(below(80));
            s.penalty_repeat = one_in(2) ? 1 : 1.2f;
            s.penalty_freq = one_in(2) ? 0 : 0.3f;
            s.penalty_present = one_in(2) ? 0 : 0.4f;
        }
        if (one_in(6)) s.dry_multiplier = 0.5f;
        if (one_in(6)) s.bias = {{static_cast<int32_t>(below(10)), 2.0f}};
        if (one_in(6)) r.follow = random_tokens(static_cast<int>(below(12)));
        if (one_in(3)) repeat_itself(r);
        if (one_in(4)) r.stop_ids = random_tokens(2);
        if (one_in(4)) r.turn_at = below(static_cast<uint32_t>(r.prompt.size()));
        r.draft = !one_in(5);
        r.repeats = !one_in(5);
        r.cache = !one_in(6);
        if (one_in(3))
            for (auto left = static_cast<int>(r.prompt.size()); left > 0; left -= r.read_calls.back())
                r.read_calls.push_back(1 +
                                       static_cast<int>(below(static_cast<uint32_t>(std::min(left, o_.prompt_batch)))));
        return r;
    }

    /// The prompt ends in a pattern that the forced answer continues, now and then with a slip: windows of which a
    /// beginning is right.
    void repeat_itself(EngineRequest& r) {
        const auto pattern = random_tokens(2 + static_cast<int>(below(5)));
        const size_t period = pattern.size();
        for (size_t i = 0; i < 2 * period; ++i) r.prompt.push_back(pattern[i % period]);
        r.follow.clear();
        for (int i = static_cast<int>(below(static_cast<uint32_t>(o_.longest_answer))); i > 0; --i)
            r.follow.push_back(one_in(8) ? random_tokens(1)[0] : pattern[r.follow.size() % period]);
    }

    struct Asked {
        EngineRequest request;
        Recorder answer;
        CancelFlag cancel = std::make_shared<std::atomic<bool>>(false);
        bool stops = false;
        bool hash = false;  // asking for it settles the state: not always
    };

    /// Some requests at once, then their comparison.
    int round() {
        if (one_in(40)) restart();
        if (one_in(60)) save_and_load();
        if (o_.between) o_.between(random_);
        std::vector<std::unique_ptr<Asked>> all;
        const int count = 1 + static_cast<int>(below(static_cast<uint32_t>(engine_->limits().parallel + 1)));
        for (int i = 0; i < count; ++i) {
            auto& asked = *all.emplace_back(std::make_unique<Asked>());
            asked.request = request();
            asked.hash = one_in(2);
            stop_somewhere(asked);
            engine_->submit(asked.request, asked.answer, asked.cancel, asked.hash);
        }
        EXPECT_TRUE(engine_->run());
        bench_.model().on_layer = nullptr;
        for (auto& asked : all) compare(*asked);
        return count;
    }

    /// One request in five is cancelled: before it starts, at a token, or while it is read.
    void stop_somewhere(Asked& asked) {
        if (!one_in(5)) return;
        asked.stops = true;
        const uint32_t when = below(4);
        if (when == 0) asked.cancel->store(true);
        const int at = static_cast<int>(below(6));
        const CancelFlag flag = asked.cancel;
        if (when == 1)
            asked.answer.on_token = [flag, at](const AnswerToken& t) {
                if (t.step >= at) flag->store(true);
            };
        if (when >= 2) {
            auto layers = std::make_shared<int>(static_cast<int>(below(12)));
            bench_.model().on_layer = [flag, layers] {
                if ((*layers)-- == 0) flag->store(true);
            };
        }
    }

    void compare(Asked& asked) {
        const Recorder& got = asked.answer;
        ASSERT_TRUE(got.summary) << (got.error ? got.error->message : "no end");
        if (got.summary->finish == AnswerSummary::Finish::cancel) {
            EXPECT_TRUE(asked.stops);
            ++cancelled;
        }
        const Recorder want = plain_answer(asked.request);
        ASSERT_TRUE(want.summary);
        ASSERT_LE(got.tokens.size(), want.tokens.size());
        for (size_t i = 0; i < got.tokens.size(); ++i) ASSERT_EQ(got.tokens[i], want.tokens[i]) << "token " << i;
        reused += got.summary->reused;
        read += got.summary->prompt_tokens;
        accepted += got.summary->accepted;
        offered += got.summary->offered;
        std::vector<int32_t> whole = asked.request.prompt;
        whole.insert(whole.end(), got.tokens.begin(), got.tokens.end());
        known_.push_back(std::move(whole));
        if (known_.size() > 12) known_.erase(known_.begin());
        if (got.summary->finish == AnswerSummary::Finish::cancel) return;
        ASSERT_EQ(got.tokens.size(), want.tokens.size());
        EXPECT_EQ(got.summary->stop_id, want.summary->stop_id);
        if (asked.hash) {
            ASSERT_EQ(got.summary->state_hash, want.summary->state_hash);
        }
    }

    /// The answer of an engine that remembers nothing and guesses nothing, one after the other.
    Recorder plain_answer(EngineRequest request) {
        if (!plain_) plain_ = (o_.plain ? *o_.plain : bench_).engine(plain_limits(o_.max_context, o_.prompt_batch));
        Recorder answer;
        request.read_calls.clear();
        plain_->submit(std::move(request), answer, {}, true);
        EXPECT_TRUE(plain_->run());
        if (o_.fresh_plain) plain_.reset();
        return answer;
    }

    void save_and_load() {
        const auto saved = engine_->save_conversation(file_, 77);
        if (!saved) return;
        if (one_in(2)) restart();
        const auto back = engine_->load_conversation(file_, 77);
        // Another choice of draft block is another layout only where the model has one of its own parts; numbers are
        // the same.
        ASSERT_TRUE(back) << back.error().message;
        EXPECT_EQ(*back, *saved);
        ++loaded;
    }

    Bench& bench_;
    const WalkOptions o_;
    std::mt19937 random_;
    std::filesystem::path file_;
    std::unique_ptr<Engine> engine_, plain_;
    std::vector<std::vector<int32_t>> known_;  // prompts with their answers
};

}  // namespace strata
