// How many guesses a round of writing should check, and whose. Decides by what rounds have cost and what guesses have
// brought.
//
// A round evaluates a row for every conversation that writes, and guesses beside them. What a round of n rows costs is
// measured all the time (the median of the last few, so that one slow round says nothing; old figures are measured
// again). What a guess is worth follows from how often guesses of its kind were right lately. An account keeps the
// promise: a round's time beyond what its tokens would have cost without guesses is a debt, and while the debt exceeds
// two percent of the answer's time there are no guesses.
#pragma once

#include <array>
#include <cstdint>

#include "device/state.h"

namespace strata {

enum class GuessSource { none, repeats, draft };

/// What could be guessed for one conversation.
struct GuessOffer {
    int64_t match_length = 0;  // of the repeat; 0: none
    int repeat_guesses = 0;    // most guesses from the repeat
    int draft_guesses = 0;     // most guesses from the draft block
};

struct GuessChoice {
    GuessSource source = GuessSource::none;
    int guesses = 0;
};

class GuessPolicy {
  public:
    virtual ~GuessPolicy() = default;
    /// An answer begins (alone: no other is being written).
    virtual void answer_begins(bool /*alone*/) {}
    /// For a conversation in a round that has `others` rows beside it.
    virtual GuessChoice choose(const GuessOffer& offer, int others) = 0;
    /// Of the guesses of one conversation the first `right` were right; match_length as offered.
    virtual void checked(GuessChoice /*choice*/, int64_t /*match_length*/, int /*right*/) {}
    /// A repeat that was not asked would have been right or wrong about the next token.
    virtual void observed(int64_t /*match_length*/, bool /*right*/) {}
    /// A round of `rows` rows of `conversations` gave `tokens`; asking the draft block for `asked` guesses took ask_ms
    /// of it.
    virtual void round_took(int /*rows*/, int /*conversations*/, int /*tokens*/, double /*ms*/, int /*asked*/,
                            double /*ask_ms*/) {}
};

/// As many guesses as there are, repeats first: for checks, where answers must not depend on time.
class AlwaysGuess : public GuessPolicy {
  public:
    GuessChoice choose(const GuessOffer& offer, int others) override;
};

class MeasuredGuess : public GuessPolicy {
  public:
    void answer_begins(bool alone) override;
    GuessChoice choose(const GuessOffer& offer, int others) override;
    void checked(GuessChoice choice, int64_t match_length, int right) override;
    void observed(int64_t match_length, bool right) override;
    void round_took(int rows, int conversations, int tokens, double ms, int asked, double ask_ms) override;

    /// Milliseconds of a round of `rows`, by measuring or between what was measured.
    double round_cost(int rows) const;

  private:
    static constexpr int kMaxRows = 64;
    static constexpr int kSamples = 5;
    /// The last few values of something, and when it was measured last.
    struct Measured {
        std::array<double, kSamples> values{};
        int count = 0;
        int64_t when = 0;
        void add(double value, int64_t now);
        double median() const;
    };
    /// How often the next guess was right, old cases weighing less and less.
    struct Rate {
        double right, asked;
        double value() const { return right / asked; }
        void add(bool was_right);
    };

    double expected_tokens(GuessSource source, int64_t match_length, int guesses) const;
    double ask_cost(int guesses) const;
    bool must_measure(int rows) const;
    bool known(int rows) const;
    double draft_rate(int depth) const;
    static size_t length_class(int64_t match_length);

    std::array<Measured, kMaxRows + 1> cost_;
    std::array<Measured, kMaxWindow> ask_cost_;
    std::array<Rate, 7> repeat_rates_{{{0.4, 1}, {0.5, 1}, {0.6, 1}, {0.7, 1}, {0.8, 1}, {0.85, 1}, {0.9, 1}}};
    std::array<Rate, kMaxWindow> draft_rates_{{{1.4, 2}, {1.2, 2}, {1.1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}}};
    int64_t now_ = 0;          // rounds so far
    int64_t asked_draft_ = 0;  // when the draft block was asked last

    double answer_ms_ = 0;  // the account of the answer
    double debt_ms_ = 0;
};

}  // namespace strata
