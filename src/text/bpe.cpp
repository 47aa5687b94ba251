#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace strata {

MergeTable::MergeTable(size_t ranks) : seed_(hash_seed()), ranks_(ranks) {
    slots_.assign(std::bit_ceil(ranks + ranks / 3 + 2), Merge{free_slot, no_rank, -1});
    mask_ = slots_.size() - 1;
}

bool MergeTable::add(int32_t left, int32_t right, uint32_t rank, int32_t joined) {
    Merge& slot = const_cast<Merge&>(find(left, right));
    if (slot.pair != free_slot) return false;
    slot = {key(left, right), rank, joined};
    return true;
}

void Merger::merge(const MergeTable& table, std::vector<Symbol>& symbols) {
    if (symbols.size() <= longest_short) {
        merge_short(table, symbols);
    } else {
        merge_long(table, symbols);
    }
}

void Merger::merge_short(const MergeTable& table, std::vector<Symbol>& symbols) {
    struct Candidate {
        uint32_t rank;
        int32_t joined;
    };
    size_t count = symbols.size();
    if (count < 2) return;
    Candidate fixed[longest_short];
    std::vector<Candidate> longer;
    Candidate* candidates = fixed;
    if (count > longest_short) {
        longer.resize(count);
        candidates = longer.data();
    }
    const auto candidate = [&](size_t i) {
        const MergeTable::Merge& merge = table.find(symbols[i].id, symbols[i + 1].id);
        return Candidate{merge.rank, merge.joined};
    };
    for (size_t i = 0; i + 1 < count; ++i) candidates[i] = candidate(i);

    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; ++i)
            if (candidates[i].rank < candidates[best].rank) best = i;
        if (candidates[best].rank == MergeTable::no_rank) break;
        symbols[best].id = candidates[best].joined;
        std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2, symbols.begin() + static_cast<ptrdiff_t>(count),
                  symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
        if (best + 2 < count) std::copy(candidates + best + 2, candidates + count - 1, candidates + best + 1);
        --count;
        if (best > 0) candidates[best - 1] = candidate(best - 1);
        if (best + 1 < count) candidates[best] = candidate(best);
    }
    symbols.resize(count);
}

/// Notes that the pair that begins at `place` can be merged, if it can.
void Merger::wait(const MergeTable& table, const std::vector<Symbol>& symbols, uint32_t place) {
    const uint32_t right = next_[place];
    if (right == none) return;
    const uint32_t rank = table.find(symbols[place].id, symbols[right].id).rank;
    if (rank == MergeTable::no_rank) return;

    List& list = lists_[rank];
    if (list.first != none && waiting_[list.last].place >= place) {
        if (waiting_[list.last].place == place) return;
        late_.push_back(static_cast<uint64_t>(rank) << 32 | place);
        std::push_heap(late_.begin(), late_.end(), std::greater<>());
        return;
    }
    uint32_t entry = free_;
    if (entry != none) {
        free_ = waiting_[entry].next;
        waiting_[entry] = {place, none};
    } else {
        entry = static_cast<uint32_t>(waiting_.size());
        waiting_.push_back({place, none});
    }
    if (list.first == none) {
        list.first = entry;
        ranks_.push_back(rank);
        std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
    } else {
        waiting_[list.last].next = entry;
    }
    list.last = entry;
}

/// The waiting place of the lowest rank, the leftmost of equal ones; false when none waits.
bool Merger::take(uint32_t& rank, uint32_t& place) {
    if (ranks_.empty() && late_.empty()) return false;
    uint64_t listed = UINT64_MAX;
    if (!ranks_.empty())
        listed = static_cast<uint64_t>(ranks_.front()) << 32 | waiting_[lists_[ranks_.front()].first].place;
    if (!late_.empty() && late_.front() < listed) {
        rank = static_cast<uint32_t>(late_.front() >> 32);
        place = static_cast<uint32_t>(late_.front());
        std::pop_heap(late_.begin(), late_.end(), std::greater<>());
        late_.pop_back();
        return true;
    }
    rank = static_cast<uint32_t>(listed >> 32);
    place = static_cast<uint32_t>(listed);
    List& list = lists_[rank];
    const uint32_t entry = list.first;
    list.first = waiting_[entry].next;
    waiting_[entry].next = free_;
    free_ = entry;
    if (list.first == none) {
        std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
        ranks_.pop_back();
    }
    return true;
}

void Merger::merge_long(const MergeTable& table, std::vector<Symbol>& symbols) {
    const auto count = static_cast<uint32_t>(symbols.size());
    if (count < 2) return;
    constexpr int32_t gone = -2;  // swallowed by its left neighbour
    next_.resize(count);
    previous_.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
        next_[i] = i + 1 < count ? i + 1 : none;
        previous_[i] = i > 0 ? i - 1 : none;
    }
    lists_.resize(table.ranks(), List{none, none});
    for (uint32_t i = 0; i + 1 < count; ++i) wait(table, symbols, i);

    uint32_t rank, place;
    while (take(rank, place)) {
        // The pair may have changed since it was noted; every present pair is noted, so a changed one is skipped.
        if (symbols[place].id == gone || next_[place] == none) continue;
        const uint32_t right = next_[place];
        const MergeTable::Merge& merge = table.find(symbols[place].id, symbols[right].id);
        if (merge.rank != rank) continue;
        symbols[place].id = merge.joined;
        symbols[right].id = gone;
        next_[place] = next_[right];
        if (next_[place] != none) previous_[next_[place]] = place;
        if (previous_[place] != none) wait(table, symbols, previous_[place]);
        wait(table, symbols, place);
    }

    std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id == gone; });
    release();
}

/// Empties the queue's memory and gives back what an unusually long piece made it take.
void Merger::release() {
    waiting_.clear();
    free_ = none;
    constexpr size_t kept = size_t{1} << 18;
    if (next_.capacity() > kept) {
        next_ = {};
        previous_ = {};
        waiting_ = {};
        late_ = {};
    }
}

}  // namespace strata
