#include "engine/engine.h"

#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "engine/conversation_file.h"
#include "random_walk.h"
#include "toy_bench.h"

namespace strata {
namespace {

/// A shape whose calls may have 512 rows.
ToyShape long_shape() {
    return {.ring_capacity = 600, .context = 16384};
}

EngineLimits long_limits() {
    EngineLimits limits;
    limits.max_context = 16384;
    return limits;
}

std::vector<int32_t> text(int count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random() % 40));
    return ids;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

int reused(const Recorder& recorder) {
    return recorder.summary ? recorder.summary->reused : -1;
}

/// A path of its own that is gone afterwards.
struct TempPath {
    TempPath()
        : path(std::filesystem::temp_directory_path() /
               ("strata_engine_" + std::to_string(getpid()) + "_" +
                testing::UnitTest::GetInstance()->current_test_info()->name())) {}
    ~TempPath() { std::filesystem::remove(path); }
    std::string path;
};

// ---- the property
// -----------------------------------------------------------------------------------------------------------

TEST(Engine, RandomRequestsGiveWhatAPlainReadingGives) {
    for (const bool recurrent : {true, false}) {
        ToyBench bench({.recurrent = recurrent, .ring = true, .draft = true});
        {
            RandomWalk walk(bench, {.seed = seed_or(recurrent ? 11u : 12u), .steps = 4000});
            walk.run();
            // The walk must have gone through what it is there for.
            EXPECT_GT(walk.reused, walk.read / 20);
            EXPECT_GT(walk.accepted, 1000);
            EXPECT_GT(walk.offered, walk.accepted);
            EXPECT_GT(walk.cancelled, 100);
            EXPECT_GT(walk.loaded, 10);
        }
        EXPECT_EQ(bench.host.allocations, 0) << "memory of the device was not given back";
    }
}

// ---- conversations
// ----------------------------------------------------------------------------------------------------------

TEST(Conversations, AContinuedPromptReadsOnlyWhatIsNew) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    const auto prompt = text(100, 1);
    const Recorder first = answer(*engine, asking(prompt, 10));
    EXPECT_EQ(reused(first), 0);
    // All of the answer but its last token, which was never evaluated.
    const auto whole = joined(prompt, first.tokens);
    EXPECT_EQ(reused(answer(*engine, asking(joined(whole, text(20, 2))))), 109);
}

TEST(Conversations, TheSamePromptAgainReadsOneRow) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    const auto prompt = text(500, 1);
    const Recorder first = answer(*engine, asking(prompt, 8));
    const Recorder again = answer(*engine, asking(prompt, 8));
    EXPECT_EQ(reused(again), 499);
    EXPECT_EQ(again.tokens, first.tokens);
    EXPECT_EQ(again.summary->state_hash, first.summary->state_hash);
    const Recorder shorter = answer(*engine, asking({prompt.begin(), prompt.end() - 1}, 8));
    EXPECT_LE(reused(shorter), 498);
    EXPECT_EQ(answer(*engine, asking(prompt, 8)).tokens, first.tokens);
}

TEST(Conversations, ACutOneIsReadFromTheCheckpointBelow) {
    ToyBench bench(long_shape());
    const auto prompt = text(7500, 1);
    for (const auto& [cut, checkpoint] : {std::pair{7000, 6144}, {5000, 4096}, {3000, 2048}, {2000, 0}}) {
        auto engine = bench.engine(long_limits());
        answer(*engine, asking(prompt, 1), false);
        const std::vector<int32_t> other = joined({prompt.begin(), prompt.begin() + cut}, {1, 2, 3});
        EXPECT_EQ(reused(answer(*engine, asking(other, 1), false)), checkpoint);
    }
}

TEST(Conversations, TheFirstCheckpointStaysAndOldOnesLeave) {
    ToyBench bench(long_shape());
    EngineLimits limits = long_limits();
    limits.checkpoints = 3;
    auto engine = bench.engine(limits);
    const auto prompt = text(9000, 1);
    answer(*engine, asking(prompt, 1), false);  // 2048, 8192 and 8999 are left
    const auto cut = [&](int rows) { return joined({prompt.begin(), prompt.begin() + rows}, {1, 2, 3}); };
    EXPECT_EQ(reused(answer(*engine, asking(cut(8500), 1), false)), 8192);
    EXPECT_EQ(reused(answer(*engine, asking(cut(8000), 1), false)), 2048);
}

TEST(Conversations, OnlyCheckpointsThatWillBeKeptAreSaved) {
    ToyBench bench(long_shape());
    EngineLimits limits = long_limits();
    limits.checkpoint_every = 256;
    limits.checkpoints = 4;
    limits.prompt_batch = 512;
    auto engine = bench.engine(limits);
    // 256, then 7680 and 7936, then 7999; between 256 and 7680 calls are whole.
    const Recorder got = answer(*engine, asking(text(8000, 1), 1), false);
    EXPECT_EQ(got.summary->read_calls, 1 + 15 + 1 + 1);
}

TEST(Conversations, TheTurnsBeginIsACheckpoint) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    const auto history = text(300, 1);
    EngineRequest request = asking(joined(history, text(50, 2)));
    request.turn_at = 300;
    answer(*engine, request);
    EXPECT_EQ(reused(answer(*engine, asking(joined(history, text(50, 3))))), 300);
}

TEST(Conversations, AStartThatTwoPromptsShareBecomesACheckpoint) {
    ToyBench bench(long_shape());
    auto engine = bench.engine(long_limits());
    const auto system = text(1500, 1);
    answer(*engine, asking(joined(system, text(100, 2)), 1), false);
    EXPECT_EQ(reused(answer(*engine, asking(joined(system, text(100, 3)), 1), false)), 0);
    EXPECT_EQ(reused(answer(*engine, asking(joined(system, text(100, 4)), 1), false)), 1500);
}

TEST(Conversations, WithoutRecurrentPartsAnyRowIsAPlaceToGoOn) {
    ToyBench bench({.recurrent = false, .ring = false});
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    const auto prompt = text(400, 1);
    answer(*engine, asking(prompt, 10));
    EXPECT_EQ(reused(answer(*engine, asking(joined({prompt.begin(), prompt.begin() + 333}, {1, 2})))), 333);
}

TEST(Conversations, ARingAllowsToGoBackAsFarAsItReaches) {
    // A ring of 80 rows and a window of 7: rows 320 to 399 are there, so row 326 is the first whose window is whole.
    ToyBench bench({.recurrent = false});
    const auto prompt = text(400, 1);
    for (const auto& [cut, want] : {std::pair{399, 399}, {330, 330}, {326, 326}, {325, 0}}) {
        auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64, .window = 1, .drafts = false});
        answer(*engine, asking(prompt, 1));
        EXPECT_EQ(reused(answer(*engine, asking(joined({prompt.begin(), prompt.begin() + cut}, {1, 2, 3})))), want)
            << cut;
    }
}

TEST(Conversations, CacheOffReadsEverythingAndSoDoesNoCheckpoint) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    EngineRequest request = asking(text(100, 1));
    answer(*engine, request);
    request.cache = false;
    EXPECT_EQ(reused(answer(*engine, request)), 0);
    auto forgetful = bench.engine({.max_context = 1024, .prompt_batch = 64, .checkpoints = 0});
    request.cache = true;
    answer(*forgetful, request);
    EXPECT_EQ(reused(answer(*forgetful, request)), 0);
}

TEST(Conversations, AlternatingOnesAreParkedAndComeBack) {
    ToyBench bench(long_shape());
    EngineLimits limits = long_limits();
    limits.park_bytes = uint64_t{1} << 30;
    auto engine = bench.engine(limits);
    auto plain = bench.engine(long_limits());
    auto a = text(3000, 1), b = text(3000, 2);
    for (int turn = 0; turn < 3; ++turn)
        for (auto* chat : {&a, &b}) {
            const Recorder got = answer(*engine, asking(*chat, 5));
            EngineRequest fresh = asking(*chat, 5);
            fresh.cache = false;
            const Recorder want = answer(*plain, fresh);
            EXPECT_EQ(got.tokens, want.tokens);
            EXPECT_EQ(got.summary->state_hash, want.summary->state_hash);
            if (turn > 0) {
                EXPECT_GT(reused(got), static_cast<int>(chat->size()) - 10 - 7);
            }
            *chat = joined(joined(*chat, got.tokens), text(5, static_cast<uint32_t>(turn)));
        }
}

TEST(Conversations, WithoutParkingTheOtherOneIsForgotten) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    answer(*engine, asking(text(400, 1)));
    answer(*engine, asking(text(400, 2)));
    EXPECT_EQ(reused(answer(*engine, asking(text(400, 1)))), 0);
}

TEST(Conversations, OneThatDoesNotFitIsNotParkedAndTheRequestGoesOn) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64, .park_bytes = 4096});
    answer(*engine, asking(text(400, 1)));
    EXPECT_TRUE(answer(*engine, asking(text(400, 2))).summary);
    const auto notes = engine->take_notes();
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("not parked"), std::string::npos);
}

TEST(Conversations, TheOneParkedLongestAgoLeavesFirst) {
    ToyBench bench;
    auto engine =
        bench.engine({.max_context = 1024, .prompt_batch = 64, .park_bytes = uint64_t{1} << 30, .park_slots = 2});
    for (uint32_t chat = 1; chat <= 4; ++chat) answer(*engine, asking(text(400, chat)));  // 4 lives; 2 and 3 are parked
    EXPECT_EQ(reused(answer(*engine, asking(text(400, 2)))), 399);
    EXPECT_EQ(reused(answer(*engine, asking(text(400, 1)))), 0);
}

TEST(Conversations, MemoryThatRunsOutFailsTheRequestAlone) {
    ToyBench bench(long_shape());
    auto engine = bench.engine(long_limits());
    answer(*engine, asking(text(100, 1)));
    bench.host.allocations_left = 0;
    const Recorder refused = answer(*engine, asking(text(5000, 2)));
    ASSERT_TRUE(refused.error);
    EXPECT_EQ(refused.error->kind, ErrorKind::device);
    bench.host.allocations_left = -1;
    EXPECT_TRUE(answer(*engine, asking(text(5000, 2))).summary);
}

TEST(Conversations, ADeviceThatFailsEndsEveryRequest) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64, .parallel = 2});
    Recorder a, b, c;
    for (Recorder* r : {&a, &b, &c}) engine->submit(asking(text(50, 1), 50), *r);
    a.on_token = [&](const AnswerToken& t) { bench.host.broken = t.step == 10; };
    EXPECT_FALSE(engine->run());
    EXPECT_TRUE(a.error && b.error && c.error);
    bench.host.broken = false;
}

// ---- requests
// ---------------------------------------------------------------------------------------------------------------

TEST(Requests, AreRefusedInPlainWords) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 256, .prompt_batch = 64});
    const auto error = [&](const EngineRequest& request) {
        const Recorder r = answer(*engine, request);
        return r.error ? r.error->message : "(served)";
    };
    EXPECT_NE(error(asking({})).find("no tokens"), std::string::npos);
    EXPECT_NE(error(asking({1, 40})).find("a token id is outside the vocabulary"), std::string::npos);
    EXPECT_NE(error(asking({-1})).find("outside the vocabulary"), std::string::npos);
    EXPECT_EQ(error(asking(text(200, 1), 49)), "prompt (200 tokens) + max_new (49) exceeds the context (256)");
    EXPECT_EQ(error(asking(text(200, 1), 48)), "(served)");
    EXPECT_NE(error(asking(text(200, 1), INT64_MAX)).find("exceeds the context"), std::string::npos);
    EngineRequest follow = asking({1});
    follow.follow = {40};
    EXPECT_NE(error(follow).find("outside the vocabulary"), std::string::npos);
    EngineRequest pictures = asking({1});
    pictures.rows_file = "rows";
    EXPECT_EQ(error(pictures), "this model reads no pictures");
}

TEST(Requests, AWholeContextIsUsedToItsLastRow) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 256, .prompt_batch = 64});
    engine->set_policy(std::make_unique<AlwaysGuess>());
    EXPECT_EQ(answer(*engine, asking(text(8, 1), 240)).tokens.size(), 240u);
}

TEST(Requests, NothingNewIsOnlyRead) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    const Recorder got = answer(*engine, asking(text(100, 1), 0));
    EXPECT_TRUE(got.tokens.empty());
    EngineRequest one = asking(text(100, 1), 1);
    one.cache = false;
    EXPECT_EQ(got.summary->state_hash, answer(*engine, one).summary->state_hash);
}

TEST(Requests, AStopIdEndsTheAnswerAndIsItsLastToken) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    EngineRequest request = asking(text(50, 1), 100);
    request.follow = {5, 6, 7, 8, 9};
    request.stop_ids = {{7, 8}};
    const Recorder got = answer(*engine, request);
    EXPECT_EQ(got.tokens, (std::vector<int32_t>{5, 6, 7}));
    EXPECT_EQ(got.summary->finish, AnswerSummary::Finish::stop);
    EXPECT_EQ(got.summary->stop_id, 7);
}

TEST(Requests, TheFilesEndIdsEndAnAnswerThatNamesNone) {
    ToyBench bench;
    auto made = Engine::make(bench.hooked, bench.host, {.max_context = 1024, .prompt_batch = 64}, 4 << 20, {6});
    ASSERT_TRUE(made);
    EngineRequest request = asking(text(50, 1), 10);
    request.follow = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    EXPECT_EQ(answer(**made, request).tokens.size(), 2u);
    request.stop_ids = std::vector<int32_t>{};
    EXPECT_EQ(answer(**made, request).tokens.size(), 10u);
}

TEST(Requests, ForcedTokensHaveTheModelsProbabilitiesAndSamplingGoesOnAfterThem) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    EngineRequest free = asking(text(50, 1), 12);
    free.top = 3;
    const Recorder want = answer(*engine, free);
    EngineRequest forced = free;
    forced.follow.assign(want.tokens.begin(), want.tokens.begin() + 5);
    const Recorder got = answer(*engine, forced);
    EXPECT_EQ(got.tokens, want.tokens);
    for (size_t i = 0; i < got.details.size(); ++i) {
        EXPECT_EQ(got.details[i].p, want.details[i].p);
        EXPECT_EQ(got.details[i].top, want.details[i].top);
        EXPECT_EQ(got.details[i].top[0].id, got.tokens[i]);  // greedy
    }
    forced.follow = {(want.tokens[0] + 1) % 40};
    const Recorder other = answer(*engine, forced);
    EXPECT_LT(*other.details[0].p, *want.details[0].p);
    EXPECT_EQ(other.details[0].top, want.details[0].top);
}

TEST(Requests, ProbabilitiesAreThoseBeforePenaltiesAndTemperature) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    EngineRequest request = asking(text(50, 1), 1);
    request.top = 5;
    const Recorder plain = answer(*engine, request);
    request.sampling = {
        .temperature = 0.3f, .penalty_present = 2, .penalty_last_n = 50, .bias = {{3, 1.0f}}, .seed = 4};
    EXPECT_EQ(answer(*engine, request).details[0].top, plain.details[0].top);
}

TEST(Requests, EveryRowsLogitsComeOnceInOrder) {
    ToyBench bench;
    EngineRequest request = asking(text(150, 1), 20);
    request.every_logits = true;
    auto plain = bench.engine(plain_limits(1024, 64));
    const Recorder want = answer(*plain, request);
    EXPECT_EQ(want.rows_of_logits.size(), 169u);  // the last token is not evaluated
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    engine->set_policy(std::make_unique<AlwaysGuess>());
    request.read_calls = {17, 3, 64, 1, 33, 32};  // the prompt's last row in a call of several
    EXPECT_EQ(answer(*engine, request).rows_of_logits, want.rows_of_logits);
}

TEST(Requests, CallsHaveTheSizesThatWereAsked) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    EngineRequest request = asking(text(40, 1), 3);
    request.read_calls = {17, 23};
    const Recorder got = answer(*engine, request);
    EXPECT_EQ(got.summary->read_calls, 2);
    EXPECT_EQ(got.summary->windows, 2);  // the first token came from the second call
    EXPECT_EQ(got.tokens.size(), 3u);
}

TEST(Requests, ASeedRepeatsAnAnswerAndIsReported) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    EngineRequest request = asking(text(50, 1), 30);
    request.sampling.temperature = 1.5f;
    request.cache = false;
    const Recorder first = answer(*engine, request);
    EXPECT_NE(first.summary->seed, 0u);
    request.sampling.seed = first.summary->seed;
    EXPECT_EQ(answer(*engine, request).tokens, first.tokens);
    request.sampling.seed ^= 1;
    EXPECT_NE(answer(*engine, request).tokens, first.tokens);
}

/// Allows multiples of a number, another one for every token.
class Multiples : public TokenConstraint {
  public:
    explicit Multiples(int last) : last_(last) {}
    AllowedTokens allowed() override {
        word_ = 0;
        for (int i = 0; i < 40; ++i)
            if (i % (2 + step_ % 3) == 0) word_ |= uint64_t{1} << i;
        return {&word_, 1};
    }
    bool accept(int32_t token) override {
        const bool allowed = token % (2 + step_ % 3) == 0;
        EXPECT_TRUE(allowed || ahead_);
        if (!allowed) return false;
        ++step_;
        return true;
    }
    bool complete() const override { return step_ == last_; }
    void look_ahead() override {
        EXPECT_FALSE(ahead_);
        ahead_ = true;
        back_ = step_;
    }
    void come_back() override {
        EXPECT_TRUE(ahead_);
        ahead_ = false;
        step_ = back_;
    }

  private:
    const int last_;
    int step_ = 0, back_ = 0;
    bool ahead_ = false;
    uint64_t word_ = 0;
};

TEST(Requests, AConstraintIsAskedOnceATokenAlsoInWindows) {
    ToyBench bench;
    std::vector<int32_t> tokens;
    for (const int window : {1, 8}) {
        auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64, .window = window});
        engine->set_policy(std::make_unique<AlwaysGuess>());
        EngineRequest request = asking(text(50, 1), 60);
        request.constraint = std::make_shared<Multiples>(1000);
        const Recorder got = answer(*engine, request);
        if (window == 1) tokens = got.tokens;
        EXPECT_EQ(got.tokens, tokens);
        EXPECT_EQ(got.tokens.size(), 60u);
    }
}

// ---- stopping
// ---------------------------------------------------------------------------------------------------------------

TEST(Stopping, AReadStopsBetweenLayersAndFallsBackToItsCheckpoint) {
    ToyBench bench(long_shape());
    auto engine = bench.engine(long_limits());
    const CancelFlag cancel = std::make_shared<std::atomic<bool>>(false);
    int layers = 0;
    bench.hooked.on_layer = [&] {
        if (++layers == 3 * 6 + 2)
            cancel->store(true);  // in the seventh call of 512 rows, between its second and third layer
    };
    Recorder stopped;
    const auto prompt = text(6000, 1);
    engine->submit(asking(prompt), stopped, cancel);
    EXPECT_TRUE(engine->run());
    bench.hooked.on_layer = nullptr;
    ASSERT_TRUE(stopped.summary);
    EXPECT_EQ(stopped.summary->finish, AnswerSummary::Finish::cancel);
    EXPECT_TRUE(stopped.tokens.empty());
    EXPECT_EQ(layers, 3 * 6 + 2);
    const Recorder again = answer(*engine, asking(prompt));
    EXPECT_EQ(reused(again), 2048);
    auto plain = bench.engine(plain_limits(16384, 512));
    EXPECT_EQ(again.summary->state_hash, answer(*plain, asking(prompt)).summary->state_hash);
}

TEST(Stopping, AnAnswerStopsAfterTheTokenAndTheConversationGoesOn) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64, .window = 1});
    const CancelFlag cancel = std::make_shared<std::atomic<bool>>(false);
    Recorder stopped;
    stopped.on_token = [&](const AnswerToken& t) { cancel->store(t.step == 4); };
    const auto prompt = text(100, 1);
    engine->submit(asking(prompt, 100), stopped, cancel);
    EXPECT_TRUE(engine->run());
    EXPECT_EQ(stopped.tokens.size(), 5u);
    EXPECT_EQ(reused(answer(*engine, asking(joined(joined(prompt, stopped.tokens), {1})))), 104);
}

TEST(Stopping, AWaitingRequestIsAnsweredWithoutItsTurn) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
    Recorder running, waiting;
    const CancelFlag cancel = std::make_shared<std::atomic<bool>>(false);
    engine->submit(asking(text(50, 1), 50), running);
    engine->submit(asking(text(50, 1), 50), waiting, cancel);
    running.on_token = [&](const AnswerToken& t) {
        if (t.step == 5) cancel->store(true);
        EXPECT_EQ(waiting.summary.has_value(), t.step > 5) << t.step;
    };
    EXPECT_TRUE(engine->run());
    EXPECT_EQ(waiting.summary->finish, AnswerSummary::Finish::cancel);
    EXPECT_EQ(running.tokens.size(), 50u);
}

// ---- several at once
// --------------------------------------------------------------------------------------------------------

TEST(Parallel, ConversationsThatWriteShareTheirCalls) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64, .parallel = 4, .window = 1, .drafts = false});
    std::vector<Recorder> all(4);
    for (uint32_t i = 0; i < 4; ++i) engine->submit(asking(text(10, i), 100), all[i]);
    const int64_t before = bench.host.calls;
    EXPECT_TRUE(engine->run());
    EXPECT_LE(bench.host.calls - before, 4 + 104);  // four prompts, then all together
    for (const Recorder& r : all) EXPECT_EQ(r.tokens.size(), 100u);
}

TEST(Parallel, WritingGoesOnWhileAnotherPromptIsRead) {
    ToyBench bench(long_shape());
    EngineLimits limits = long_limits();
    limits.parallel = 2;
    limits.window = 1;
    auto engine = bench.engine(limits);
    Recorder writer, reader;
    int calls_between = 0, most_between = 0;
    writer.on_token = [&](const AnswerToken& t) {
        if (t.step == 0) engine->submit(asking(text(4000, 2), 1), reader);
        most_between = std::max(most_between, calls_between);
        calls_between = 0;
    };
    reader.on_progress = [&](int) { ++calls_between; };
    engine->submit(asking(text(10, 1), 200), writer);
    EXPECT_TRUE(engine->run());
    EXPECT_TRUE(reader.summary);
    EXPECT_EQ(most_between, 1);  // never two reading calls in a row
    EXPECT_GT(reader.summary->read_calls, 20);
}

TEST(Parallel, ASharedStartIsCopiedFromTheConversationThatHasIt) {
    ToyBench bench(long_shape());
    EngineLimits limits = long_limits();
    limits.parallel = 3;
    auto engine = bench.engine(limits);
    // n answers to one prompt: the first reads it, the others take its checkpoint.
    const auto prompt = text(3000, 1);
    answer(*engine, asking(prompt, 1), false);
    std::vector<Recorder> all(3);
    for (size_t i = 0; i < 3; ++i) {
        EngineRequest request = asking(prompt, 40);
        request.sampling.temperature = 1;
        request.sampling.seed = i + 1;
        engine->submit(request, all[i]);
    }
    EXPECT_TRUE(engine->run());
    for (const Recorder& r : all) EXPECT_EQ(reused(r), 2999);
    EXPECT_NE(all[0].tokens, all[1].tokens);
}

// ---- guesses
// ----------------------------------------------------------------------------------------------------------------

TEST(Guesses, ACopyTaskRunsInFullWindows) {
    ToyBench bench;
    auto engine = bench.engine({.max_context = 2048, .prompt_batch = 64, .window = 8, .drafts = false});
    engine->set_policy(std::make_unique<AlwaysGuess>());
    const auto prompt = text(600, 1);
    EngineRequest request = asking(prompt, 600);
    request.follow = prompt;
    const Recorder got = answer(*engine, request);
    EXPECT_EQ(got.tokens, prompt);
    EXPECT_GT(static_cast<double>(got.summary->generated) / got.summary->windows, 2.5);
    EXPECT_LE(got.summary->windows, 100);
    int guessed = 0;
    for (const AnswerToken& t : got.details) guessed += t.guessed;
    EXPECT_EQ(guessed, got.summary->generated - got.summary->windows);
}

TEST(Guesses, TheDraftBlockIsRightAboutWhatItKnows) {
    ToyBench bench;
    for (const float temperature : {0.0f, 0.7f}) {
        auto engine = bench.engine({.max_context = 2048, .prompt_batch = 64, .window = 4, .repeats = false});
        engine->set_policy(std::make_unique<AlwaysGuess>());
        EngineRequest request = asking(text(100, 1), 400);
        request.sampling.temperature = temperature;
        request.sampling.seed = 3;
        const Recorder got = answer(*engine, request);
        EXPECT_GT(got.summary->accepted, got.summary->offered / (temperature == 0 ? 3 : 8)) << temperature;
    }
}

TEST(Guesses, TheDraftBlocksRowsAreThoseOfAnUndisturbedReading) {
    const auto rows_of = [](ToyBench& bench, Engine& engine, const TempPath& file) {
        EXPECT_TRUE(engine.save_conversation(file.path, 1));
        auto packed = read_conversation(file.path, bench.toy.layout(), bench.toy.facts(), 4096, 1);
        EXPECT_TRUE(packed && (*packed)->drafts);
        const auto lasting = (*packed)->lasting.span();
        return std::vector<std::byte>(lasting.begin(), lasting.end());
    };
    const TempPath file;
    ToyBench bench;
    auto busy = bench.engine({.max_context = 2048, .prompt_batch = 64});
    busy->set_policy(std::make_unique<RandomGuess>(5));
    EngineRequest request = asking(text(100, 1), 200);
    const Recorder first = answer(*busy, request);
    const auto whole = joined(joined(request.prompt, first.tokens), text(30, 2));
    request = asking(whole, 100);
    request.draft = false;  // asked for nothing, but kept in step
    const Recorder second = answer(*busy, request);
    EngineRequest all = asking(joined(whole, second.tokens), 0);
    all.prompt.pop_back();
    auto plain = bench.engine({.max_context = 2048, .prompt_batch = 64, .window = 1});
    answer(*plain, all);
    EXPECT_EQ(rows_of(bench, *busy, file), rows_of(bench, *plain, file));
}

// ---- saved conversations
// ----------------------------------------------------------------------------------------------------

class Saved : public testing::Test {
  protected:
    void SetUp() override {
        engine_ = bench_.engine({.max_context = 1024, .prompt_batch = 64});
        answer_ = answer(*engine_, asking(prompt_, 20));
        ASSERT_TRUE(engine_->save_conversation(file_.path, 5));
    }
    std::string bytes() const {
        std::ifstream in(file_.path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    void write(const std::string& bytes) const { std::ofstream(file_.path, std::ios::binary) << bytes; }
    static Error load_error(Bench& bench, const std::string& path, uint64_t model) {
        auto engine = bench.engine({.max_context = 1024, .prompt_batch = 64});
        const auto loaded = engine->load_conversation(path, model);
        EXPECT_FALSE(loaded);
        return loaded ? Error{} : loaded.error();
    }

    ToyBench bench_;
    TempPath file_;
    std::unique_ptr<Engine> engine_;
    const std::vector<int32_t> prompt_ = text(300, 1);
    Recorder answer_;
};

TEST_F(Saved, ComesBackInAnotherEngineToTheSameState) {
    auto other = bench_.engine({.max_context = 1024, .prompt_batch = 64});
    const auto rows = other->load_conversation(file_.path, 5);
    ASSERT_TRUE(rows) << rows.error().message;
    EXPECT_EQ(*rows, 319);
    const auto more = joined(joined(prompt_, answer_.tokens), text(10, 2));
    const Recorder here = answer(*engine_, asking(more, 10)), there = answer(*other, asking(more, 10));
    EXPECT_EQ(reused(there), 319);
    EXPECT_EQ(here.tokens, there.tokens);
    EXPECT_EQ(here.summary->state_hash, there.summary->state_hash);
    // Its checkpoints came along.
    EXPECT_EQ(reused(answer(*other, asking(prompt_, 1))), 299);
}

TEST_F(Saved, OfAnotherModelOrOtherSettingsIsRefused) {
    EXPECT_EQ(load_error(bench_, file_.path, 6).code, "model");
    ToyBench other({.window = 8});
    EXPECT_EQ(load_error(other, file_.path, 5).code, "layout");
    ToyBench draftless({.draft = false});
    EXPECT_EQ(load_error(draftless, file_.path, 5).code, "layout");
    auto small = bench_.engine({.max_context = 256, .prompt_batch = 64});
    const auto loaded = small->load_conversation(file_.path, 5);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, "context");
}

TEST_F(Saved, CutAnywhereIsRefused) {
    const std::string whole = bytes();
    for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 150) {
        write(whole.substr(0, size));
        EXPECT_EQ(load_error(bench_, file_.path, 5).kind, ErrorKind::file) << size;
    }
    write(whole + "x");
    EXPECT_EQ(load_error(bench_, file_.path, 5).code, "damaged");
}

TEST_F(Saved, ADamagedByteAnywhereIsRefused) {
    const std::string whole = bytes();
    for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 300) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
        write(damaged);
        EXPECT_EQ(load_error(bench_, file_.path, 5).kind, ErrorKind::file) << at;
    }
}

TEST_F(Saved, TheEngineStaysUsableAfterARefusal) {
    write("nonsense");
    EXPECT_FALSE(engine_->load_conversation(file_.path, 5));
    EXPECT_EQ(reused(answer(*engine_, asking(prompt_, 1))), 299);
}

TEST_F(Saved, AProcessKilledWhileItSavesLeavesAWholeFile) {
    for (int trial = 0; trial < 12; ++trial) {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            for (;;) {
                if (::write(ends[1], "x", 1) != 1) _exit(1);
                if (!engine_->save_conversation(file_.path, 5)) _exit(2);
            }
        }
        // Kill it at a different place each time: after so many saves and so many moments of the next one.
        char byte;
        for (int saves = 0; saves <= trial % 4; ++saves) ASSERT_EQ(read(ends[0], &byte, 1), 1);
        for (volatile int spin = 0; spin < trial * 20000;) spin = spin + 1;
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status));
        close(ends[0]);
        close(ends[1]);
        auto other = bench_.engine({.max_context = 1024, .prompt_batch = 64});
        EXPECT_TRUE(other->load_conversation(file_.path, 5));
        std::filesystem::remove(file_.path + ".tmp" + std::to_string(child));
    }
}

}  // namespace
}  // namespace strata
