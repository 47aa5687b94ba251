// Experts of a model that is larger than its card. The card computes with the experts that lie in its slots; whoever
// decides which ones those are, and computes the others, is the ExpertHost (engine/expert_store.h). Where an expert is
// computed changes no bit of an answer (docs/numerics.md, N2), so all of this may follow the clock. The whole story:
// docs/expert-cache.md.
//
// A layer's experts on such a card, inside of Device::experts:
//
//     card: norm, router ---+              +-- rounds: shared expert, experts in slots --+-- sum by rank -->
//                           | ExpertCall   | ExpertRound                                 |
//     host:                 +--> begin ----+--> compute: y of the others ----------------+
//
// One thread drives both: the one that enqueues the device's operations calls the host from inside of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "device/tensor.h"

namespace strata {

struct ExpertSet;

/// What a layer's routed experts are asked for, in host memory, in the CPU's layout.
struct ExpertCall {
    const ExpertSet* set = nullptr;
    Activations x;    // [rows, width]: codes where a gate or up is quantised, values where one is of a float type
    Routing routing;  // [rows, used]
};

/// Where the sum finds the y of every pair of row and rank: pair = row * used + rank.
struct ExpertPlan {
    static constexpr int32_t kCard = -1;  // on the card: the pair's expert had a slot in one of the rounds
    static constexpr int32_t kLeft = -2;  // nowhere: the sum leaves it out (--tail-skip, --skip-weight)
    std::span<const int32_t> source;      // [pairs]: one of these, or the number of the host's vector
    int host_pairs = 0;                   // vectors that the host makes
};

/// An expert that the card brings into a slot itself before a round.
struct ExpertPull {
    int expert;
    std::byte* slot;
};

/// A part of the card's share: all pairs whose experts have a slot in it. No expert is in two rounds of a call.
struct ExpertRound {
    std::span<std::byte* const> slots;  // [experts of the layer]; null: not in this round
    std::span<const ExpertPull> pulls;  // their slots are in `slots` too
    uint64_t after = 0;                 // the round waits on the card until this upload has arrived
};

/// Decides and computes for a card. All calls come from the thread that enqueues operations.
class ExpertHost {
  public:
    virtual ~ExpertHost() = default;

    /// Once for every call of a layer, before all that follows. From here to layer_done the card allocates nothing.
    virtual void begin(const ExpertCall& call) = 0;
    /// The card's next round; false: there are no more. The round's memory is valid until the next question. A card
    /// enqueues a round before it asks for the next one.
    virtual bool next_round(ExpertRound& round) = 0;
    /// After the last round; valid until layer_done.
    virtual const ExpertPlan& plan() = 0;
    /// y of the pairs that the plan gave to the host, while the card works: vector n at y + n * width, host memory.
    virtual void compute(const ExpertCall& call, float* y) = 0;
    /// The layer is enqueued as a whole.
    virtual void layer_done(const ExpertCall& call) = 0;
    /// Before the card takes `bytes` for something else than slots: gives back slots where there is too little.
    virtual void make_room(uint64_t bytes) = 0;
};

/// What a card with slots adds to Device. Slots are pieces of the card's memory (Device::allocate, at multiples of 256
/// bytes) of ExpertSet::slot_bytes; what is in one is for the host to know.
class ExpertSlots {
  public:
    virtual ~ExpertSlots() = default;

    /// All routed experts that were loaded, by layer.
    virtual std::span<const ExpertSet> sets() const = 0;
    /// Who is asked from now on; outlives the card's next operation. Null: nobody, and no experts may be computed.
    virtual void serve(ExpertHost* host) = 0;

    /// Begins to copy an expert into a slot, after everything that was enqueued before. Its number, ascending from 1.
    /// Refused: it was not begun, the slot's old contents may be gone, and nothing else is wrong.
    virtual Result<uint64_t> upload(const ExpertSet& set, int expert, std::byte* slot) = 0;
    /// The number up to which uploads have arrived: rounds may use them without waiting.
    virtual uint64_t arrived() = 0;
    /// Whether the card can bring experts in by itself inside of a round (ExpertRound::pulls).
    virtual bool pulls() const { return false; }
    /// How experts reach the card, for people; empty: there is nothing to say.
    virtual std::string source() const { return {}; }
};

}  // namespace strata
