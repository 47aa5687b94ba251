#include "cli/sampling_flags.h"

#include <limits>

namespace strata::cli {
namespace {

constexpr int kPenaltyTokens = 64;  // how far penalties look back when a penalty is asked for and nothing says

/// The first of: flag, run config's number, file's number; else the value stays.
Result<void> settle(float& value, const std::optional<float>& flag, const Json& configured, const char* name,
                    const gguf::File& file, const char* key) {
    if (flag) {
        value = *flag;
    } else if (const auto found = configured.find(name); found != configured.end()) {
        value = found->get<float>();
    } else if (key) {
        STRATA_TRY_ASSIGN(const auto stored, file.find_float(key));
        value = stored.value_or(value);
    }
    return {};
}

Result<void> settle(int& value, const std::optional<int>& flag, const Json& configured, const char* name,
                    const gguf::File& file, const char* key) {
    if (flag) {
        value = *flag;
    } else if (const auto found = configured.find(name); found != configured.end()) {
        value = found->get<int>();
    } else if (key) {
        STRATA_TRY_ASSIGN(const auto stored, file.find_int(key, 0, std::numeric_limits<int>::max()));
        value = static_cast<int>(stored.value_or(value));
    }
    return {};
}

}  // namespace

void SamplingFlags::add(FlagSet& set) {
    const std::string heading = "Sampling (default: the run config's, else the file's, else as given)";
    constexpr double kMany = 1 << 30;
    set.number("--temp", temperature, 0, 100, "Temperature; 0 takes the likeliest token (0.8)").under(heading);
    set.number("--top-k", top_k, 0, kMany, "Candidates kept, at most 64; 0: 64 (40)").under(heading);
    set.number("--top-p", top_p, 1e-6, 1, "The likeliest candidates with this much probability (0.95)").under(heading);
    set.number("--min-p", min_p, 0, 1, "Candidates below this share of the best one leave (0.05)").under(heading);
    set.number("--repeat-penalty", repeat_penalty, 1e-6, 100, "Divides the logits of seen tokens (1: off)")
        .under(heading);
    set.number("--presence-penalty", presence_penalty, -100, 100, "Subtracted from the logits of seen tokens (0)")
        .under(heading);
    set.number("--frequency-penalty", frequency_penalty, -100, 100, "Subtracted for every time a token was seen (0)")
        .under(heading);
    set.number("--penalty-last-n", penalty_last_n, 0, kMany, "How many last tokens count as seen (64 with a penalty)")
        .under(heading);
    set.number("--seed", seed, "Random seed; 0: from the clock (0)").under(heading);
}

Result<Sampling> SamplingFlags::sampling(const Json& configured, const gguf::File& file) const {
    Sampling out;
    out.temperature = 0.8f;
    out.top_k = 40;
    out.top_p = 0.95f;
    out.min_p = 0.05f;
    out.penalty_last_n = -1;
    STRATA_TRY(settle(out.temperature, temperature, configured, "temperature", file, "general.sampling.temp"));
    STRATA_TRY(settle(out.top_k, top_k, configured, "top_k", file, "general.sampling.top_k"));
    STRATA_TRY(settle(out.top_p, top_p, configured, "top_p", file, "general.sampling.top_p"));
    STRATA_TRY(settle(out.min_p, min_p, configured, "min_p", file, "general.sampling.min_p"));
    STRATA_TRY(settle(out.penalty_repeat, repeat_penalty, configured, "repeat_penalty", file,
                      "general.sampling.penalty_repeat"));
    STRATA_TRY(settle(out.penalty_present, presence_penalty, configured, "presence_penalty", file, nullptr));
    STRATA_TRY(settle(out.penalty_freq, frequency_penalty, configured, "frequency_penalty", file, nullptr));
    STRATA_TRY(settle(out.penalty_last_n, penalty_last_n, configured, "penalty_last_n", file,
                      "general.sampling.penalty_last_n"));
    if (out.penalty_last_n < 0) {
        const bool penalised = out.penalty_repeat != 1 || out.penalty_present != 0 || out.penalty_freq != 0;
        out.penalty_last_n = penalised ? kPenaltyTokens : 0;
    }
    if (seed) {
        out.seed = *seed;
    } else if (const auto found = configured.find("seed"); found != configured.end() && found->is_number_unsigned()) {
        out.seed = found->get<uint64_t>();
    }
    return out;
}

}  // namespace strata::cli
