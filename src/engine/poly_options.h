// The settings of the program strata-poly and its flags (docs/engine.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/flags.h"

namespace strata {

/// Where a device has the routed experts.
enum class ExpertsIn { host, card, slots };

/// Settings of a card's memory and of the experts outside of it, as given; empty: not given.
struct CardFlags {
    std::string expert_vram, reserve_mib, sim_vram_mib, stage_mib, stage_ahead, cpu_share, profile, tail_skip,
        skip_weight, cache_bias;
    std::string swaps;  // "0": off
    bool swaps_off = false;

    /// Refuses what the device cannot do.
    Result<void> check(ExpertsIn where) const;
    /// Bytes of the simulated card.
    Result<uint64_t> sim_memory() const;
    /// Of a card of so many bytes. Refused: a value that is none, by its flag.
    Result<ExpertStoreOptions> store_options(uint64_t card) const;
};

struct PolyOptions {
    // Both ways of running.
    std::string model;
    std::string device = "auto";
    std::string simd = "auto";
    std::string kv = "f16";
    int64_t threads = 0;      // 0: default_threads()
    int64_t max_context = 0;  // 0: 32768, or the file's if that is less
    int64_t prompt_batch = 512;
    int64_t parallel = 1;
    int64_t window = 0;
    std::string guesses = "measured";
    std::string draft_model;  // empty: the block in the model's file, if it has one
    bool draft = true;
    bool repeats = true;
    int64_t checkpoint_every = 2048;
    int64_t checkpoints = 6;
    int64_t park_mib = 0;
    int64_t park_slots = 4;
    int64_t park_min_free_mib = 2560;
    CardFlags card;
    bool quiet = false;
    bool help = false;

    // Answering once.
    std::string tokens;
    std::string tokens_file;
    int64_t max_new = 128;
    std::string stop_ids;
    std::string follow;
    std::string grammar;  // file
    std::string read_calls;
    std::string picture_rows;
    int64_t image_pad = -1;
    int64_t top = 0;
    double temperature = 0;
    int64_t top_k = 20;
    double top_p = 1;
    double min_p = 0;
    double typical = 1;
    double repeat_penalty = 1;
    double presence_penalty = 0;
    double frequency_penalty = 0;
    int64_t penalty_last_n = 64;
    int64_t seed = 0;
    std::string logits_out;
    std::string load;
    std::string save;
    bool state_hash = false;
    bool json = false;
    bool explain = false;

    bool once() const { return !tokens.empty() || !tokens_file.empty(); }
    EngineLimits limits(int max_context_of_file) const;
    /// The request of answering once, its tokens from the flag or the file. Refused: no ids, or something else among
    /// them.
    Result<EngineRequest> request() const;
};

/// Fills the options. Refused (one line): what FlagTable refuses; a flag that needs a card; a flag of answering once
/// without tokens; no model.
Result<PolyOptions> parse_poly_options(const std::vector<std::string>& arguments);
std::string poly_help();

/// Threads that compute: one for every physical core that the process may use; on processors with cores of two sizes
/// the big ones and half of the small ones.
int default_threads();

}  // namespace strata
