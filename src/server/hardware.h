// How busy this machine is, now and over the last minute, for the monitor. Linux: from /proc; elsewhere empty.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "text/json.h"

namespace strata::server {

struct HardwareSample {
    double cpu_load = 0;           // of all processors since the sample before, 0..1
    uint64_t ram_total = 0;        // bytes
    uint64_t ram_available = 0;    // bytes
    uint64_t server_resident = 0;  // bytes, mapped files included
    uint64_t engine_resident = 0;  // bytes; 0 without an engine
    double tokens_per_second = 0;  // written since the sample before
};

/// Resident bytes of a process; 0 where it cannot be told.
uint64_t resident_bytes(int pid);

/// Samples of the last minute. Not safe from several threads: Metrics guards it.
class HardwareHistory {
  public:
    static constexpr std::chrono::seconds kInterval{5};

    /// Takes a sample; `engine_pid` 0: there is none. `tokens`: written since the start.
    void sample(int engine_pid, uint64_t tokens);
    /// The newest; empty before the first.
    HardwareSample now() const { return samples_.empty() ? HardwareSample{} : samples_.back(); }
    /// Oldest first.
    Json minute() const;

    static Json json(const HardwareSample& sample);

  private:
    static constexpr size_t kKept = 12;
    std::deque<HardwareSample> samples_;
    uint64_t busy_ = 0, ticks_ = 0;  // of /proc/stat at the last sample
    uint64_t tokens_ = 0;
    std::chrono::steady_clock::time_point when_ = std::chrono::steady_clock::now();
};

}  // namespace strata::server
