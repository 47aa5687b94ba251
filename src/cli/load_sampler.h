// What the machine does while something runs: highest RAM and VRAM in use, mean CPU and card load, bytes read from
// disks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <sys/types.h>
#include <thread>

namespace strata::cli {

struct MachineLoad {
    uint64_t ram_peak = 0;                  // bytes in use by all programs (total less available)
    std::optional<uint64_t> vram_peak_mib;  // of the first card; nothing without nvidia-smi
    double cpu = 0;                         // 0 to 1, of all cores
    std::optional<double> gpu;              // 0 to 1
    uint64_t disk_read = 0;                 // bytes that the watched process took from disks
};

/// Samples from its construction to finish(), a few times a second.
class LoadSampler {
  public:
    /// `process`: whose reads from disks are counted; `with_card`: ask nvidia-smi, too.
    LoadSampler(pid_t process, bool with_card);
    ~LoadSampler();
    MachineLoad finish();

  private:
    void sample();

    pid_t process_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool ends_ = false;
    MachineLoad load_;
    double gpu_sum_ = 0;
    int gpu_samples_ = 0;
    uint64_t busy_start_ = 0, ticks_start_ = 0, disk_start_ = 0;
    std::thread ram_thread_, card_thread_;
};

}  // namespace strata::cli
