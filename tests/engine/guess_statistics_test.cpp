// Guesses at a temperature: the answer's distribution is exactly the model's, whatever was guessed and by whom.
#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "toy_bench.h"

namespace strata {
namespace {

constexpr int kTokens = 5, kLength = 3;  // 125 answers
constexpr int kAnswers = 8000;
constexpr double kTemperature = 0.9;

using Distribution = std::map<std::vector<int32_t>, double>;

std::vector<int32_t> prompt() {
    std::mt19937 random(3);
    std::vector<int32_t> ids(60);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % kTokens);
    return ids;
}

/// The model's own: products of softmax(logits / temperature) along every answer, from plain readings.
Distribution model_distribution(double temperature) {
    ToyBench bench({.vocabulary = kTokens});
    Distribution begun{{{}, 1.0}};
    for (int step = 0; step < kLength; ++step) {
        Distribution longer;
        for (const auto& [ids, p] : begun) {
            std::vector<int32_t> text = prompt();
            text.insert(text.end(), ids.begin(), ids.end());
            EngineRequest request = asking(text, 1);
            request.every_logits = true;
            auto engine = bench.engine(plain_limits(128, 64));
            const Recorder got = answer(*engine, request);
            const std::vector<float>& logits = got.rows_of_logits.back();
            double sum = 0;
            for (const float x : logits) sum += std::exp(x / temperature);
            for (int32_t id = 0; id < kTokens; ++id) {
                std::vector<int32_t> next = ids;
                next.push_back(id);
                longer[next] = p * std::exp(logits[static_cast<size_t>(id)] / temperature) / sum;
            }
        }
        begun = std::move(longer);
    }
    return begun;
}

struct Drawn {
    Distribution counts;
    int offered = 0, accepted = 0;
};

/// Answers with the seeds from 1 on.
Drawn draw(bool drafts, bool repeats) {
    ToyBench bench({.vocabulary = kTokens});
    auto engine =
        bench.engine({.max_context = 128, .prompt_batch = 64, .window = 4, .drafts = drafts, .repeats = repeats});
    if (drafts && repeats)
        engine->set_policy(std::make_unique<RandomGuess>(7));
    else
        engine->set_policy(std::make_unique<AlwaysGuess>());
    Drawn drawn;
    for (uint64_t seed = 1; seed <= kAnswers; ++seed) {
        EngineRequest request = asking(prompt(), kLength);
        request.sampling.temperature = static_cast<float>(kTemperature);
        request.sampling.top_k = 0;
        request.sampling.seed = seed;
        const Recorder got = answer(*engine, request, false);
        ++drawn.counts[got.tokens];
        drawn.offered += got.summary->offered;
        drawn.accepted += got.summary->accepted;
    }
    return drawn;
}

struct ChiSquare {
    double value = 0;
    int degrees = -1;

    /// What chance exceeds once in 30,000 times (Wilson and Hilferty 1931, four standard deviations).
    double limit() const {
        const double a = 2.0 / (9.0 * degrees), x = 1 - a + 4 * std::sqrt(a);
        return degrees * x * x * x;
    }
};

/// Pearson's, of counts against a distribution; answers that are expected fewer than five times count as one.
ChiSquare chi_square(const Distribution& counts, const Distribution& expected) {
    ChiSquare result;
    double rare = 0, rare_expected = 0;
    const auto add = [&](double count, double expectation) {
        result.value += (count - expectation) * (count - expectation) / expectation;
        ++result.degrees;
    };
    for (const auto& [ids, p] : expected) {
        const auto found = counts.find(ids);
        const double count = found == counts.end() ? 0 : found->second, expectation = p * kAnswers;
        if (expectation >= 5) {
            add(count, expectation);
        } else {
            rare += count;
            rare_expected += expectation;
        }
    }
    if (rare_expected > 0) add(rare, rare_expected);
    return result;
}

TEST(GuessStatistics, AnswersWithGuessesAreDrawnFromTheModelsDistribution) {
    const Distribution model = model_distribution(kTemperature);
    struct Sources {
        bool drafts, repeats;
    };
    for (const Sources sources : {Sources{false, false}, {true, false}, {false, true}, {true, true}}) {
        SCOPED_TRACE(testing::Message() << "drafts " << sources.drafts << ", repeats " << sources.repeats);
        const Drawn drawn = draw(sources.drafts, sources.repeats);
        if (sources.drafts || sources.repeats) {  // many guesses are right, and many are not
            EXPECT_GT(drawn.accepted, kAnswers / 4);
            EXPECT_GT(drawn.offered - drawn.accepted, kAnswers / 4);
        }
        const ChiSquare fit = chi_square(drawn.counts, model);
        EXPECT_GT(fit.degrees, 60);
        EXPECT_LT(fit.value, fit.limit());
    }
}

TEST(GuessStatistics, TheTestSeesADistributionThatIsALittleOff) {
    const ChiSquare warmer = chi_square(draw(true, true).counts, model_distribution(kTemperature + 0.15));
    EXPECT_GT(warmer.value, warmer.limit());
}

}  // namespace
}  // namespace strata
