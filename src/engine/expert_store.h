// The experts of a model that is larger than its card: which ones lie in the card's slots, how they get there, and the
// computing of the others on the CPU, from the file's mapping. docs/expert-cache.md.
//
// Driven from one thread, the engine's: by the card inside of a layer's experts (ExpertHost), by the engine around
// calls and requests.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cpu/products.h"
#include "device/device.h"
#include "engine/expert_cache.h"

namespace strata {

struct ExpertStoreOptions {
    std::optional<uint64_t> most;  // bytes of slots at most; none: what is free less the reserve
    bool all = false;              // refuse to start where not every expert finds a slot
    uint64_t reserve = 0;          // bytes of the card that are left to others
    bool swaps = true;
    int tail_skip = 0;                // docs/expert-cache.md; 0: off
    double skip_weight = 0;           // the same
    std::optional<double> cpu_share;  // of a call's experts outside of slots; none: what was measured
    std::optional<uint64_t> stage;    // bytes for experts on their way through; none: a layer's, at most 2 GiB
    int stage_ahead = 1024;           // rows of a prompt's call from which on a layer's experts come before its routing
    int threads = 1;
    std::optional<cpu::Simd> simd;
    std::string profile;    // file; empty: none
    uint64_t model_id = 0;  // for the profile
    uint64_t chunk = 0;     // slots come and go in pieces of about so many bytes; 0: chosen by the card's size
};

/// What happened since the start; differences tell of an answer.
struct ExpertCounters {
    struct Layer {
        uint64_t lookups = 0;  // pairs of row and rank while writing
        uint64_t hits = 0;     // of them, those whose expert was in a slot
    };
    std::vector<Layer> layers;
    uint64_t swaps = 0;         // experts brought into a slot to stay, by uploads or pulls
    uint64_t staged = 0;        // experts brought in for one call
    uint64_t copied_bytes = 0;  // both
    uint64_t failed_uploads = 0;
    uint64_t cpu_experts = 0;  // experts computed on the CPU, once a call
    uint64_t cpu_bytes = 0;    // of their weights
    uint64_t left_out = 0;     // pairs left out by --tail-skip or --skip-weight
    double cpu_ms = 0;         // computing them
    double card_ms = 0;        // between a layer's end and the next one's routing: the host waits for the card

    ExpertCounters since(const ExpertCounters& before) const;
    /// A few lines for people: what an answer of so many milliseconds spent on experts.
    std::string explain(double total_ms) const;
    uint64_t lookups() const;
    uint64_t hits() const;
};

class ExpertStore final : public ExpertHost {
  public:
    /// For a device with slots and a loaded model of `used` experts a row; the device outlives it. Takes the memory of
    /// the stage.
    static Result<std::unique_ptr<ExpertStore>> make(Device& device, int used, const ExpertStoreOptions& options);
    ~ExpertStore() override;

    /// The first filling, once everything else that stays has its memory; waits for it.
    Result<void> fill();

    // Around calls and requests.
    enum class Work { read, write, draft };
    void begin_call(int rows, Work work);
    /// Routed experts of a row of the last call that were in slots.
    int row_hits(int row) const { return row_hits_[static_cast<size_t>(row)]; }
    /// No request is running: gives memory back where other programs took it, takes what has come free.
    void between_requests();
    void answer_ended();
    /// Whether what runs counts as use (the warming up of a device does not).
    void count(bool on) { counting_ = on; }

    /// Sizes the cache again for this reserve (none: the one of the start), by use so far; waits for it.
    Result<void> resize(std::optional<uint64_t> reserve);
    Result<void> save_profile();

    const ExpertCounters& counters() const { return counters_; }
    int slots() const { return cache_.slots(); }
    int here() const { return cache_.here(); }
    uint64_t bytes() const { return slot_memory_; }
    uint64_t reserve() const { return reserve_; }
    uint64_t largest_expert() const { return largest_; }
    /// Settings that make answers depend on the cache ("tail_skip:6"); empty: none is on.
    std::string changes_answers() const;
    /// Uses in the profile that was read.
    uint64_t profile_uses() const { return profile_uses_; }
    /// Uses counted, those of the profile included.
    uint64_t total_uses() const { return std::accumulate(uses_.begin(), uses_.end(), uint64_t{0}); }
    /// Lines for the log since the last call.
    std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
    const ExpertCache& cache() const { return cache_; }

    // ExpertHost.
    void begin(const ExpertCall& call) override;
    bool next_round(ExpertRound& round) override;
    const ExpertPlan& plan() override;
    void compute(const ExpertCall& call, float* y) override;
    void layer_done(const ExpertCall& call) override;
    void make_room(uint64_t bytes) override;

  private:
    using Clock = std::chrono::steady_clock;
    using Expert = ExpertCache::Expert;

    /// Memory of several slots of one kind.
    struct Chunk {
        std::byte* memory;
        uint64_t bytes;
        std::vector<int> slots;
    };
    struct OnItsWay {
        uint64_t number;  // of the upload
        int slot;
    };
    /// An expert of the current layer's call.
    struct Asked {
        enum class Where : uint8_t { card, host, left };
        int expert;
        int pairs;
        int best_rank;
        float best_part;  // the largest part of a row's weights that it has
        Where where = Where::host;
        std::byte* slot = nullptr;  // on the card
    };
    struct StagedRound {
        size_t first, end;  // of staged_
        uint64_t after;     // the last upload
    };
    /// Experts of the next layer whose way into the stage began before its routing was known.
    struct Ahead {
        int layer = -1;
        std::vector<std::pair<int, std::byte*>> places;  // by expert
        uint64_t after = 0;
    };

    ExpertStore(Device& device, std::vector<ExpertCache::Layer> layers, std::vector<uint64_t> kind_bytes, int used,
                const ExpertStoreOptions& options);
    void read_profile();

    bool add_chunk(int kind);
    void drop_coldest_chunk();
    /// Slots for the experts that are away, as far as memory goes, and their uploads.
    void grow();
    void shrink_to(uint64_t free);
    /// Exchanges the least used experts here for more used ones that are away.
    void exchange();
    /// Begins an expert's way into a slot.
    bool bring(Expert e, int slot);
    void see_arrivals();
    Result<void> wait_for_uploads();

    void gather(const ExpertCall& call);
    void leave_out();
    void share_out();
    /// Of so many experts outside of slots, how many the CPU computes.
    int cpu_part(int misses) const;
    void pull(std::span<const int> asked);
    void begin_staging();
    void stage_ahead();
    void take_ahead();
    void swap_in();
    /// The i-th place of the stage for experts of the current layer.
    std::byte* stage_place(size_t i) const { return stage_ + i * set_->slot_bytes; }
    size_t stage_places() const { return stage_bytes_ / set_->slot_bytes; }

    Device& device_;
    ExpertSlots& card_;
    const ExpertStoreOptions options_;
    const int used_;
    std::vector<uint64_t> kind_bytes_;
    std::vector<int> kind_slots_;    // slots of each kind
    std::vector<int> kind_experts_;  // experts of each kind
    uint64_t largest_ = 0;
    uint64_t reserve_;
    uint64_t chunk_ = 0;
    ExpertCache cache_;
    std::vector<Chunk> chunks_;
    std::vector<std::byte*> address_;  // by slot
    std::vector<uint64_t> upload_of_;  // by slot: the upload that fills it; 0: none
    std::deque<OnItsWay> on_their_way_;
    uint64_t slot_memory_ = 0;
    std::byte* stage_ = nullptr;
    uint64_t stage_bytes_ = 0;
    bool own_memory_ = false;  // an allocation is the cache's own

    cpu::ThreadPool pool_;
    cpu::Products products_;

    // The current call.
    Work work_ = Work::read;
    int rows_ = 0;
    std::vector<int> row_hits_;

    // The current layer.
    bool in_layer_ = false;
    const ExpertSet* set_ = nullptr;
    std::span<const int32_t> experts_;  // [pairs]
    std::vector<Asked> asked_;
    std::vector<int> asked_at_;      // [experts]: place in asked_, or -1
    std::vector<std::byte*> slots_;  // [experts]: of the round
    std::vector<ExpertPull> pulls_;
    std::vector<int> missed_;           // of asked_: outside of slots
    std::vector<int> staged_;           // of asked_: on their way through the stage, in order
    size_t next_staged_ = 0;            // the first one whose upload has not begun
    size_t half_ = 0;                   // of the stage, for the next round
    std::optional<StagedRound> begun_;  // its uploads have begun
    Ahead ahead_;
    std::vector<bool> read_before_;  // [layers]: prompts ask for it (a draft block's layer they may not)
    bool first_round_ = true;
    std::vector<int32_t> source_;  // [pairs]
    ExpertPlan plan_;

    // What was measured.
    double link_rate_ = 0;              // bytes a second
    std::array<double, 6> cpu_rate_{};  // by rows of the call: a window, below 64, from 64, 128, 256, 512
    int rows_class_ = 0;
    double credit_ = 0;  // bytes that swaps may copy
    Clock::time_point last_call_ = Clock::now();
    Clock::time_point last_layer_ = Clock::now();
    bool first_layer_ = true;

    ExpertCounters counters_;
    std::vector<uint64_t> uses_;  // [all experts], for the profile
    std::vector<int> first_use_;  // [layers]: place of its expert 0 in uses_
    uint64_t profile_uses_ = 0;
    bool profile_works_ = true;
    std::optional<Clock::time_point> saved_;
    bool served_ = false;  // a request
    bool counting_ = true;
    std::vector<std::string> notes_;
};

}  // namespace strata
