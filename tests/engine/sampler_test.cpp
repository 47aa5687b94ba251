#include "engine/sampler.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>

#include "engine/random.h"

namespace strata {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

int32_t sample(const Sampling& sampling, std::vector<float> logits, const std::vector<int32_t>& seen = {},
               uint64_t step = 0, AllowedTokens mask = {}) {
    Sampler sampler(static_cast<int>(logits.size()));
    sampler.begin(sampling, sampling.seed, static_cast<int64_t>(seen.size()) + 8);
    for (const int32_t token : seen) sampler.accept(token);
    return sampler.sample(logits, step, mask);
}

/// How often each token is drawn in `n` steps.
std::map<int32_t, double> shares(const Sampling& sampling, const std::vector<float>& logits, int n = 20000) {
    Sampler sampler(static_cast<int>(logits.size()));
    sampler.begin(sampling, 99, 8);
    std::map<int32_t, double> counts;
    for (int step = 0; step < n; ++step) {
        std::vector<float> row = logits;
        counts[sampler.sample(row, static_cast<uint64_t>(step))] += 1.0 / n;
    }
    return counts;
}

Sampling warm(float temperature = 1) {
    Sampling s;
    s.temperature = temperature;
    s.top_k = 0;
    return s;
}

TEST(Sampler, GreedyTakesTheLargestAndTiesGoToTheLowerId) {
    EXPECT_EQ(sample({}, {1, 5, 2, 5, 0}), 1);
    EXPECT_EQ(likeliest(std::vector<float>{-3, -1, -1}), 1);
}

TEST(Sampler, GreedyFindsTheLargestInLongRowsWhereverItStands) {
    std::mt19937 random(5);
    for (int trial = 0; trial < 200; ++trial) {
        std::vector<float> logits(1 + random() % 700);
        for (float& x : logits) x = static_cast<float>(random() % 50);
        const auto want = std::max_element(logits.begin(), logits.end()) - logits.begin();
        EXPECT_EQ(likeliest(logits), want);
        EXPECT_EQ(sample({}, logits), want);
    }
}

TEST(Sampler, NotANumberAndMinusInfinityAreNeverTaken) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(sample({}, {nan, -kInf, -7, nan}), 2);
    EXPECT_EQ(sample(warm(), {nan, -kInf, -7, nan}), 2);
    EXPECT_EQ(sample(warm(), {nan, nan}), 0);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
    const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
    const auto got = shares(warm(), logits);
    EXPECT_NEAR(got.at(0), 0.5, 0.015);
    EXPECT_NEAR(got.at(1), 0.3, 0.015);
    EXPECT_NEAR(got.at(2), 0.2, 0.015);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
    const std::vector<float> logits = {std::log(0.6f), std::log(0.4f)};
    EXPECT_NEAR(shares(warm(0.5f), logits).at(0), 0.36 / (0.36 + 0.16), 0.015);
    EXPECT_NEAR(shares(warm(2.0f), logits).at(0), std::sqrt(0.6) / (std::sqrt(0.6) + std::sqrt(0.4)), 0.015);
}

TEST(Sampler, TopKKeepsTheBestAndZeroMeansTheLimit) {
    std::vector<float> logits(200);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = -0.001f * static_cast<float>(i);
    Sampling s = warm();
    s.top_k = 3;
    EXPECT_EQ(shares(s, logits, 2000).rbegin()->first, 2);
    for (const int k : {0, 64, 1000}) {
        s.top_k = k;
        const auto got = shares(s, logits);
        EXPECT_EQ(got.size(), static_cast<size_t>(kMaxCandidates));
        EXPECT_EQ(got.rbegin()->first, kMaxCandidates - 1);
    }
}

TEST(Sampler, TopPKeepsTheSmallestSetWithThatMuch) {
    const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
    Sampling s = warm();
    for (const auto& [top_p, kept] : std::map<float, size_t>{{0.4f, 1}, {0.6f, 2}, {0.81f, 3}, {0.96f, 4}, {1.0f, 4}}) {
        s.top_p = top_p;
        EXPECT_EQ(shares(s, logits).size(), kept) << top_p;
    }
}

TEST(Sampler, MinPIsRelativeToTheBest) {
    const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
    Sampling s = warm();
    for (const auto& [min_p, kept] :
         std::map<float, size_t>{{0.09f, 4}, {0.11f, 3}, {0.31f, 2}, {0.61f, 1}, {1.0f, 1}}) {
        s.min_p = min_p;
        EXPECT_EQ(shares(s, logits).size(), kept) << min_p;
    }
}

TEST(Sampler, TypicalLeavesOutTheTooLikelyAndTheTooRare) {
    // Entropy of (0.7, 0.1 x 3) is 0.94: the surprise of 0.7 is 0.36 (0.58 off), of 0.1 is 2.30 (1.36 off). Of (0.4,
    // 0.2 x 3) 1.33: 0.4 has 0.92 (0.42 off), 0.2 has 1.61 (0.28 off): the likeliest leaves first.
    Sampling s = warm();
    s.typical = 0.5f;
    const std::vector<float> flat = {std::log(0.4f), std::log(0.2f), std::log(0.2f), std::log(0.2f)};
    const auto got = shares(s, flat, 3000);
    EXPECT_EQ(got.count(0), 0u);
    EXPECT_EQ(got.size(), 3u);
    const std::vector<float> peaked = {std::log(0.7f), std::log(0.1f), std::log(0.1f), std::log(0.1f)};
    EXPECT_EQ(shares(s, peaked, 3000).size(), 1u);
}

TEST(Sampler, CutsComeInOrderAndTemperatureLast) {
    // top_p is judged before the temperature: flattening lets no more candidates in.
    const std::vector<float> logits = {std::log(0.9f), std::log(0.05f), std::log(0.05f)};
    Sampling s = warm(100.0f);
    s.top_p = 0.8f;
    EXPECT_EQ(shares(s, logits, 500).size(), 1u);
}

TEST(Sampler, WithTemperatureZeroTheCutsChangeNothing) {
    Sampling s;
    s.top_k = 1;
    s.top_p = 0.01f;
    s.min_p = 1;
    s.typical = 0.01f;
    EXPECT_EQ(sample(s, {1, 2, 3, 2}), 2);
}

TEST(Sampler, RepeatPenaltyDividesPositiveAndMultipliesNegativeLogits) {
    Sampling s;
    s.penalty_last_n = 10;
    s.penalty_repeat = 2;
    EXPECT_EQ(sample(s, {4, 3, 0}, {0}), 1);     // 4 / 2 < 3
    EXPECT_EQ(sample(s, {-2, -3, -9}, {0}), 1);  // -2 * 2 < -3
    EXPECT_EQ(sample(s, {4, 1.9f, 0}, {0}), 0);  // still the largest
}

TEST(Sampler, FrequencyCountsAndPresenceDoesNot) {
    Sampling s;
    s.penalty_last_n = 10;
    s.penalty_freq = 1;
    EXPECT_EQ(sample(s, {5, 2.5f, 0}, {0, 0}), 0);     // 5 - 2 > 2.5
    EXPECT_EQ(sample(s, {5, 2.5f, 0}, {0, 0, 0}), 1);  // 5 - 3 < 2.5
    s.penalty_freq = 0;
    s.penalty_present = 3;
    EXPECT_EQ(sample(s, {5, 2.5f, 0}, {0}), 1);
    EXPECT_EQ(sample(s, {5, 1.5f, 0}, {0, 0, 0, 0}), 0);
}

TEST(Sampler, OnlyTheLastNTokensCount) {
    Sampling s;
    s.penalty_present = 100;
    s.penalty_last_n = 2;
    EXPECT_EQ(sample(s, {5, 4, 3}, {0, 1, 1}), 0);
    EXPECT_EQ(sample(s, {5, 4, 3}, {1, 0, 1}), 2);
    s.penalty_last_n = 0;
    EXPECT_EQ(sample(s, {5, 4, 3}, {0, 0, 0}), 0);
}

TEST(Sampler, RetractingLeavesNoTrace) {
    const uint32_t seed = 3;
    std::mt19937 random(seed);
    for (int trial = 0; trial < 300; ++trial) {
        Sampling s;
        s.penalty_last_n = 1 + static_cast<int>(random() % 6);
        s.penalty_freq = 0.5f;
        s.penalty_present = 0.25f;
        s.penalty_repeat = 1.5f;
        s.dry_multiplier = trial % 2 ? 0.5f : 0.0f;
        Sampler with(5), without(5);
        with.begin(s, 1, 64);
        without.begin(s, 1, 64);
        for (int i = 0; i < 20; ++i) {
            const auto guesses = random() % 4;
            for (uint32_t g = 0; g < guesses; ++g) with.accept(static_cast<int32_t>(random() % 5));
            for (uint32_t g = 0; g < guesses; ++g) with.retract();
            const auto token = static_cast<int32_t>(random() % 5);
            with.accept(token);
            without.accept(token);
            std::vector<float> a(5), b;
            for (float& x : a) x = static_cast<float>(random() % 100) / 25;
            b = a;
            with.sample(a, 0);
            without.sample(b, 0);
            ASSERT_EQ(a, b) << "seed " << seed << ", trial " << trial;
        }
    }
}

TEST(Sampler, BiasIsAddedAndForbidsAtMinusInfinity) {
    Sampling s;
    s.bias = {{0, 3.0f}, {2, -1e9f}, {77, 5.0f}};
    EXPECT_EQ(sample(s, {1, 3, 9}), 0);
}

TEST(Sampler, DryPunishesWhatWouldContinueARepetition) {
    Sampling s;
    s.dry_multiplier = 1;
    s.dry_base = 2;
    s.dry_allowed_length = 2;
    // ... 1 2 3 ... 1 2: a 3 would make it three in a row: 1 * 2^(2 - 2) = 1.
    const std::vector<int32_t> text = {1, 2, 3, 0, 4, 1, 2};
    EXPECT_EQ(sample(s, {0, 0, 0, 5, 4.5f}, text), 4);
    EXPECT_EQ(sample(s, {0, 0, 0, 5, 3.5f}, text), 3);
    // Longer ones grow by the base: 0 1 2 matches three: 2.
    EXPECT_EQ(sample(s, {0, 0, 0, 5, 3.5f}, {0, 1, 2, 3, 4, 0, 1, 2}), 4);
    // Below the allowed length nothing happens.
    s.dry_allowed_length = 3;
    EXPECT_EQ(sample(s, {0, 0, 0, 5, 4.5f}, text), 3);
}

TEST(Sampler, DryStopsAtBreakersAndLooksBackSoFar) {
    Sampling s;
    s.dry_multiplier = 10;
    s.dry_base = 1;
    const std::vector<int32_t> text = {1, 2, 3, 0, 4, 1, 2};
    EXPECT_EQ(sample(s, {0, 0, 0, 5, 4.5f}, text), 4);
    s.dry_breakers = {2};
    EXPECT_EQ(sample(s, {0, 0, 0, 5, 4.5f}, text), 3);
    s.dry_breakers = {};
    s.dry_last_n = 5;
    EXPECT_EQ(sample(s, {0, 0, 0, 5, 4.5f}, text), 3);
}

TEST(Sampler, AMaskLimitsWhatIsTaken) {
    std::vector<float> logits(130, 0.0f);
    logits[3] = 9;
    logits[64] = 5;
    logits[129] = 4;
    std::vector<uint64_t> mask(3, 0);
    mask[1] = 1;       // 64
    mask[2] = 1 << 1;  // 129
    EXPECT_EQ(sample({}, logits, {}, 0, mask), 64);
    mask[1] = 0;
    EXPECT_EQ(sample({}, logits, {}, 0, mask), 129);
    // Nothing that is allowed can be drawn: the first allowed one.
    logits[129] = -kInf;
    EXPECT_EQ(sample(warm(), logits, {}, 0, mask), 129);
}

TEST(Sampler, TheDrawDependsOnSeedStepAndLogitsAlone) {
    std::vector<float> logits(300);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
    Sampling s = warm();
    s.seed = 5;
    const int32_t first = sample(s, logits, {}, 10);
    EXPECT_EQ(sample(s, logits, {1, 2, 3}, 10), first);
    std::map<int32_t, int> other_steps, other_seeds;
    for (uint64_t i = 0; i < 50; ++i) {
        ++other_steps[sample(s, logits, {}, i)];
        Sampling t = s;
        t.seed = i + 100;
        ++other_seeds[sample(t, logits, {}, 10)];
    }
    EXPECT_GT(other_steps.size(), 10u);
    EXPECT_GT(other_seeds.size(), 10u);
}

TEST(Sampler, ProbabilitiesAreTheModelsOwn) {
    const std::vector<float> logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
    std::array<TokenProbability, 5> top;
    EXPECT_NEAR(probabilities(logits, 0, top), 0.1, 1e-6);
    EXPECT_EQ(top[0].id, 1);
    EXPECT_NEAR(top[0].p, 0.6, 1e-6);
    EXPECT_EQ(top[1].id, 2);
    EXPECT_NEAR(top[2].p, 0.1, 1e-6);
    EXPECT_EQ(top[3].p, 0);  // there is no fourth
    EXPECT_NEAR(probabilities(logits, 2, {}), 0.3, 1e-6);
}

TEST(Random, NoiseIsUniform) {
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < 100000; ++i) {
        const double u = uniform_noise(1, i / 100, i % 100);
        ASSERT_GT(u, 0);
        ASSERT_LT(u, 1);
        sum += u;
        squares += u * u;
    }
    EXPECT_NEAR(sum / 100000, 0.5, 0.004);
    EXPECT_NEAR(squares / 100000, 1.0 / 3, 0.004);
}

}  // namespace
}  // namespace strata
