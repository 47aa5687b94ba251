#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/ops_kernels.h"
#include "engine/random.h"

namespace strata {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Calls take(value, index) for values above `threshold`, in ascending order; take returns the new threshold. Whole
/// blocks below it cost one comparison a value.
template <class Take>
void scan_above(std::span<const float> values, float threshold, Take take) {
    constexpr size_t kBlock = 32;
    size_t i = 0;
    for (; i + kBlock <= values.size(); i += kBlock) {
        const float* block = values.data() + i;
        int above = 0;
        for (size_t j = 0; j < kBlock; ++j) above |= static_cast<int>(block[j] > threshold);
        if (!above) continue;
        for (size_t j = 0; j < kBlock; ++j)
            if (block[j] > threshold) threshold = take(block[j], static_cast<int32_t>(i + j));
    }
    for (; i < values.size(); ++i)
        if (values[i] > threshold) threshold = take(values[i], static_cast<int32_t>(i));
}

/// The `count` largest values, best first, ties to the lower index; fewer where fewer are numbers above minus infinity.
template <class Item>
int largest(std::span<const float> values, int count, Item* out) {
    // The worst lies in front (a heap). A later equal value has a higher index: it loses.
    const auto better = [](const Item& a, const Item& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    };
    int have = 0;
    scan_above(values, kNever, [&](float value, int32_t id) {
        if (have == count) std::pop_heap(out, out + have--, better);
        out[have].logit = value;
        out[have].id = id;
        std::push_heap(out, out + ++have, better);
        return have == count ? out[0].logit : kNever;
    });
    std::sort(out, out + have, better);
    return have;
}

int32_t first_allowed(AllowedTokens allowed, int vocabulary) {
    for (size_t word = 0; word < allowed.size(); ++word)
        if (allowed[word])
            return std::min(static_cast<int32_t>(word * 64) + __builtin_ctzll(allowed[word]), vocabulary - 1);
    return 0;
}

void apply_mask(std::span<float> logits, AllowedTokens allowed) {
    for (size_t i = 0; i < logits.size(); i += 64) {
        const uint64_t word = i / 64 < allowed.size() ? allowed[i / 64] : 0;
        if (word == ~uint64_t{0}) continue;
        const size_t end = std::min(logits.size(), i + 64);
        for (size_t j = i; j < end; ++j)
            if (!(word >> (j - i) & 1)) logits[j] = kNever;
    }
}

}  // namespace

int32_t likeliest(std::span<const float> logits) {
    int32_t best = 0;
    scan_above(logits, kNever, [&](float value, int32_t id) {
        best = id;
        return value;
    });
    return best;
}

float probabilities(std::span<const float> logits, int32_t token, std::span<TokenProbability> top) {
    struct Item {
        float logit;
        int32_t id;
    };
    std::array<Item, kMaxCandidates> best;
    const int wanted = std::clamp(static_cast<int>(top.size()), 1, kMaxCandidates);
    const int have = largest(logits, wanted, best.data());
    const float max = have > 0 ? best[0].logit : 0.0f;
    static const cpu::OpKernels& kernels = cpu::op_kernels(cpu::best_simd());
    const double sum = kernels.exp_sum(logits.data(), max, static_cast<int>(logits.size()));
    const auto p = [&](float x) {
        const double value = std::exp(static_cast<double>(x) - max) / sum;
        return static_cast<float>(std::isfinite(value) ? std::min(value, 1.0) : 0.0);
    };
    for (size_t i = 0; i < top.size(); ++i)
        top[i] = static_cast<int>(i) < have ? TokenProbability{best[i].id, p(best[i].logit)} : TokenProbability{0, 0};
    return p(logits[static_cast<size_t>(token)]);
}

// ---- what was seen
// ----------------------------------------------------------------------------------------------------------

bool Sampler::has_penalties() const {
    return sampling_.penalty_last_n > 0 &&
           (sampling_.penalty_repeat != 1 || sampling_.penalty_freq != 0 || sampling_.penalty_present != 0);
}

bool Sampler::greedy_and_plain() const {
    return sampling_.temperature == 0 && !has_penalties() && sampling_.dry_multiplier == 0 && sampling_.bias.empty();
}

void Sampler::begin(const Sampling& sampling, uint64_t seed, int64_t max_tokens) {
    sampling_ = sampling;
    seed_ = seed;
    history_.clear();
    history_.reserve(static_cast<size_t>(max_tokens));
    seen_.clear();
    place_.clear();
    if (has_penalties()) {
        place_.resize(static_cast<size_t>(vocabulary_));
        seen_.reserve(static_cast<size_t>(std::min<int64_t>({sampling_.penalty_last_n, vocabulary_, max_tokens})) + 1);
    }
    longest_.clear();
    if (sampling_.dry_multiplier > 0) {
        longest_.resize(static_cast<size_t>(vocabulary_));
        matches_.reserve(static_cast<size_t>(max_tokens));
        continuations_.reserve(static_cast<size_t>(std::min<int64_t>(vocabulary_, max_tokens)));
    }
}

void Sampler::accept(int32_t token) {
    history_.push_back(token);
    if (place_.empty()) return;
    see(token);
    const auto window = static_cast<size_t>(sampling_.penalty_last_n);
    if (history_.size() > window) unsee(history_[history_.size() - window - 1]);
}

void Sampler::retract() {
    const int32_t token = history_.back();
    if (!place_.empty()) {
        const auto window = static_cast<size_t>(sampling_.penalty_last_n);
        if (history_.size() > window) see(history_[history_.size() - window - 1]);
        unsee(token);
    }
    history_.pop_back();
}

void Sampler::see(int32_t token) {
    if (!in_vocabulary(token)) return;
    int32_t& place = place_[static_cast<size_t>(token)];
    if (place > 0) {
        ++seen_[static_cast<size_t>(place - 1)].count;
        return;
    }
    seen_.push_back({token, 1});
    place = static_cast<int32_t>(seen_.size());
}

void Sampler::unsee(int32_t token) {
    if (!in_vocabulary(token)) return;
    int32_t& place = place_[static_cast<size_t>(token)];
    Seen& entry = seen_[static_cast<size_t>(place - 1)];
    if (--entry.count > 0) return;
    // The last entry takes the free place.
    place_[static_cast<size_t>(seen_.back().token)] = place;
    entry = seen_.back();
    seen_.pop_back();
    place_[static_cast<size_t>(token)] = 0;
}

// ---- what changes logits
// ----------------------------------------------------------------------------------------------------

void Sampler::apply_penalties(std::span<float> logits) const {
    for (const Seen& seen : seen_) {
        float& x = logits[static_cast<size_t>(seen.token)];
        x = x > 0 ? x / sampling_.penalty_repeat : x * sampling_.penalty_repeat;
        x -= static_cast<float>(seen.count) * sampling_.penalty_freq + sampling_.penalty_present;
    }
}

/// For every earlier place where the history's end occurs, the token that came after it would continue a repetition.
/// Lengths of the matches: the Z algorithm over the history read backwards.
void Sampler::apply_dry(std::span<float> logits) {
    size_t n = history_.size();
    if (sampling_.dry_last_n > 0) n = std::min(n, static_cast<size_t>(sampling_.dry_last_n));
    const auto back = [&](size_t i) { return history_[history_.size() - 1 - i]; };
    const auto is_breaker = [&](int32_t token) {
        return std::find(sampling_.dry_breakers.begin(), sampling_.dry_breakers.end(), token) !=
               sampling_.dry_breakers.end();
    };
    size_t reach = 0;  // tokens at the end that a repetition may have
    while (reach < n && !is_breaker(back(reach))) ++reach;

    matches_.assign(n, 0);
    continuations_.clear();
    for (size_t k = 1, left = 0, right = 0; k < n; ++k) {  // [left, right): the match that reaches farthest back
        size_t z = k < right ? std::min<size_t>(right - k, static_cast<size_t>(matches_[k - left])) : 0;
        while (k + z < n && back(z) == back(k + z)) ++z;
        matches_[k] = static_cast<int32_t>(z);
        if (k + z > right) {
            left = k;
            right = k + z;
        }
        const auto length = static_cast<int32_t>(std::min(z, reach));
        const int32_t next = back(k - 1);
        if (length < std::max(sampling_.dry_allowed_length, 1) || !in_vocabulary(next)) continue;
        int32_t& longest = longest_[static_cast<size_t>(next)];
        if (longest == 0) continuations_.push_back(next);
        longest = std::max(longest, length);
    }
    for (const int32_t token : continuations_) {
        int32_t& length = longest_[static_cast<size_t>(token)];
        const float penalty = sampling_.dry_multiplier *
                              std::pow(sampling_.dry_base, static_cast<float>(length - sampling_.dry_allowed_length));
        logits[static_cast<size_t>(token)] -= std::min(penalty, 1e9f);
        length = 0;
    }
}

// ---- what cuts
// --------------------------------------------------------------------------------------------------------------

void Sampler::pick_candidates(std::span<const float> logits, int count) {
    count_ = largest(logits, count, candidates_.data());
    set_probabilities();
}

/// Probabilities of the candidates among themselves.
void Sampler::set_probabilities() {
    double sum = 0;
    for (int i = 0; i < count_; ++i)
        sum += candidates_[i].p = std::exp(static_cast<double>(candidates_[i].logit) - candidates_[0].logit);
    for (int i = 0; i < count_; ++i) candidates_[i].p /= sum;
}

/// Locally typical (Meister et al. 2022): those whose surprise is nearest to the entropy, until they have `typical` of
/// the probability.
void Sampler::cut_typical() {
    double entropy = 0;
    for (int i = 0; i < count_; ++i)
        if (candidates_[i].p > 0) entropy -= candidates_[i].p * std::log(candidates_[i].p);
    const auto oddness = [&](const Candidate& c) { return std::abs(-std::log(c.p) - entropy); };
    Candidate* begin = candidates_.data();
    std::sort(begin, begin + count_, [&](const Candidate& a, const Candidate& b) {
        const double x = oddness(a), y = oddness(b);
        return x < y || (x == y && (a.logit > b.logit || (a.logit == b.logit && a.id < b.id)));
    });
    double sum = 0;
    int kept = 0;
    while (kept < count_ && sum < sampling_.typical) sum += candidates_[kept++].p;
    count_ = kept;
    std::sort(begin, begin + count_, [](const Candidate& a, const Candidate& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    });
    set_probabilities();
}

void Sampler::cut_top_p() {
    double sum = 0;
    int kept = 0;
    while (kept < count_ && sum < sampling_.top_p) sum += candidates_[kept++].p;
    count_ = kept;
    set_probabilities();
}

void Sampler::cut_min_p() {
    const double least = sampling_.min_p * candidates_[0].p;
    while (count_ > 1 && candidates_[count_ - 1].p < least) --count_;
}

int32_t Sampler::draw(uint64_t step) const {
    double best = -std::numeric_limits<double>::infinity();
    int32_t token = candidates_[0].id;
    for (int i = 0; i < count_; ++i) {
        const Candidate& c = candidates_[i];
        const double key = (static_cast<double>(c.logit) - candidates_[0].logit) / sampling_.temperature +
                           gumbel_noise(seed_, step, static_cast<uint64_t>(c.id));
        if (key > best || (key == best && c.id < token)) {
            best = key;
            token = c.id;
        }
    }
    return token;
}

int32_t Sampler::sample(std::span<float> logits, uint64_t step, AllowedTokens allowed) {
    for (const auto& [token, value] : sampling_.bias)
        if (in_vocabulary(token)) logits[static_cast<size_t>(token)] += value;
    if (!place_.empty()) apply_penalties(logits);
    if (sampling_.dry_multiplier > 0) apply_dry(logits);
    if (!allowed.empty()) apply_mask(logits, allowed);

    const bool greedy = sampling_.temperature == 0;
    const int top_k = sampling_.top_k > 0 ? std::min(sampling_.top_k, kMaxCandidates) : kMaxCandidates;
    pick_candidates(logits, greedy ? 1 : top_k);
    if (count_ == 0) return first_allowed(allowed, vocabulary_);
    if (greedy) return candidates_[0].id;
    if (sampling_.typical < 1) cut_typical();
    if (sampling_.top_p < 1) cut_top_p();
    if (sampling_.min_p > 0) cut_min_p();
    return draw(step);
}

}  // namespace strata
