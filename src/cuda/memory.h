// The card's memory: one allocation at a time for large things, blocks of a pool for small vectors, and uploads of
// weights through pinned staging.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace strata::cuda {

/// "MESSAGE: what the driver says"
Error cuda_error(const std::string& what, cudaError_t error);

/// All memory that a device took. Not thread-safe.
class CardMemory {
  public:
    CardMemory() = default;
    ~CardMemory();
    CardMemory(const CardMemory&) = delete;
    CardMemory& operator=(const CardMemory&) = delete;

    /// `what` is for the sentence that says what needed how much when the card has no more.
    Result<std::byte*> take(uint64_t bytes, const std::string& what);
    /// Small things that live as long as the device: 256-byte aligned pieces of 16 MiB blocks.
    Result<std::byte*> take_small(uint64_t bytes, const std::string& what);
    void give_back(std::byte* memory);
    uint64_t taken() const { return taken_; }

  private:
    std::unordered_map<std::byte*, uint64_t> sizes_;
    std::byte* pool_ = nullptr;
    uint64_t pool_left_ = 0;
    uint64_t taken_ = 0;
};

/// Host bytes to the card in pieces through two pinned buffers, so that the copy of one piece runs while the next is
/// staged.
class Uploader {
  public:
    explicit Uploader(cudaStream_t stream) : stream_(stream) {}
    ~Uploader();
    Uploader(const Uploader&) = delete;
    Uploader& operator=(const Uploader&) = delete;

    static constexpr uint64_t kPiece = 32ull << 20;

    /// Where the next piece's bytes go (pinned, kPiece bytes); waits until the buffer is free.
    Result<std::byte*> stage();
    /// Copies the staged bytes to the card, in the order of the stream.
    Result<void> send(std::byte* to, uint64_t bytes);

  private:
    cudaStream_t stream_;
    std::byte* buffers_[2] = {nullptr, nullptr};
    cudaEvent_t sent_[2] = {nullptr, nullptr};
    bool pending_[2] = {false, false};
    int next_ = 0;
};

}  // namespace strata::cuda
