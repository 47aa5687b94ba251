// Which experts lie in which slots of a card, and how much each one is used: bookkeeping alone, without memory and
// without a device. Not thread-safe.
//
// An expert's score is how often it was used, a use n tokens ago counting 2^(-n / kHalfLife). Slots come in kinds: one
// for every size that experts have in this file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace strata {

class ExpertCache {
  public:
    static constexpr double kHalfLife = 256;  // tokens

    struct Layer {
        int experts;
        int kind;  // of slots that hold its experts
    };
    struct Expert {
        int layer;
        int expert;
        bool operator==(const Expert&) const = default;
    };
    enum class Place : uint8_t { away, loading, here };

    explicit ExpertCache(std::vector<Layer> layers);

    const std::vector<Layer>& layers() const { return layers_; }
    int kind(int layer) const { return layers_[static_cast<size_t>(layer)].kind; }

    // Slots. Numbers of removed ones are given again.
    int add_slot(int kind);
    /// Whatever it holds is away then.
    void remove_slot(int slot);
    /// An empty one, or -1.
    int free_slot(int kind) const;
    int slots() const { return slots_alive_; }
    int slot_kind(int slot) const { return slots_[static_cast<size_t>(slot)].kind; }
    /// What a slot holds or is being filled with.
    std::optional<Expert> holds(int slot) const;

    // Experts.
    Place place(Expert e) const { return of(e).place; }
    /// -1 where it is away.
    int slot(Expert e) const { return of(e).slot; }
    /// Experts that are here.
    int here() const { return here_; }
    /// An away expert begins its way into a slot of its kind; what the slot holds is away.
    void load(Expert e, int slot);
    /// The expert in this slot, on its way until now, is here.
    void arrive(int slot);
    /// The slot is empty.
    void empty(int slot);

    // Use.
    /// The current call uses it, which counts `uses` times (0: it is only no victim).
    void use(Expert e, int uses = 1);
    /// The experts used since count as one call's: no victim is among them.
    void begin_call() { ++call_; }
    bool in_call(Expert e) const { return of(e).call == call_; }
    /// Time goes on by so many tokens.
    void pass(int tokens);
    double score(Expert e) const { return of(e).score / now_; }
    /// Scores as if experts had been used in these proportions for a long time. counts: [all experts], layer by layer.
    void expect(std::span<const uint64_t> counts, int used);

    /// The expert of the layer that is here, has the lowest score, and is not used in this call.
    std::optional<Expert> victim(int layer) const;
    /// All experts that are away, in the order in which they should come: by score, then evenly over the layers.
    std::vector<Expert> wanted() const;

    /// Whether everything above agrees with itself, for tests.
    bool consistent() const;

  private:
    struct Entry {
        double score = 0;  // times now_
        uint64_t call = 0;
        int slot = -1;
        Place place = Place::away;
    };
    struct Slot {
        int kind = -1;  // -1: removed
        Expert expert{-1, -1};
    };
    const Entry& of(Expert e) const { return entries_[index(e)]; }
    Entry& of(Expert e) { return entries_[index(e)]; }
    size_t index(Expert e) const {
        return static_cast<size_t>(first_[static_cast<size_t>(e.layer)]) + static_cast<size_t>(e.expert);
    }

    std::vector<Layer> layers_;
    std::vector<int> first_;      // [layers]: place of its expert 0 in entries_
    std::vector<Entry> entries_;  // layer by layer
    std::vector<Slot> slots_;
    std::vector<std::vector<int>> free_;  // by kind
    std::vector<int> removed_;
    int slots_alive_ = 0;
    int here_ = 0;
    uint64_t call_ = 1;
    double now_ = 1;  // what a use counts now: grows instead of all scores falling
};

}  // namespace strata
