// Byte-pair merging: of a list of symbols, the neighbouring pair of the lowest rank (the leftmost of equal ones)
// becomes one symbol, until no pair has a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizer_hash.h"
#include "text/tokenizer_memory.h"

namespace strata {

/// A symbol in a piece of text: its id (negative: none, it never merges) and the offset of its first byte.
struct Symbol {
    int32_t id;
    uint32_t begin;
};

/// The merges: which pairs of symbols join, in which order, to what.
class MergeTable {
  public:
    struct Merge {
        uint64_t pair;
        uint32_t rank;
        int32_t joined;
    };
    static constexpr uint32_t no_rank = UINT32_MAX;

    MergeTable() = default;
    /// Ranks will be below `ranks`.
    explicit MergeTable(size_t ranks);

    /// Adds a merge of ids that are not negative; false where the pair is there already (the first one counts).
    bool add(int32_t left, int32_t right, uint32_t rank, int32_t joined);

    /// The merge of a pair; its rank is no_rank where there is none.
    const Merge& find(int32_t left, int32_t right) const {
        const uint64_t pair = key(left, right);
        size_t at = hash_pair(pair, seed_) & mask_;
        while (slots_[at].pair != pair && slots_[at].pair != free_slot) at = (at + 1) & mask_;
        return slots_[at];
    }

    size_t ranks() const { return ranks_; }

  private:
    static constexpr uint64_t free_slot = UINT64_MAX;  // the pair (-1, -1), which no merge has
    static uint64_t key(int32_t left, int32_t right) {
        return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    }

    Table<Merge> slots_ = Table<Merge>(1, Merge{free_slot, no_rank, -1});
    size_t mask_ = 0;
    uint64_t seed_ = 0;
    size_t ranks_ = 0;
};

/// Merges with working memory of its own; one for each thread.
class Merger {
  public:
    /// Merges in place. n log n in the number of symbols at worst and close to linear on repetitive text.
    void merge(const MergeTable& table, std::vector<Symbol>& symbols);

    /// The ways that merge() chooses from, for tests. The first takes quadratic time; the second one is for symbols
    /// that are all equal and take the same number of bytes (at least two of them), and may decline.
    static void merge_short(const MergeTable& table, std::vector<Symbol>& symbols);
    static bool merge_equal(const MergeTable& table, std::vector<Symbol>& symbols);
    void merge_long(const MergeTable& table, std::vector<Symbol>& symbols);

    /// Up to this many symbols the quadratic way is the faster one.
    static constexpr size_t longest_short = 48;

  private:
    // merge_long's queue. Places where a pair of some rank begins wait in that rank's list, in ascending order, and a
    // heap holds the ranks whose lists are not empty. Most merges find their places in ascending order, so lists only
    // grow at the end; a place that comes out of order goes to `late_` instead, a heap of (rank, place).
    struct Waiting {
        uint32_t place;
        uint32_t next;
    };
    struct List {
        uint32_t first;
        uint32_t last;
    };
    static constexpr uint32_t none = UINT32_MAX;

    void wait(const MergeTable& table, const std::vector<Symbol>& symbols, uint32_t place);
    bool take(uint32_t& rank, uint32_t& place);
    void release();

    std::vector<uint32_t> next_, previous_;  // [symbols], places of the neighbours; none at the ends
    std::vector<List> lists_;                // [ranks], all empty between calls
    std::vector<Waiting> waiting_;
    uint32_t free_ = none;  // chain of unused entries of waiting_
    std::vector<uint32_t> ranks_;
    std::vector<uint64_t> late_;
};

}  // namespace strata
