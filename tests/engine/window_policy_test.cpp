#include "engine/window_policy.h"

#include <functional>
#include <gtest/gtest.h>
#include <random>

namespace strata {
namespace {

/// A machine whose rounds cost cost(rows), and text in which a guess is right with some probability.
struct World {
    std::function<double(int rows)> cost;
    double right = 0.5;  // of the next guess, after right ones
    double ask = 0;      // milliseconds of a draft guess
    GuessOffer offer{4, 7, 0};
    uint32_t seed = 1;
};

struct Outcome {
    double ms = 0, tokens = 0, guesses = 0;
};

Outcome write(MeasuredGuess& policy, const World& world, int tokens) {
    std::mt19937 random(world.seed);
    std::uniform_real_distribution<double> uniform;
    Outcome outcome;
    policy.answer_begins(true);
    while (outcome.tokens < tokens) {
        const GuessChoice choice = policy.choose(world.offer, 0);
        int right = 0;
        while (right < choice.guesses && uniform(random) < world.right) ++right;
        if (choice.guesses > 0) policy.checked(choice, world.offer.match_length, right);
        if (choice.source != GuessSource::repeats && world.offer.repeat_guesses > 0)
            policy.observed(world.offer.match_length, uniform(random) < world.right);
        const double ask_ms = choice.source == GuessSource::draft ? world.ask * choice.guesses : 0;
        const double ms = world.cost(1 + choice.guesses) + ask_ms;
        policy.round_took(1 + choice.guesses, 1, 1 + right, ms,
                          choice.source == GuessSource::draft ? choice.guesses : 0, ask_ms);
        outcome.ms += ms;
        outcome.tokens += 1 + right;
        outcome.guesses += choice.guesses;
    }
    return outcome;
}

double speed_gain(const World& world, int tokens, MeasuredGuess& policy) {
    const Outcome outcome = write(policy, world, tokens);
    return outcome.tokens * world.cost(1) / outcome.ms;
}

double speed_gain(const World& world, int tokens) {
    MeasuredGuess policy;
    return speed_gain(world, tokens, policy);
}

TEST(MeasuredGuess, NeverCostsMoreThanThreePercentOfAnAnswer) {
    for (const double row : {0.02, 0.1, 0.3, 0.7, 1.0, 2.0})
        for (const double right : {0.0, 0.05, 0.2, 0.5, 0.8, 1.0})
            for (const double ask : {0.0, 0.1, 1.0})
                for (const int tokens : {200, 1000}) {
                    World world{[row](int rows) { return 10 * (1 + row * (rows - 1)); }, right, ask * 10};
                    if (ask > 0) world.offer = {0, 0, 3};
                    EXPECT_GT(speed_gain(world, tokens), 0.97)
                        << "row " << row << ", right " << right << ", ask " << ask << ", tokens " << tokens;
                }
}

TEST(MeasuredGuess, TakesMostOfWhatThereIsToGain) {
    // Rows nearly free and guesses nearly always right: close to eight tokens a round.
    EXPECT_GT(speed_gain({[](int rows) { return 10 + 0.1 * rows; }, 0.98}, 1000), 5.5);
    // Half right: two tokens a round at 1.3 times the cost.
    EXPECT_GT(speed_gain({[](int rows) { return 10 + 0.5 * rows; }, 0.5}, 1000), 1.35);
}

TEST(MeasuredGuess, DoesNotGuessWhereRowsCostAsMuchAsRounds) {
    MeasuredGuess policy;
    const World world{[](int rows) { return 10.0 * rows; }, 0.3};
    const Outcome outcome = write(policy, world, 2000);
    EXPECT_LT(outcome.guesses, 60);
}

TEST(MeasuredGuess, OneSlowRoundChangesNothing) {
    MeasuredGuess policy;
    const World world{[](int rows) { return 10 + 0.5 * rows; }, 0.9};
    write(policy, world, 300);
    const double before = policy.round_cost(8);
    policy.round_took(8, 1, 8, 1000, 0, 0);
    EXPECT_EQ(policy.round_cost(8), before);
}

TEST(MeasuredGuess, FollowsAMachineThatChanges) {
    // First rows are dear, then (another program has ended) nearly free; and the other way around.
    for (const bool better : {true, false}) {
        MeasuredGuess policy;
        const World dear{[](int rows) { return 10.0 * rows; }, 0.8},
            cheap{[](int rows) { return 10 + 0.2 * rows; }, 0.8};
        write(policy, better ? dear : cheap, 1500);
        const double gain = speed_gain(better ? cheap : dear, 3000, policy);
        if (better)
            EXPECT_GT(gain, 2.0);
        else
            EXPECT_GT(gain, 0.97);
    }
}

TEST(MeasuredGuess, FollowsTextThatChanges) {
    MeasuredGuess policy;
    World world{[](int rows) { return 10 + 1.5 * rows; }, 0.95};
    EXPECT_GT(speed_gain(world, 1000, policy), 2.0);
    world.right = 0.02;
    EXPECT_GT(speed_gain(world, 5000, policy), 0.97);
    world.right = 0.95;
    EXPECT_GT(speed_gain(world, 1000, policy), 2.0);
    // The same of a draft block, which cannot be watched without asking.
    world.offer = {0, 0, 7};
    world.ask = 0.3;
    EXPECT_GT(speed_gain(world, 1000, policy), 1.7);
    world.right = 0.02;
    EXPECT_GT(speed_gain(world, 5000, policy), 0.97);
    world.right = 0.95;
    EXPECT_GT(speed_gain(world, 2000, policy), 1.5);
}

TEST(MeasuredGuess, PrefersTheSourceThatBringsMore) {
    MeasuredGuess policy;
    World world{[](int rows) { return 10 + 0.3 * rows; }, 0.9, 0.2};
    world.offer = {1, 3, 3};  // a repeat of one token against a draft block
    write(policy, world, 300);
    // From here on repeats are wrong and drafts right.
    int drafts = 0, repeats = 0;
    for (int round = 0; round < 600; ++round) {
        const GuessChoice choice = policy.choose(world.offer, 0);
        const int right = choice.source == GuessSource::draft ? choice.guesses : 0;
        if (choice.guesses > 0) policy.checked(choice, 1, right);
        policy.round_took(1 + choice.guesses, 1, 1 + right, world.cost(1 + choice.guesses), 0, 0);
        if (round >= 300) (choice.source == GuessSource::draft ? drafts : repeats) += choice.guesses > 0;
    }
    EXPECT_GT(drafts, 20 * repeats);
}

}  // namespace
}  // namespace strata
