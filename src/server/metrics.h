// What the server counts. Safe from any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "server/answer_writer.h"
#include "server/hardware.h"
#include "text/json.h"

namespace strata::server {

/// Counts of values up to bounds, as Prometheus has them.
template <size_t N>
struct Histogram {
    std::array<double, N> bounds;  // seconds, ascending
    std::array<uint64_t, N + 1> counts{};
    double sum = 0;
    uint64_t count = 0;

    void add(double seconds) {
        size_t i = 0;
        while (i < N && seconds > bounds[i]) ++i;
        ++counts[i];
        sum += seconds;
        ++count;
    }
};

/// A request that ended, for the monitor.
struct RequestRecord {
    std::string id, path, model;
    int status = 0;
    Totals totals;
    double queued_ms = 0, first_token_ms = 0, total_ms = 0;
    int64_t hits = 0, lookups = 0;  // experts found in VRAM while writing
    std::string finish;
    std::time_t when = 0;
};

/// What is measured now, from elsewhere.
struct Gauges {
    size_t running = 0, waiting = 0, slots = 0, connections = 0;
    bool loaded = false;
    std::string model;
    std::map<std::string, std::string, std::less<>> engine;  // INFO facts
    Json live = Json::array();
};

class Metrics {
  public:
    void request(const std::string& path, int status);
    void answered(const RequestRecord& record);
    void first_token(double seconds);
    void between_tokens(double seconds);
    void engine_started();
    void engine_failed();
    /// Looks at the machine; every HardwareHistory::kInterval. `engine_pid` 0: there is none.
    void sample_hardware(int engine_pid);

    std::string prometheus(const Gauges& gauges) const;
    Json json(const Gauges& gauges, bool all_requests) const;
    Json last_request() const;  // null before the first
    Json hardware() const;

  private:
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, int>, uint64_t> requests_;
    Totals totals_;
    int64_t hits_ = 0, lookups_ = 0;
    uint64_t answers_ = 0, starts_ = 0, failures_ = 0;
    uint64_t deliveries_ = 0;  // tokens as they came, also of answers that still run
    HardwareHistory hardware_;
    Histogram<12> first_token_{{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120}};
    Histogram<12> between_{{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5}};
    std::deque<RequestRecord> last_;
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace strata::server
