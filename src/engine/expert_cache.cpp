#include "engine/expert_cache.h"

#include <algorithm>
#include <cmath>

namespace strata {

ExpertCache::ExpertCache(std::vector<Layer> layers) : layers_(std::move(layers)) {
    int total = 0, kinds = 0;
    for (const Layer& layer : layers_) {
        first_.push_back(total);
        total += layer.experts;
        kinds = std::max(kinds, layer.kind + 1);
    }
    entries_.resize(static_cast<size_t>(total));
    free_.resize(static_cast<size_t>(kinds));
}

int ExpertCache::add_slot(int kind) {
    int slot = static_cast<int>(slots_.size());
    if (removed_.empty()) {
        slots_.emplace_back();
    } else {
        slot = removed_.back();
        removed_.pop_back();
    }
    slots_[static_cast<size_t>(slot)] = {kind, {-1, -1}};
    free_[static_cast<size_t>(kind)].push_back(slot);
    ++slots_alive_;
    return slot;
}

void ExpertCache::remove_slot(int slot) {
    empty(slot);
    Slot& s = slots_[static_cast<size_t>(slot)];
    std::erase(free_[static_cast<size_t>(s.kind)], slot);
    s.kind = -1;
    removed_.push_back(slot);
    --slots_alive_;
}

int ExpertCache::free_slot(int kind) const {
    const std::vector<int>& free = free_[static_cast<size_t>(kind)];
    return free.empty() ? -1 : free.back();
}

std::optional<ExpertCache::Expert> ExpertCache::holds(int slot) const {
    const Slot& s = slots_[static_cast<size_t>(slot)];
    if (s.expert.layer < 0) return std::nullopt;
    return s.expert;
}

void ExpertCache::load(Expert e, int slot) {
    empty(slot);
    Slot& s = slots_[static_cast<size_t>(slot)];
    std::erase(free_[static_cast<size_t>(s.kind)], slot);
    s.expert = e;
    of(e).slot = slot;
    of(e).place = Place::loading;
}

void ExpertCache::arrive(int slot) {
    of(slots_[static_cast<size_t>(slot)].expert).place = Place::here;
    ++here_;
}

void ExpertCache::empty(int slot) {
    Slot& s = slots_[static_cast<size_t>(slot)];
    if (s.expert.layer < 0) return;
    Entry& e = of(s.expert);
    if (e.place == Place::here) --here_;
    e.place = Place::away;
    e.slot = -1;
    s.expert = {-1, -1};
    free_[static_cast<size_t>(s.kind)].push_back(slot);
}

void ExpertCache::use(Expert e, int uses) {
    Entry& entry = of(e);
    entry.score += uses * now_;
    entry.call = call_;
}

void ExpertCache::pass(int tokens) {
    now_ *= std::exp2(tokens / kHalfLife);
    constexpr double kLarge = 1e100;
    if (now_ < kLarge) return;
    for (Entry& e : entries_) e.score /= now_;
    now_ = 1;
}

/// An expert used in a share p of tokens has a score of p times the sum of all weights, kHalfLife / ln 2, in the long
/// run.
void ExpertCache::expect(std::span<const uint64_t> counts, int used) {
    const double tokens = kHalfLife / std::log(2.0);
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
        const auto first = static_cast<size_t>(first_[layer]), n = static_cast<size_t>(layers_[layer].experts);
        double sum = 0;
        for (size_t i = first; i < first + n; ++i) sum += static_cast<double>(counts[i]);
        for (size_t i = first; i < first + n; ++i)
            entries_[i].score = sum > 0 ? static_cast<double>(counts[i]) / sum * used * tokens * now_ : 0;
    }
}

std::optional<ExpertCache::Expert> ExpertCache::victim(int layer) const {
    const int first = first_[static_cast<size_t>(layer)];
    const Entry* least = nullptr;
    for (int i = first; i < first + layers_[static_cast<size_t>(layer)].experts; ++i) {
        const Entry& e = entries_[static_cast<size_t>(i)];
        if (e.place == Place::here && e.call != call_ && (!least || e.score < least->score)) least = &e;
    }
    if (!least) return std::nullopt;
    return Expert{layer, static_cast<int>(least - entries_.data()) - first};
}

std::vector<ExpertCache::Expert> ExpertCache::wanted() const {
    std::vector<Expert> all;
    for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer)
        for (int e = 0; e < layers_[static_cast<size_t>(layer)].experts; ++e)
            if (place({layer, e}) == Place::away) all.push_back({layer, e});
    std::sort(all.begin(), all.end(), [&](Expert a, Expert b) {
        const double sa = of(a).score, sb = of(b).score;
        if (sa != sb) return sa > sb;
        return a.expert != b.expert ? a.expert < b.expert : a.layer < b.layer;
    });
    return all;
}

bool ExpertCache::consistent() const {
    int here = 0, held = 0, alive = 0;
    for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer)
        for (int e = 0; e < layers_[static_cast<size_t>(layer)].experts; ++e) {
            const Entry& entry = of({layer, e});
            here += entry.place == Place::here ? 1 : 0;
            if ((entry.place == Place::away) != (entry.slot < 0)) return false;
            if (entry.slot < 0) continue;
            ++held;
            const Slot& s = slots_[static_cast<size_t>(entry.slot)];
            if (!(s.expert == Expert{layer, e}) || s.kind != kind(layer)) return false;
        }
    int holding = 0, free = 0;
    for (const Slot& s : slots_) {
        alive += s.kind >= 0 ? 1 : 0;
        holding += s.expert.layer >= 0 ? 1 : 0;
        if (s.kind < 0 && s.expert.layer >= 0) return false;
    }
    for (size_t kind = 0; kind < free_.size(); ++kind)
        for (const int slot : free_[kind]) {
            ++free;
            const Slot& s = slots_[static_cast<size_t>(slot)];
            if (s.kind != static_cast<int>(kind) || s.expert.layer >= 0) return false;
        }
    return here == here_ && held == holding && alive == slots_alive_ && free + holding == alive;
}

}  // namespace strata
