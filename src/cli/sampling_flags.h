// How tokens are chosen, as flags of `chat`; what a flag leaves open comes from the run config, the file, then the
// defaults.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "cli/flag_set.h"
#include "gguf/file.h"
#include "protocol/request.h"
#include "text/json.h"

namespace strata::cli {

struct SamplingFlags {
    std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    std::optional<int> top_k, penalty_last_n;
    std::optional<uint64_t> seed;

    void add(FlagSet& set);
    /// Flags over `configured` (a run config's "sampling") over the file's general.sampling.* over the defaults:
    /// temperature 0.8, top-k 40, top-p 0.95, min-p 0.05. Refused: a key of the file with a value of a wrong type.
    Result<Sampling> sampling(const Json& configured, const gguf::File& file) const;
};

}  // namespace strata::cli
