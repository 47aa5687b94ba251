#include "cuda/late_copies.h"

#include <algorithm>
#include <cstring>

namespace strata::cuda {

LateCopies::~LateCopies() {
    if (!thread_.joinable()) return;
    finish();
    {
        const std::lock_guard lock(mutex_);
        end_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

bool LateCopies::start(void* host, const std::byte* from, uint64_t bytes, cudaStream_t stream, CardMemory& memory) {
    const uint64_t rounded = (bytes + 255) & ~uint64_t{255};
    if (refused_ || rounded > kAside) return false;
    if (!aside_) {
        auto taken = memory.take(kAside, "room for late copies");
        if (!taken) {
            refused_ = true;
            return false;
        }
        aside_ = *taken;
        thread_ = std::thread([this] { work(); });
    }
    bool idle;
    {
        const std::lock_guard lock(mutex_);
        idle = jobs_.empty();
    }
    if (idle) used_ = 0;
    if (used_ + rounded > kAside) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return jobs_.empty(); });
        used_ = 0;
    }
    Job job{static_cast<std::byte*>(host), aside_ + used_, bytes, nullptr};
    cudaError_t error = cudaMemcpyAsync(aside_ + used_, from, bytes, cudaMemcpyDeviceToDevice, stream);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&job.ready, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventRecord(job.ready, stream);
    used_ += rounded;
    const std::lock_guard lock(mutex_);
    if (error != cudaSuccess) {
        if (error_ == cudaSuccess) error_ = error;
        return true;
    }
    jobs_.push_back(job);
    changed_.notify_all();
    return true;
}

cudaError_t LateCopies::finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty(); });
    return std::exchange(error_, cudaSuccess);
}

cudaError_t LateCopies::bring(const Job& job) {
    cudaError_t error = cudaEventSynchronize(job.ready);
    cudaEventDestroy(job.ready);
    if (error == cudaSuccess && !stream_) error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (error == cudaSuccess && !pinned_) error = cudaMallocHost(reinterpret_cast<void**>(&pinned_), kPiece);
    for (uint64_t at = 0; at < job.bytes && error == cudaSuccess; at += kPiece) {
        const uint64_t n = std::min(kPiece, job.bytes - at);
        error = cudaMemcpyAsync(pinned_, job.from + at, n, cudaMemcpyDeviceToHost, stream_);
        if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
        if (error == cudaSuccess) std::memcpy(job.host + at, pinned_, n);
    }
    return error;
}

void LateCopies::work() {
    cudaSetDevice(card_);
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return end_ || !jobs_.empty(); });
        if (jobs_.empty()) break;
        const Job job = jobs_.front();
        lock.unlock();
        const cudaError_t error = bring(job);
        lock.lock();
        if (error != cudaSuccess && error_ == cudaSuccess) error_ = error;
        jobs_.pop_front();
        changed_.notify_all();
    }
    if (pinned_) cudaFreeHost(pinned_);
    if (stream_) cudaStreamDestroy(stream_);
}

}  // namespace strata::cuda
