// What a request asks of the engine: shared by both ends of the line protocol and by the engine itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

/// Most candidates that a sampled token is drawn from.
inline constexpr int kMaxCandidates = 64;

/// How a token is chosen from a row of logits, in this order: bias and penalties, DRY, top_k, typical, top_p, min_p,
/// temperature, draw. Each cut uses what the one before left. Temperature 0 takes the largest, ties to the lower id.
struct Sampling {
    float temperature = 0;      // >= 0
    int top_k = 20;             // candidates kept; 0 or more than kMaxCandidates: kMaxCandidates
    float top_p = 1;            // (0, 1]: smallest set of candidates with this much probability
    float min_p = 0;            // [0, 1]: candidates below min_p times the best one's probability leave
    float typical = 1;          // (0, 1]: locally typical candidates with this much probability; 1: all
    float penalty_repeat = 1;   // > 0: logits of seen tokens are divided by it when positive, multiplied when negative
    float penalty_freq = 0;     // subtracted for every time that a token was seen
    float penalty_present = 0;  // subtracted once from a seen token
    int penalty_last_n = 0;     // how many last tokens of prompt and answer count as seen; 0: none

    float dry_multiplier =
        0;  // 0: off. Penalty of what would continue a repetition: multiplier * base^(length - allowed)
    float dry_base = 1.75f;             // >= 1
    int dry_allowed_length = 2;         // repetitions of up to this many tokens are free
    int dry_last_n = 0;                 // tokens looked through; 0: all
    std::vector<int32_t> dry_breakers;  // a repetition does not reach across these tokens

    std::vector<std::pair<int32_t, float>> bias;  // added to a token's logit
    uint64_t seed = 0;                            // 0: from the clock

    bool operator==(const Sampling&) const = default;
};

struct GenerateRequest {
    int64_t max_new = 1;
    std::vector<int32_t> prompt;
    Sampling sampling;
    std::optional<std::vector<int32_t>> stop_ids;  // the answer ends after one of these; absent: the file's end ids
    std::vector<int32_t> follow;                   // taken instead of the sampled tokens, in order
    std::string grammar;                           // what the tokens behind `follow` must spell; empty: anything.
                                                   // In the form of grammar/grammar_text.h
    int top = 0;                                   // 0..64: likeliest tokens told with every token
    bool state_hash = false;                       // tell a hash of the conversation's state in DONE
    bool draft = true;                             // guesses from a draft block or model
    bool repeats = true;                           // guesses from repeats
    bool cache = true;                             // start from an earlier conversation where the prompt continues it
    std::optional<int64_t> turn_at;                // row where the last turn of the prompt begins
    std::string rows_file;                         // GENI: rows of the prompt's pictures
    std::optional<int32_t> image_pad;              // GENI: the id that stands where a picture's row goes

    bool operator==(const GenerateRequest&) const = default;
};

}  // namespace strata
