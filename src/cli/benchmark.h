// polystrata benchmark: what is measured and how a result is written down.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/load_sampler.h"
#include "protocol/lines.h"
#include "text/json.h"

namespace strata::cli {

/// Never changes: results of different versions must compare.
extern const std::string_view kBenchmarkText;

/// One prompt read and answered.
struct BenchmarkRun {
    std::string name;          // "short", "2000"
    double first_token_s = 0;  // from the request to the first token
    protocol::Done done;
    MachineLoad load;
    std::string text_sha256;  // of the answer's text: the same model, file and flags give the same
};

/// A run as result files hold it.
Json run_json(const BenchmarkRun& run);

/// Whether this is a result file of `benchmark --json`.
bool is_benchmark_result(const Json& json);

/// A line of ratios (now / before) for every run that both results have.
std::string compare_results(const Json& now, const Json& before);

/// The table for people, with a header line.
std::string runs_table(const std::vector<BenchmarkRun>& runs);

}  // namespace strata::cli
