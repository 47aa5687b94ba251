// From a row of logits to a token: protocol/request.h says what each setting does and in which order.
//
// Drawing uses the Gumbel trick with noise that depends on (seed, step, token) alone. So the same request and seed give
// the same tokens with and without guesses, and a guess drawn from a draft's logits with the noise of its step is right
// about as often as two draws can agree. Taking a guess only when it equals the draw is rejection sampling of a point
// guess: the answer's distribution is exactly the model's.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/lines.h"
#include "protocol/request.h"

namespace strata {

using protocol::TokenProbability;

/// Bits of allowed tokens, bit i % 64 of word i / 64 for id i; (vocabulary + 63) / 64 words. Empty: all are allowed.
using AllowedTokens = std::span<const uint64_t>;

/// Limits the tokens of an answer, for structured output. Asked once a token, in order.
class TokenConstraint {
  public:
    virtual ~TokenConstraint() = default;
    /// What may come next. Valid until accept.
    virtual AllowedTokens allowed() = 0;
    /// False, and nothing changes, where the token is not allowed.
    virtual bool accept(int32_t token) = 0;
    /// Nothing more may come: the answer is over.
    virtual bool complete() const = 0;

    /// What is accepted between the two are guesses: come_back() forgets them. Not nested.
    virtual void look_ahead() = 0;
    virtual void come_back() = 0;
};

/// The settings of one request and the tokens that count as seen. Allocates in the constructor and in begin only. Not
/// thread-safe.
class Sampler {
  public:
    explicit Sampler(int vocabulary) : vocabulary_(vocabulary) {}

    /// Starts a request that will have up to max_tokens tokens, the prompt's included. Biases outside the vocabulary
    /// are ignored.
    void begin(const Sampling& sampling, uint64_t seed, int64_t max_tokens);

    /// The next token of the conversation: of the prompt, of the answer, or a guess that is followed.
    void accept(int32_t token);
    /// Takes the last accepted token back.
    void retract();

    /// The token for a step of the answer (0 for its first). Changes the logits [vocabulary]. Where nothing can be
    /// drawn (all are minus infinity or not a number): the lowest allowed id.
    int32_t sample(std::span<float> logits, uint64_t step, AllowedTokens allowed = {});

    /// Where the logits do not matter: no bias, penalty or cut can change the largest.
    bool greedy_and_plain() const;

  private:
    struct Candidate {
        float logit;
        int32_t id;
        double p;
    };
    struct Seen {
        int32_t token;
        int32_t count;
    };

    bool has_penalties() const;
    bool in_vocabulary(int32_t token) const { return token >= 0 && token < vocabulary_; }
    void see(int32_t token);
    void unsee(int32_t token);
    void apply_penalties(std::span<float> logits) const;
    void apply_dry(std::span<float> logits);
    void pick_candidates(std::span<const float> logits, int count);
    void set_probabilities();
    void cut_typical();
    void cut_top_p();
    void cut_min_p();
    int32_t draw(uint64_t step) const;

    const int vocabulary_;
    Sampling sampling_;
    uint64_t seed_ = 0;
    std::vector<int32_t> history_;
    std::vector<Seen> seen_;      // distinct tokens among the last penalty_last_n
    std::vector<int32_t> place_;  // [vocabulary]: 1 + place in seen_; 0: not seen. Empty without penalties

    std::vector<int32_t> matches_;        // DRY: lengths of matches with the history's end
    std::vector<int32_t> longest_;        // [vocabulary]: DRY: longest repetition that a token would continue
    std::vector<int32_t> continuations_;  // tokens with longest_ > 0

    std::array<Candidate, kMaxCandidates> candidates_;  // best first
    int count_ = 0;
};

/// The model's own probabilities (temperature 1, no penalties) of one token and of the likeliest ones, best first, as
/// many as `top` holds. Returns the probability of `token`.
float probabilities(std::span<const float> logits, int32_t token, std::span<TokenProbability> top);

/// The largest logit's token, ties to the lower id; 0 where all are not a number.
int32_t likeliest(std::span<const float> logits);

}  // namespace strata
