#include "engine/window_policy.h"

#include <algorithm>
#include <limits>

namespace strata {
namespace {

constexpr int64_t kRemeasurePlain = 64;     // rounds between looks at what a round without guesses costs
constexpr int64_t kForgetCost = 512;        // rounds after which a figure is no longer believed
constexpr int64_t kForgetDraft = 256;       // rounds without the draft block after which it gets another chance
constexpr double kMemory = 1.0 - 1.0 / 48;  // weight of an older case against the next
constexpr double kUnknownRow = 0.15;        // of a plain round: what another row may cost where nothing is known yet
constexpr double kMargin = 1.03;            // guesses must promise this much
constexpr double kAllowedDebt = 0.02;       // of the answer's time
constexpr double kFirstDebt = 0.5;          // plain rounds, so that a first look can be taken

}  // namespace

GuessChoice AlwaysGuess::choose(const GuessOffer& offer, int) {
    if (offer.repeat_guesses > 0) return {GuessSource::repeats, offer.repeat_guesses};
    if (offer.draft_guesses > 0) return {GuessSource::draft, offer.draft_guesses};
    return {};
}

void MeasuredGuess::Measured::add(double value, int64_t now) {
    if (count > 0 && now - when > kForgetCost) count = 0;
    if (count == kSamples) std::move(values.begin() + 1, values.end(), values.begin());
    values[static_cast<size_t>(std::min(count, kSamples - 1))] = value;
    count = std::min(count + 1, kSamples);
    when = now;
}

double MeasuredGuess::Measured::median() const {
    std::array<double, kSamples> sorted = values;
    std::fill(sorted.begin() + count, sorted.end(), std::numeric_limits<double>::infinity());
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<size_t>((count - 1) / 2)];
}

void MeasuredGuess::Rate::add(bool was_right) {
    right = right * kMemory + (was_right ? 1 : 0);
    asked = asked * kMemory + 1;
}

size_t MeasuredGuess::length_class(int64_t match_length) {
    constexpr std::array<int64_t, 6> kBelow = {2, 3, 4, 6, 9, 17};
    return static_cast<size_t>(std::upper_bound(kBelow.begin(), kBelow.end(), match_length) - kBelow.begin());
}

void MeasuredGuess::answer_begins(bool alone) {
    if (!alone) return;
    answer_ms_ = debt_ms_ = 0;
}

bool MeasuredGuess::known(int rows) const {
    const Measured& m = cost_[static_cast<size_t>(rows)];
    return m.count > 0 && now_ - m.when <= kForgetCost;
}

double MeasuredGuess::round_cost(int rows) const {
    rows = std::min(rows, kMaxRows);
    const auto at = [&](int n) { return cost_[static_cast<size_t>(n)].median(); };
    if (known(rows)) return at(rows);
    int below = rows - 1, above = rows + 1;
    while (below > 0 && !known(below)) --below;
    while (above <= kMaxRows && !known(above)) ++above;
    if (below == 0) return above <= kMaxRows ? at(above) : 0;
    if (above <= kMaxRows) {
        const double share = static_cast<double>(rows - below) / (above - below);
        return at(below) + share * std::max(0.0, at(above) - at(below));
    }
    // Beyond what was measured: as the measured ones rise, else a hopeful guess that a trial will correct.
    int least = 1;
    while (least < below && !known(least)) ++least;
    const double slope =
        least < below ? std::max(0.0, at(below) - at(least)) / (below - least) : kUnknownRow * at(below);
    return at(below) + slope * (rows - below);
}

double MeasuredGuess::ask_cost(int guesses) const {
    const auto g = static_cast<size_t>(guesses);
    if (ask_cost_[g].count > 0) return ask_cost_[g].median();
    for (size_t n = g; n > 0; --n)
        if (ask_cost_[n].count > 0) return ask_cost_[n].median() * static_cast<double>(g) / static_cast<double>(n);
    for (size_t n = g + 1; n < ask_cost_.size(); ++n)
        if (ask_cost_[n].count > 0) return ask_cost_[n].median() * static_cast<double>(g) / static_cast<double>(n);
    return kUnknownRow * round_cost(1) * guesses;
}

/// A block that has not been asked for long may have become better than it was.
double MeasuredGuess::draft_rate(int depth) const {
    const double rate = draft_rates_[static_cast<size_t>(depth)].value();
    return now_ - asked_draft_ > kForgetDraft ? std::max(rate, 0.5) : rate;
}

double MeasuredGuess::expected_tokens(GuessSource source, int64_t match_length, int guesses) const {
    double tokens = 1, all_right = 1;
    for (int i = 0; i < guesses; ++i) {
        all_right *=
            source == GuessSource::draft ? draft_rate(i) : repeat_rates_[length_class(match_length + i)].value();
        tokens += all_right;
    }
    return tokens;
}

/// A round of this size without guesses has not been seen for a while.
bool MeasuredGuess::must_measure(int rows) const {
    const Measured& m = cost_[static_cast<size_t>(std::min(rows, kMaxRows))];
    return m.count < 2 || now_ - m.when > kRemeasurePlain;
}

GuessChoice MeasuredGuess::choose(const GuessOffer& offer, int others) {
    if (others + kMaxWindow > kMaxRows || must_measure(others + 1)) return {};
    const double plain = round_cost(others + 1);
    if (debt_ms_ > kAllowedDebt * answer_ms_ + kFirstDebt * plain) return {};
    // Tokens a millisecond of the whole round; the others bring one each.
    double best = (others + 1) / plain * kMargin;
    // A size that was never tried may cost anything: at most twice the largest that is known.
    int largest = std::min(others + kMaxWindow, kMaxRows);
    while (largest > others + 1 && !known(largest)) --largest;
    GuessChoice choice;
    const auto consider = [&](GuessSource source, int most) {
        for (int guesses = 1; guesses <= std::min({most, kMaxWindow - 1, 2 * (largest - others) - 1}); ++guesses) {
            const double ms = round_cost(others + 1 + guesses) + (source == GuessSource::draft ? ask_cost(guesses) : 0);
            const double rate = (others + expected_tokens(source, offer.match_length, guesses)) / ms;
            if (rate <= best) continue;
            best = rate;
            choice = {source, guesses};
        }
    };
    consider(GuessSource::repeats, offer.repeat_guesses);
    consider(GuessSource::draft, offer.draft_guesses);
    return choice;
}

void MeasuredGuess::checked(GuessChoice choice, int64_t match_length, int right) {
    for (int i = 0; i < choice.guesses && i <= right; ++i) {
        if (choice.source == GuessSource::draft) draft_rates_[static_cast<size_t>(i)].add(i < right);
        if (choice.source == GuessSource::repeats) repeat_rates_[length_class(match_length + i)].add(i < right);
    }
}

void MeasuredGuess::observed(int64_t match_length, bool right) {
    repeat_rates_[length_class(match_length)].add(right);
}

void MeasuredGuess::round_took(int rows, int conversations, int tokens, double ms, int asked, double ask_ms) {
    ++now_;
    if (asked > 0) asked_draft_ = now_;
    if (rows <= kMaxRows) cost_[static_cast<size_t>(rows)].add(ms - ask_ms, now_);
    if (asked > 0 && asked < kMaxWindow) ask_cost_[static_cast<size_t>(asked)].add(ask_ms, now_);
    answer_ms_ += ms;
    if (rows == conversations && asked == 0) return;
    // A round without guesses gives one token a conversation.
    const double without = round_cost(conversations) * tokens / conversations;
    debt_ms_ += ms - without;
}

}  // namespace strata
