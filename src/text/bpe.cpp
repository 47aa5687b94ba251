#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
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

namespace {

/// The same symbol all over, and so as many bytes each; what is no symbol (-1) may be of any size.
bool all_equal(const std::vector<Symbol>& symbols) {
    const int32_t id = symbols[0].id;
    return id >= 0 && std::all_of(symbols.begin(), symbols.end(), [id](const Symbol& s) { return s.id == id; });
}

}  // namespace

void Merger::merge(const MergeTable& table, std::vector<Symbol>& symbols) {
    if (symbols.size() <= longest_short) {
        merge_short(table, symbols);
    } else if (!(all_equal(symbols) && merge_equal(table, symbols))) {
        merge_long(table, symbols);
    }
}

void Merger::merge_short(const MergeTable& table, std::vector<Symbol>& symbols) {
    struct Item {
        Symbol symbol;
        uint32_t rank;  // of the merge with the next item
        int32_t joined;
    };
    size_t count = symbols.size();
    if (count < 2) return;
    Item fixed[longest_short];
    std::vector<Item> longer(count > longest_short ? count : 0);
    Item* const items = longer.empty() ? fixed : longer.data();
    const auto look_up = [&](size_t i) {
        const MergeTable::Merge& merge = table.find(items[i].symbol.id, items[i + 1].symbol.id);
        items[i].rank = merge.rank;
        items[i].joined = merge.joined;
    };
    for (size_t i = 0; i < count; ++i) items[i].symbol = symbols[i];
    for (size_t i = 0; i + 1 < count; ++i) look_up(i);
    items[count - 1].rank = MergeTable::no_rank;

    while (true) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; ++i)
            if (items[i].rank < items[best].rank) best = i;
        if (items[best].rank == MergeTable::no_rank) break;
        items[best].symbol.id = items[best].joined;
        --count;
        for (size_t i = best + 1; i < count; ++i) items[i] = items[i + 1];
        if (best > 0) look_up(best - 1);
        if (best + 1 < count) {
            look_up(best);
        } else {
            items[best].rank = MergeTable::no_rank;
        }
    }
    for (size_t i = 0; i < count; ++i) symbols[i] = items[i].symbol;
    symbols.resize(count);
}

namespace {

/// Equal symbols beside each other.
struct Run {
    int32_t id;
    uint32_t count;
    uint32_t bytes;  // of each symbol
};

/// A short list of runs, of which no two neighbours are the same symbol and none is empty.
class Runs {
  public:
    static constexpr size_t most = 32;

    size_t size() const { return size_; }
    const Run& operator[](size_t i) const { return runs_[i]; }

    /// Puts up to three runs in the place of `old` ones from `at` on. Afterwards there may be two more than `most`.
    void replace(size_t at, size_t old, const Run (&by)[3]) {
        Run changed[5];  // with the neighbours, which may be the same symbols
        size_t count = 0;
        const auto add = [&](const Run& run) {
            if (run.count == 0) return;
            if (count > 0 && changed[count - 1].id == run.id && changed[count - 1].bytes == run.bytes) {
                changed[count - 1].count += run.count;
            } else {
                changed[count++] = run;
            }
        };
        const size_t begin = at > 0 ? at - 1 : 0;
        const size_t end = std::min(at + old + 1, size_);
        if (at > 0) add(runs_[at - 1]);
        for (const Run& run : by) add(run);
        if (at + old < size_) add(runs_[at + old]);
        std::memmove(runs_ + begin + count, runs_ + end, (size_ - end) * sizeof(Run));
        std::copy(changed, changed + count, runs_ + begin);
        size_ += count - (end - begin);
    }

  private:
    Run runs_[most + 3];
    size_t size_ = 0;
};

}  // namespace

/// Merges a list of equal symbols as runs, where it can a whole run at a time: a megabyte of spaces is a few dozen
/// steps. False where the list of runs grows long; then `symbols` is as it was.
bool Merger::merge_equal(const MergeTable& table, std::vector<Symbol>& symbols) {
    const auto rank = [&](const Run& left, const Run& right) { return table.find(left.id, right.id).rank; };
    constexpr Run nothing = {0, 0, 0};
    Runs runs;
    runs.replace(0, 0,
                 {{symbols[0].id, static_cast<uint32_t>(symbols.size()), symbols[1].begin - symbols[0].begin},
                  nothing,
                  nothing});
    while (runs.size() <= Runs::most) {
        // The lowest rank, the leftmost of equal ones; a run's own pairs come before the one with the next run.
        uint32_t lowest = MergeTable::no_rank;
        size_t best = 0;
        bool inside = false;
        const auto consider = [&](uint32_t rank, size_t i, bool in_run) {
            if (rank < lowest) lowest = rank, best = i, inside = in_run;
        };
        for (size_t i = 0; i < runs.size(); ++i) {
            if (runs[i].count > 1) consider(rank(runs[i], runs[i]), i, true);
            if (i + 1 < runs.size()) consider(rank(runs[i], runs[i + 1]), i, false);
        }
        if (lowest == MergeTable::no_rank) {
            uint32_t begin = symbols[0].begin;
            symbols.clear();
            for (size_t i = 0; i < runs.size(); ++i)
                for (uint32_t k = 0; k < runs[i].count; ++k, begin += runs[i].bytes)
                    symbols.push_back({runs[i].id, begin});
            return true;
        }

        Run left = runs[best], right = inside ? left : runs[best + 1];
        Run joined = {table.find(left.id, right.id).joined, 1, left.bytes + right.bytes};
        if (inside) {
            // All pairs of the run at once, unless a new pair would have to be merged before the run's next one.
            const bool all = rank(joined, joined) > lowest && rank(joined, left) > lowest &&
                             (best == 0 || rank(runs[best - 1], joined) > lowest);
            if (all) joined.count = left.count / 2;
            left.count -= 2 * joined.count;
            runs.replace(best, 1, {joined, left, nothing});
        } else {
            --left.count;
            --right.count;
            runs.replace(best, 2, {left, joined, right});
        }
    }
    return false;
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
