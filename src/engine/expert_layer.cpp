// What the expert cache does inside of a layer: who computes which expert of the call (ExpertHost).
#include <algorithm>
#include <cmath>

#include "engine/expert_store.h"

namespace strata {
namespace {

using std::chrono::duration;

constexpr double kSwapShare = 0.5;   // of the link's rate: what swaps may use while an answer is written
constexpr double kSwapMargin = 1.2;  // an expert takes another's place when its score is so many times as high
constexpr uint64_t kMostCredit = uint64_t{64} << 20;

/// Calls of about the same size: a window, then as --cpu-share's rates are kept.
int class_of(int rows) {
    return rows <= kMaxWindow ? 0 : rows < 64 ? 1 : rows < 128 ? 2 : rows < 256 ? 3 : rows < 512 ? 4 : 5;
}

}  // namespace

void ExpertStore::begin_call(int rows, Work work) {
    work_ = work;
    row_hits_.assign(static_cast<size_t>(rows), 0);
    first_layer_ = true;
    rows_ = rows;
    ahead_.layer = -1;
    rows_class_ = class_of(rows);
    if (work != Work::draft) cache_.pass(rows);
    const auto now = Clock::now();
    credit_ += duration<double>(now - last_call_).count() * link_rate_ * kSwapShare;
    credit_ = std::min(credit_, static_cast<double>(std::max(kMostCredit, 2 * largest_)));
    last_call_ = now;
}

void ExpertStore::begin(const ExpertCall& call) {
    in_layer_ = true;
    set_ = call.set;
    if (!first_layer_) counters_.card_ms += duration<double, std::milli>(Clock::now() - last_layer_).count();
    first_layer_ = false;
    see_arrivals();
    gather(call);
    if (work_ == Work::write) leave_out();
    share_out();
    first_round_ = true;
}

/// The call's experts, their use, and where they are.
void ExpertStore::gather(const ExpertCall& call) {
    const Routing& routing = call.routing;
    const int layer = set_->layer, used = routing.used;
    experts_ = {routing.experts, static_cast<size_t>(routing.rows) * static_cast<size_t>(used)};
    asked_.clear();
    asked_at_.assign(static_cast<size_t>(set_->gate.count), -1);
    cache_.begin_call();
    ExpertCounters::Layer& counts = counters_.layers[static_cast<size_t>(layer)];
    for (int row = 0; row < routing.rows; ++row) {
        const float* weights = routing.weights + static_cast<int64_t>(row) * used;
        float sum = 0;
        for (int rank = 0; rank < used; ++rank) sum += weights[rank];
        for (int rank = 0; rank < used; ++rank) {
            const int expert = experts_[static_cast<size_t>(row * used + rank)];
            const Expert e{layer, expert};
            int& at = asked_at_[static_cast<size_t>(expert)];
            if (at < 0) {
                at = static_cast<int>(asked_.size());
                asked_.push_back({.expert = expert, .pairs = 0, .best_rank = rank, .best_part = 0});
                if (cache_.place(e) == ExpertCache::Place::here) {
                    asked_.back().where = Asked::Where::card;
                    asked_.back().slot = address_[static_cast<size_t>(cache_.slot(e))];
                }
            }
            Asked& asked = asked_[static_cast<size_t>(at)];
            ++asked.pairs;
            asked.best_rank = std::min(asked.best_rank, rank);
            if (sum > 0) asked.best_part = std::max(asked.best_part, weights[rank] / sum);
            cache_.use(e, counting_ ? 1 : 0);
            if (counting_) ++uses_[static_cast<size_t>(first_use_[static_cast<size_t>(layer)] + expert)];
            if (work_ != Work::write) continue;
            const bool hit = asked.where == Asked::Where::card;
            ++counts.lookups;
            counts.hits += hit ? 1 : 0;
            if (static_cast<size_t>(row) < row_hits_.size()) row_hits_[static_cast<size_t>(row)] += hit ? 1 : 0;
        }
    }
}

/// --tail-skip and --skip-weight: experts outside of slots that no row of a window gives much for.
void ExpertStore::leave_out() {
    if (options_.tail_skip == 0 && options_.skip_weight <= 0) return;
    for (Asked& asked : asked_) {
        if (asked.where == Asked::Where::card) continue;
        const bool little = options_.skip_weight > 0 ? asked.best_part < static_cast<float>(options_.skip_weight)
                                                     : asked.best_rank >= options_.tail_skip;
        if (!little) continue;
        asked.where = Asked::Where::left;
        counters_.left_out += static_cast<uint64_t>(asked.pairs);
    }
}

/// Experts outside of slots: to the CPU, through the card's own pulls (short calls), or through the stage (long ones).
void ExpertStore::share_out() {
    missed_.clear();
    staged_.clear();
    pulls_.clear();
    next_staged_ = 0;
    begun_.reset();
    for (size_t i = 0; i < asked_.size(); ++i)
        if (asked_[i].where == Asked::Where::host) missed_.push_back(static_cast<int>(i));
    const bool read = work_ == Work::read;
    if (missed_.empty() || (read ? stage_places() < 2 : !card_.pulls())) return;
    const auto for_card = missed_.size() - static_cast<size_t>(cpu_part(static_cast<int>(missed_.size())));
    // The card takes what has most rows; in an answer what is used most, since that stays.
    std::sort(missed_.begin(), missed_.end(), [&](int a, int b) {
        const Asked &x = asked_[static_cast<size_t>(a)], &y = asked_[static_cast<size_t>(b)];
        if (read) return x.pairs != y.pairs ? x.pairs > y.pairs : x.expert < y.expert;
        const double sx = cache_.score({set_->layer, x.expert}), sy = cache_.score({set_->layer, y.expert});
        return sx != sy ? sx > sy : x.expert < y.expert;
    });
    const std::span<const int> card(missed_.data(), for_card);
    if (!read) return pull(card);
    staged_.assign(card.begin(), card.end());
    take_ahead();
    for (const int i : staged_) asked_[static_cast<size_t>(i)].where = Asked::Where::card;
}

/// What came ahead is the first staged round, whoever else would have computed it.
void ExpertStore::take_ahead() {
    if (ahead_.layer != set_->layer) return;
    size_t came = 0;
    for (const auto& [expert, place] : ahead_.places) {
        const int i = asked_at_[static_cast<size_t>(expert)];
        if (i < 0 || asked_[static_cast<size_t>(i)].where != Asked::Where::host) continue;
        asked_[static_cast<size_t>(i)].slot = place;
        std::erase(staged_, i);
        staged_.insert(staged_.begin() + static_cast<std::ptrdiff_t>(came++), i);
    }
    if (came == 0) return;
    begun_ = StagedRound{0, came, ahead_.after};
    next_staged_ = came;
}

/// At the end of a layer of a long call: nearly all experts of the next one will be asked for, so those outside of
/// slots begin their way now, as many as half of the stage holds, most used first.
void ExpertStore::stage_ahead() {
    const auto next = static_cast<size_t>(set_->layer) + 1;
    ahead_.layer = -1;
    if (work_ != Work::read) return;
    read_before_[static_cast<size_t>(set_->layer)] = true;
    if (rows_ < options_.stage_ahead || next >= read_before_.size() || !read_before_[next]) return;
    const ExpertSet& set = card_.sets()[next];
    const size_t half = stage_bytes_ / set.slot_bytes / 2;
    std::vector<Expert> away;
    for (int e = 0; e < set.gate.count; ++e)
        if (cache_.place({set.layer, e}) != ExpertCache::Place::here) away.push_back({set.layer, e});
    std::stable_sort(away.begin(), away.end(), [&](Expert a, Expert b) { return cache_.score(a) > cache_.score(b); });
    away.resize(std::min(away.size(), half));
    ahead_.places.clear();
    for (const Expert e : away) {
        std::byte* place = stage_ + (half_ * half + ahead_.places.size()) * set.slot_bytes;
        const auto number = card_.upload(set, e.expert, place);
        if (!number) {
            ++counters_.failed_uploads;
            break;
        }
        ahead_.places.emplace_back(e.expert, place);
        ahead_.after = *number;
        ++counters_.staged;
        counters_.copied_bytes += set.slot_bytes;
    }
    if (ahead_.places.empty()) return;
    ahead_.layer = set.layer;
    half_ ^= 1;
}

/// Both sides end at the same time when the CPU's part is to the card's as their rates are.
int ExpertStore::cpu_part(int misses) const {
    const double cpu = cpu_rate_[static_cast<size_t>(rows_class_)];
    double share = 0.25;  // nothing is known yet
    if (options_.cpu_share)
        share = *options_.cpu_share;
    else if (cpu > 0 && link_rate_ > 0)
        share = std::clamp(cpu / (cpu + link_rate_), 0.05, 0.95);
    return std::clamp(static_cast<int>(std::lround(share * misses)), 0, misses);
}

/// Experts that the card brings in itself: into the slot of a less used one, else into the stage for this call alone.
void ExpertStore::pull(std::span<const int> list) {
    size_t place = 0;
    for (const int i : list) {
        Asked& asked = asked_[static_cast<size_t>(i)];
        const Expert e{set_->layer, asked.expert};
        int slot = -1;
        if (options_.swaps && cache_.place(e) == ExpertCache::Place::away) {
            slot = cache_.free_slot(cache_.kind(e.layer));
            if (slot < 0)
                if (const auto victim = cache_.victim(e.layer); victim && cache_.score(e) > cache_.score(*victim))
                    slot = cache_.slot(*victim);
        }
        if (slot >= 0) {
            cache_.load(e, slot);
            cache_.arrive(slot);  // later rounds come after this one's pulls
            asked.slot = address_[static_cast<size_t>(slot)];
            ++counters_.swaps;
        } else if (place < stage_places()) {
            asked.slot = stage_place(place++);
            ++counters_.staged;
        } else {
            continue;
        }
        asked.where = Asked::Where::card;
        counters_.copied_bytes += set_->slot_bytes;
        pulls_.push_back({asked.expert, asked.slot});
    }
}

/// The uploads of the next staged round, into the half of the stage that the round before it does not use.
void ExpertStore::begin_staging() {
    const size_t half = stage_places() / 2;
    StagedRound round{next_staged_, next_staged_, 0};
    while (next_staged_ < staged_.size() && round.after == 0) {
        round.first = next_staged_;
        for (size_t i = 0; i < half && next_staged_ < staged_.size(); ++i, ++next_staged_) {
            Asked& asked = asked_[static_cast<size_t>(staged_[next_staged_])];
            std::byte* place = stage_place(half_ * half + i);
            const auto number = card_.upload(*set_, asked.expert, place);
            if (!number) {
                ++counters_.failed_uploads;
                asked.where = Asked::Where::host;
                continue;
            }
            asked.slot = place;
            round.after = *number;
            ++counters_.staged;
            counters_.copied_bytes += set_->slot_bytes;
        }
        round.end = next_staged_;
    }
    if (round.after == 0) return;
    half_ ^= 1;
    begun_ = round;
}

bool ExpertStore::next_round(ExpertRound& round) {
    slots_.assign(asked_at_.size(), nullptr);
    if (std::exchange(first_round_, false)) {
        bool any = false;
        for (const Asked& asked : asked_) slots_[static_cast<size_t>(asked.expert)] = asked.slot;
        for (size_t i = 0; begun_ && i < begun_->end; ++i)  // what came ahead has a round of its own
            slots_[static_cast<size_t>(asked_[static_cast<size_t>(staged_[i])].expert)] = nullptr;
        for (const std::byte* slot : slots_) any = any || slot;
        if (!begun_) begin_staging();
        round = {slots_, pulls_, 0};
        if (any) return true;
        slots_.assign(asked_at_.size(), nullptr);
    }
    if (!begun_) return false;
    const StagedRound now = *std::exchange(begun_, std::nullopt);
    for (size_t i = now.first; i < now.end; ++i) {
        const Asked& asked = asked_[static_cast<size_t>(staged_[i])];
        slots_[static_cast<size_t>(asked.expert)] = asked.slot;
    }
    begin_staging();
    round = {slots_, {}, now.after};
    return true;
}

const ExpertPlan& ExpertStore::plan() {
    source_.resize(experts_.size());
    int32_t vectors = 0;
    for (size_t p = 0; p < experts_.size(); ++p) {
        const auto at = static_cast<size_t>(asked_at_[static_cast<size_t>(experts_[p])]);
        switch (asked_[at].where) {
            case Asked::Where::card: source_[p] = ExpertPlan::kCard; break;
            case Asked::Where::left: source_[p] = ExpertPlan::kLeft; break;
            case Asked::Where::host: source_[p] = vectors++; break;
        }
    }
    plan_ = {source_, vectors};
    return plan_;
}

void ExpertStore::compute(const ExpertCall& call, float* y) {
    const auto began = Clock::now();
    products_.expert_outputs(*call.set, call.x, call.routing, {.vector_of = source_.data(), .y = y});
    const double seconds = duration<double>(Clock::now() - began).count();
    const auto count = static_cast<uint64_t>(std::count_if(
        asked_.begin(), asked_.end(), [](const Asked& asked) { return asked.where == Asked::Where::host; }));
    const uint64_t bytes = count * set_->slot_bytes;
    counters_.cpu_ms += seconds * 1000;
    counters_.cpu_experts += count;
    counters_.cpu_bytes += bytes;
    double& rate = cpu_rate_[static_cast<size_t>(rows_class_)];
    const double now = static_cast<double>(bytes) / std::max(seconds, 1e-9);
    rate = rate > 0 ? rate + (now - rate) / 8 : now;
}

/// Experts that the CPU had to compute in an answer take the places of less used ones, as far as the link has time.
void ExpertStore::swap_in() {
    if (!options_.swaps || work_ == Work::read || cache_.slots() == 0) return;
    std::erase_if(missed_, [&](int i) {
        const Asked& asked = asked_[static_cast<size_t>(i)];
        return asked.where != Asked::Where::host ||
               cache_.place({set_->layer, asked.expert}) != ExpertCache::Place::away;
    });
    const auto score = [&](int i) { return cache_.score({set_->layer, asked_[static_cast<size_t>(i)].expert}); };
    std::sort(missed_.begin(), missed_.end(), [&](int a, int b) {
        const double x = score(a), y = score(b);
        return x != y ? x > y : a < b;
    });
    for (const int i : missed_) {
        if (credit_ < static_cast<double>(set_->slot_bytes)) return;
        const Expert e{set_->layer, asked_[static_cast<size_t>(i)].expert};
        int slot = cache_.free_slot(cache_.kind(e.layer));
        if (slot < 0) {
            const auto victim = cache_.victim(e.layer);
            if (!victim || cache_.score(e) <= kSwapMargin * cache_.score(*victim)) return;
            slot = cache_.slot(*victim);
        }
        credit_ -= static_cast<double>(set_->slot_bytes);
        if (!bring(e, slot)) return;
    }
}

void ExpertStore::layer_done(const ExpertCall&) {
    swap_in();
    stage_ahead();
    in_layer_ = false;
    last_layer_ = Clock::now();
}

}  // namespace strata
