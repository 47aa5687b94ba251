// Copies to the host that nobody waits for: what they copy is set aside on the card at once, in the order of the
// stream, and a thread brings it to the host while the card goes on. Checkpoints of a read are made this way.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "cuda/memory.h"

namespace strata::cuda {

/// Calls come from one thread.
class LateCopies {
  public:
    explicit LateCopies(int card) : card_(card) {}
    ~LateCopies();
    LateCopies(const LateCopies&) = delete;
    LateCopies& operator=(const LateCopies&) = delete;

    /// False: there is no room to set the bytes aside, copy them now.
    bool start(void* host, const std::byte* from, uint64_t bytes, cudaStream_t stream, CardMemory& memory);
    /// All that was started has arrived. The first error since the last call.
    cudaError_t finish();

  private:
    static constexpr uint64_t kAside = 80ull << 20;  // bytes set aside at most
    static constexpr uint64_t kPiece = 4ull << 20;   // of a copy to pinned memory
    struct Job {
        std::byte* host;
        const std::byte* from;
        uint64_t bytes;
        cudaEvent_t ready;  // the bytes are set aside
    };
    void work();
    cudaError_t bring(const Job& job);

    const int card_;
    std::byte* aside_ = nullptr;
    uint64_t used_ = 0;
    bool refused_ = false;  // the card has no room: not asked again

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;  // the first is being worked on
    bool end_ = false;
    cudaError_t error_ = cudaSuccess;
    std::thread thread_;
    // The thread's own.
    cudaStream_t stream_ = nullptr;
    std::byte* pinned_ = nullptr;
};

}  // namespace strata::cuda
