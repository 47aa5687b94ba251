// The expert cache on the simulated card: whatever it holds, whatever fails, answers are the CPU device's.
#include "engine/expert_store.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <unistd.h>

#include "engine/expert_profile.h"
#include "fixture_bench.h"
#include "random_walk.h"
#include "sim_bench.h"

namespace strata {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

/// A path of this test's own, removed at its end.
struct Scratch {
    Scratch() : path(std::filesystem::temp_directory_path() / ("strata_experts_" + std::to_string(getpid()))) {
        std::filesystem::remove(path);
    }
    ~Scratch() { std::filesystem::remove(path); }
    std::string name() const { return path.string(); }
    std::filesystem::path path;
};

EngineRequest request_of(int prompt, int max_new) {
    EngineRequest request;
    for (int i = 0; i < prompt; ++i) request.prompt.push_back((i * 37 + 11) % 200);
    request.max_new = max_new;
    return request;
}

Recorder answer_of(Engine& engine, const EngineRequest& request) {
    Recorder answer;
    engine.submit(request, answer, {}, true);
    EXPECT_TRUE(engine.run());
    EXPECT_TRUE(answer.summary) << (answer.error ? answer.error->message : "no end");
    return answer;
}

EngineLimits limits_of(bool guesses) {
    EngineLimits limits = plain_limits(512, 64);
    if (guesses) {
        limits.window = 0;
        limits.drafts = limits.repeats = true;
    }
    return limits;
}

std::unique_ptr<Engine> engine_of(Bench& bench, bool guesses) {
    auto engine = bench.engine(limits_of(guesses));
    if (guesses) engine->set_policy(std::make_unique<RandomGuess>(3));
    return engine;
}

Recorder cpu_answer(const std::string& fixture, const EngineRequest& request) {
    FixtureBench bench(fixture);
    return answer_of(*engine_of(bench, false), request);
}

void expect_same(const Recorder& got, const Recorder& want) {
    ASSERT_TRUE(got.summary && want.summary);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.summary->state_hash, want.summary->state_hash);
}

// ---- answers do not depend on it

TEST(ExpertStore, AnswersDoNotDependOnTheBudget) {
    const EngineRequest request = request_of(90, 24);
    for (const std::string fixture : {"qwen35moe/tiny.gguf", "qwen35moe/heads.gguf", "gemma4/tiny.gguf",
                                      "lfm2moe/tiny.gguf", "kolibri1/tiny.gguf", "flint/tiny.gguf"}) {
        const Recorder want = cpu_answer(fixture, request);
        for (const double experts : {0.0, 0.1, 0.5, 0.9, 1.2})
            for (const bool guesses : {false, true})
                for (const bool pulls : {false, true}) {
                    SCOPED_TRACE(fixture + ", room for " + std::to_string(experts) + (guesses ? ", guesses" : "") +
                                 (pulls ? ", pulls" : ""));
                    SimBench bench({.fixture = fixture,
                                    .experts = experts,
                                    .store = {.stage = pulls ? kMiB : 0},
                                    .sim = {.pulls = pulls}});
                    if (experts == 0.0) {
                        EXPECT_EQ(bench.experts()->here(), 0);
                    }
                    if (experts > 1) {
                        EXPECT_EQ(bench.experts()->here(), bench.experts_total());
                    }
                    expect_same(answer_of(*engine_of(bench, guesses), request), want);
                }
    }
}

struct Walk {
    const char* fixture;
    double experts;
    bool pulls = false;
    uint64_t stage = 0;
    int lag = 0;
    int threads = 1;
    uint64_t chunk = 0;
    int stage_ahead = 1024;
};

class ExpertWalk : public testing::TestWithParam<Walk> {};

/// Requests of all kinds, while the link fails now and then, other programs take memory, and the cache is resized.
TEST_P(ExpertWalk, RandomRequestsGiveWhatTheCpuGives) {
    const Walk& walk = GetParam();
    std::mt19937 link(7);
    SimBench bench(
        {.fixture = walk.fixture,
         .experts = walk.experts,
         .store = {.reserve = kMiB / 2, .stage = walk.stage, .stage_ahead = walk.stage_ahead, .chunk = walk.chunk},
         .sim = {.pulls = walk.pulls, .lag = walk.lag, .upload_fails = [&] { return link() % 9 == 0; }},
         .threads = walk.threads});
    FixtureBench plain(walk.fixture);
    int resized = 0;
    RandomWalk random(bench, {.seed = seed_or(31),
                              .steps = 60,
                              .max_context = 256,
                              .longest_prompt = 60,
                              .longest_answer = 16,
                              .checkpoint_every = 16,
                              .fresh_plain = false,
                              .plain = &plain,
                              .between = [&](std::mt19937& r) {
                                  if (r() % 3 == 0) bench.device().take_elsewhere(r() % (4 * kMiB));
                                  if (r() % 4 == 0) {
                                      ++resized;
                                      const uint64_t more = r() % (bench.experts()->bytes() + 1);
                                      EXPECT_TRUE(bench.experts()->resize(bench.device().memory_free() + more));
                                  }
                                  if (r() % 4 == 0) {
                                      EXPECT_TRUE(bench.experts()->resize({}));
                                  }
                                  EXPECT_TRUE(bench.experts()->cache().consistent());
                              }});
    random.run();
    EXPECT_GT(resized, 0);
    EXPECT_GT(random.reused, 0);
    if (walk.experts > 0) {
        EXPECT_GT(bench.experts()->counters().hits(), 0u);
    }
    EXPECT_GT(bench.experts()->counters().cpu_experts, 0u);
}

INSTANTIATE_TEST_SUITE_P(Caches, ExpertWalk,
                         testing::Values(Walk{"qwen35moe/tiny.gguf", 0.5},
                                         Walk{"qwen35moe/tiny.gguf", 0.3, true, kMiB, 3},
                                         Walk{"qwen35moe/heads.gguf", 0.7, false, kMiB / 8, 1, 3},
                                         Walk{"gemma4/tiny.gguf", 0.4, true, 0, 2, 2},
                                         Walk{"lfm2moe/tiny.gguf", 0.6, false, kMiB / 4, 2, 1, 100000},
                                         Walk{"qwen35moe/tiny.gguf", 0.3, false, kMiB / 4, 2, 1, 0, 1},
                                         Walk{"kolibri1/tiny.gguf", 0.0, true, kMiB / 4, 1, 1, 0, 4}));

TEST(ExpertStore, APromptIsStagedInRoundsWithTheSameTokens) {
    const EngineRequest request = request_of(120, 8);
    const Recorder want = cpu_answer("qwen35moe/tiny.gguf", request);
    for (const double share : {0.0, 0.4, 1.0}) {
        SimBench bench({.experts = 0.2, .store = {.cpu_share = share, .stage = 0}});
        const uint64_t two = 4 * bench.experts()->largest_expert();
        SimBench staged({.experts = 0.2, .store = {.cpu_share = share, .stage = two}});
        expect_same(answer_of(*engine_of(staged, false), request), want);
        if (share < 1) {
            EXPECT_GT(staged.experts()->counters().staged, 4u);
        } else {
            EXPECT_EQ(staged.experts()->counters().staged, 0u);
        }
        expect_same(answer_of(*engine_of(bench, false), request), want);
        EXPECT_EQ(bench.experts()->counters().staged, 0u);
    }
}

TEST(ExpertStore, WhatComesAheadOfALayersRoutingChangesNoToken) {
    const EngineRequest request = request_of(120, 8);
    const Recorder want = cpu_answer("qwen35moe/tiny.gguf", request);
    for (const double share : {0.0, 0.5, 1.0})
        for (const uint64_t places : {2, 5, 12, 1000}) {
            SCOPED_TRACE(std::to_string(share) + ", " + std::to_string(places) + " places");
            SimBench sizes({.experts = 0.2});
            const uint64_t stage = places * sizes.experts()->largest_expert();
            SimBench bench({.experts = 0.2, .store = {.cpu_share = share, .stage = stage, .stage_ahead = 1}});
            expect_same(answer_of(*engine_of(bench, false), request), want);
            EXPECT_GT(bench.experts()->counters().staged, 0u);  // even where the CPU should have all
        }
}

TEST(ExpertStore, ALinkThatAlwaysFailsLeavesAllToTheCpu) {
    const EngineRequest request = request_of(90, 12);
    SimBench bench({.experts = 0.5, .store = {.stage = kMiB / 2}, .sim = {.upload_fails = [] { return true; }}});
    EXPECT_EQ(bench.experts()->here(), 0);
    expect_same(answer_of(*engine_of(bench, false), request), cpu_answer("qwen35moe/tiny.gguf", request));
    EXPECT_GT(bench.experts()->counters().failed_uploads, 0u);
    EXPECT_EQ(bench.experts()->counters().hits(), 0u);
    const auto notes = bench.experts()->take_notes();
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("the simulated link failed"), std::string::npos) << notes[0];
}

// ---- what it counts

TEST(ExpertStore, HitsAreTheAnswersOwnAndAllAreHitsWhereAllFit) {
    SimBench bench({.experts = 1.2});
    const Recorder answer = answer_of(*engine_of(bench, true), request_of(40, 20));
    EXPECT_GT(answer.summary->expert_uses, 0);
    EXPECT_EQ(answer.summary->expert_hits, answer.summary->expert_uses);
    EXPECT_EQ(answer.summary->experts.cpu_experts, 0u);

    SimBench none({.experts = 0});
    EXPECT_EQ(answer_of(*engine_of(none, true), request_of(40, 20)).summary->expert_hits, 0);
}

TEST(ExpertStore, SwapsFollowWhatAnAnswerUses) {
    for (const bool pulls : {false, true}) {
        SCOPED_TRACE(pulls);
        SimBench bench({.experts = 0.4, .store = {.cpu_share = 0.0}, .sim = {.pulls = pulls}});
        EngineRequest request = request_of(4, 200);
        request.follow.assign(200, 7);  // the same token again and again: nearly the same experts
        const auto engine = engine_of(bench, false);
        const Recorder answer = answer_of(*engine, request);
        EXPECT_GT(answer.summary->experts.swaps, 0u);
        const uint64_t lookups = answer.summary->experts.lookups();
        // The first filling holds two fifths; what is used in turn should be there soon.
        EXPECT_GT(answer.summary->experts.hits() * 10, lookups * 6);
        EXPECT_TRUE(bench.experts()->cache().consistent());
    }
}

TEST(ExpertStore, WithoutSwapsTheCacheStaysAsLoaded) {
    SimBench bench({.experts = 0.4, .store = {.swaps = false, .stage = kMiB}, .sim = {.pulls = true}});
    const int here = bench.experts()->here();
    const Recorder answer = answer_of(*engine_of(bench, false), request_of(40, 30));
    EXPECT_EQ(answer.summary->experts.swaps, 0u);
    EXPECT_EQ(bench.experts()->here(), here);
}

TEST(ExpertStore, ExplainNamesWhatAnAnswerWaitedFor) {
    SimBench bench({.experts = 0.4});
    const Recorder answer = answer_of(*engine_of(bench, false), request_of(40, 10));
    const std::string text = answer.summary->experts.explain(100);
    EXPECT_NE(text.find(std::to_string(answer.summary->experts.cpu_experts) + " experts on the CPU"), std::string::npos)
        << text;
    EXPECT_NE(text.find("waiting for the card"), std::string::npos) << text;
}

// ---- memory

TEST(ExpertStore, AGrowingConversationTakesItsMemoryFromTheCache) {
    SimBench bench({.experts = 0.9, .store = {.most = UINT64_MAX, .chunk = 1}});
    // All that is free belongs to the cache.
    SimDevice& device = bench.device();
    const auto engine = engine_of(bench, false);
    device.take_elsewhere(device.memory_free());
    const int before = bench.experts()->here();
    const EngineRequest request = request_of(300, 8);
    const Recorder answer = answer_of(*engine, request);
    EXPECT_LT(bench.experts()->here(), before);
    expect_same(answer, cpu_answer("qwen35moe/tiny.gguf", request));
}

TEST(ExpertStore, GivesMemoryBackBetweenRequestsAndTakesItAgain) {
    SimBench bench({.experts = 0.9, .store = {.most = UINT64_MAX, .reserve = 64 * 1024, .chunk = 1}});
    const auto engine = engine_of(bench, false);
    const EngineRequest request = request_of(20, 4);
    answer_of(*engine, request);
    const int before = bench.experts()->slots();
    const uint64_t free = bench.device().memory_free();
    bench.device().take_elsewhere(free + 2 * bench.experts()->largest_expert());
    answer_of(*engine, request);
    EXPECT_LT(bench.experts()->slots(), before);
    EXPECT_GE(bench.device().memory_free(), bench.experts()->reserve());
    bench.device().take_elsewhere(0);
    answer_of(*engine, request);
    EXPECT_GE(bench.experts()->slots(), before);
}

TEST(ExpertStore, ResizingKeepsTheMostUsed) {
    SimBench bench({.experts = 0.6, .store = {.most = UINT64_MAX, .chunk = 1}});
    const auto engine = engine_of(bench, false);
    answer_of(*engine, request_of(20, 60));
    ExpertStore& experts = *bench.experts();
    ASSERT_TRUE(experts.resize(bench.device().memory_free() + experts.bytes() / 2));
    EXPECT_GT(experts.here(), 0);
    EXPECT_LT(experts.here(), bench.experts_total());
    // Of a size, no expert outside is used more than one inside.
    const ExpertCache& cache = experts.cache();
    std::map<int, double> least, most;
    for (int layer = 0; layer < static_cast<int>(cache.layers().size()); ++layer)
        for (int e = 0; e < cache.layers()[static_cast<size_t>(layer)].experts; ++e) {
            const double score = cache.score({layer, e});
            const int kind = cache.kind(layer);
            if (cache.place({layer, e}) == ExpertCache::Place::here)
                least[kind] = least.count(kind) ? std::min(least[kind], score) : score;
            else
                most[kind] = std::max(most[kind], score);
        }
    for (const auto& [kind, score] : least) EXPECT_GE(score, most[kind]) << "kind " << kind;
    EXPECT_GE(bench.device().memory_free(), experts.reserve());
    ASSERT_TRUE(experts.resize(UINT64_MAX / 4));
    EXPECT_EQ(experts.slots(), 0);
    ASSERT_TRUE(experts.resize({}));
    EXPECT_GT(experts.here(), 0);
}

TEST(ExpertStore, AllOrNothingSaysHowMuchIsMissing) {
    try {
        SimBench bench({.experts = 0.5, .store = {.all = true}});
        FAIL() << "half of the experts are not all";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("find no place on the card"), std::string::npos) << error.what();
    }
    SimBench bench({.experts = 1.2, .store = {.all = true}});
    EXPECT_EQ(bench.experts()->here(), bench.experts_total());
}

// ---- the profile

TEST(ExpertProfile, AFileOfAnotherModelOrADamagedOneIsRefused) {
    const Scratch file;
    const std::vector<int> layers = {3, 2};
    const std::vector<uint64_t> uses = {5, 0, 7, 1, 1000000000000};
    ASSERT_TRUE(save_expert_profile(file.name(), 42, layers, uses));
    EXPECT_EQ(*load_expert_profile(file.name(), 42, layers), uses);
    EXPECT_EQ(load_expert_profile(file.name(), 43, layers).error().code, "other");
    EXPECT_EQ(load_expert_profile(file.name(), 42, std::vector<int>{3, 3}).error().code, "other");
    EXPECT_EQ(load_expert_profile(file.name(), 42, std::vector<int>{5}).error().code, "other");
    EXPECT_EQ(load_expert_profile(file.name() + ".not", 42, layers).error().code, "missing");

    std::ifstream in(file.path, std::ios::binary);
    const std::string good((std::istreambuf_iterator<char>(in)), {});
    const auto code_of = [&](const std::string& bytes) {
        std::ofstream(file.path, std::ios::binary) << bytes;
        const auto loaded = load_expert_profile(file.name(), 42, layers);
        return loaded ? std::string("loaded") : loaded.error().code;
    };
    for (size_t length = 0; length < good.size(); ++length) EXPECT_NE(code_of(good.substr(0, length)), "loaded");
    EXPECT_EQ(code_of(good + "x"), "damaged");
    for (size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 4);
        EXPECT_NE(code_of(bad), "loaded") << at;
    }
    EXPECT_EQ(code_of(good), "loaded");
}

TEST(ExpertStore, TheNextStartFillsByTheProfile) {
    const Scratch file;
    const ExpertStoreOptions store{.swaps = false, .profile = file.name(), .model_id = 9};
    const EngineRequest request = request_of(20, 60);
    const Recorder want = cpu_answer("qwen35moe/tiny.gguf", request);
    uint64_t first_hits = 0;
    {
        SimBench bench({.experts = 0.3, .store = store});
        EXPECT_EQ(bench.experts()->profile_uses(), 0u);
        const Recorder answer = answer_of(*engine_of(bench, false), request);
        expect_same(answer, want);
        first_hits = answer.summary->experts.hits();
        EXPECT_TRUE(std::filesystem::exists(file.path));  // after the first answer
        EXPECT_TRUE(bench.experts()->take_notes().empty());
    }
    SimBench bench({.experts = 0.3, .store = store});
    EXPECT_GT(bench.experts()->profile_uses(), 0u);
    const Recorder answer = answer_of(*engine_of(bench, false), request);
    expect_same(answer, want);
    EXPECT_GT(answer.summary->experts.hits(), first_hits);
}

TEST(ExpertStore, AProfileThatIsOfNoUseChangesNothingButOneLine) {
    const Scratch file;
    const EngineRequest request = request_of(20, 12);
    const Recorder want = cpu_answer("qwen35moe/tiny.gguf", request);
    ASSERT_TRUE(save_expert_profile(file.name(), 8, std::vector<int>{1}, std::vector<uint64_t>{1}));
    for (const bool empty : {false, true}) {
        if (empty) std::ofstream(file.path, std::ios::trunc | std::ios::binary);
        SimBench bench({.experts = 0.3, .store = {.profile = file.name(), .model_id = 9}});
        const auto notes = bench.experts()->take_notes();
        ASSERT_EQ(notes.size(), 1u);
        EXPECT_NE(notes[0].find("ignored"), std::string::npos);
        expect_same(answer_of(*engine_of(bench, false), request), want);
    }
    SimBench bench({.experts = 0.3, .store = {.profile = "/nowhere/profile", .model_id = 9}});
    const auto engine = engine_of(bench, false);
    for (int i = 0; i < 3; ++i) expect_same(answer_of(*engine, request), want);
    EXPECT_EQ(bench.experts()->take_notes().size(), 1u);
}

TEST(ExpertStore, AWarmUpCountsAsNoUse) {
    const Scratch file;
    SimBench bench({.experts = 0.3, .store = {.profile = file.name(), .model_id = 9}});
    bench.experts()->count(false);
    const auto engine = engine_of(bench, false);
    answer_of(*engine, request_of(20, 4));
    EXPECT_EQ(bench.experts()->total_uses(), 0u);
    EXPECT_FALSE(std::filesystem::exists(file.path));
    bench.experts()->count(true);
    answer_of(*engine, request_of(20, 4));
    EXPECT_GT(bench.experts()->total_uses(), 0u);
    EXPECT_TRUE(std::filesystem::exists(file.path));
}

// ---- flags that change answers

TEST(ExpertStore, TailSkipLeavesOutOnlyWhatIsOutsideAndOnlyWhileWriting) {
    const EngineRequest request = request_of(30, 12);
    const Recorder want = cpu_answer("qwen35moe/tiny.gguf", request);
    // Where all experts are on the card there is nothing to leave out.
    SimBench all({.experts = 1.2, .store = {.tail_skip = 1}});
    expect_same(answer_of(*engine_of(all, false), request), want);
    EXPECT_EQ(all.experts()->counters().left_out, 0u);

    SimBench none({.experts = 0, .store = {.tail_skip = 1}});
    const Recorder skipped = answer_of(*engine_of(none, false), request);
    const auto& facts = none.model().facts();
    const auto rows = static_cast<uint64_t>(skipped.summary->windows);
    const auto layers = static_cast<uint64_t>(facts.expert_layers - facts.draft_expert_layers);
    EXPECT_EQ(none.experts()->counters().left_out, rows * layers * static_cast<uint64_t>(facts.experts_used - 1));
    EXPECT_NE(skipped.summary->state_hash, want.summary->state_hash);

    // A prompt is not touched.
    EngineRequest read = request;
    read.max_new = 0;
    read.read_calls = {30};
    SimBench reads({.experts = 0, .store = {.tail_skip = 1}});
    expect_same(answer_of(*engine_of(reads, false), read), cpu_answer("qwen35moe/tiny.gguf", read));
}

TEST(ExpertStore, SkipWeightTakesThePlaceOfTailSkip) {
    const EngineRequest request = request_of(30, 12);
    const Recorder want = cpu_answer("qwen35moe/tiny.gguf", request);
    SimBench nothing({.experts = 0, .store = {.tail_skip = 1, .skip_weight = 1e-9}});
    expect_same(answer_of(*engine_of(nothing, false), request), want);
    EXPECT_EQ(nothing.experts()->counters().left_out, 0u);
    SimBench all({.experts = 0, .store = {.skip_weight = 1}});
    answer_of(*engine_of(all, false), request);
    EXPECT_EQ(all.experts()->counters().left_out, all.experts()->counters().lookups());
}

}  // namespace
}  // namespace strata
