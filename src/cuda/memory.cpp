#include "cuda/memory.h"

namespace strata::cuda {
namespace {

constexpr uint64_t kPool = 16ull << 20;

std::string mib(uint64_t bytes) {
    return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}

}  // namespace

Error cuda_error(const std::string& what, cudaError_t error) {
    return device_error(what + ": " + cudaGetErrorString(error));
}

CardMemory::~CardMemory() {
    for (const auto& [memory, bytes] : sizes_) cudaFree(memory);
}

Result<std::byte*> CardMemory::take(uint64_t bytes, const std::string& what) {
    void* memory = nullptr;
    const uint64_t wanted = bytes == 0 ? 256 : bytes;
    if (const cudaError_t error = cudaMalloc(&memory, wanted); error != cudaSuccess) {
        cudaGetLastError();  // not sticky: the next call starts clean
        size_t free = 0, total = 0;
        cudaMemGetInfo(&free, &total);
        return device_error(what + " needs " + mib(wanted) + " on the card, which has " + mib(free) + " of " +
                            mib(total) + " free (" + mib(taken_) +
                            " are this program's): use a smaller context, a smaller file, or --device cpu");
    }
    auto* bytes_at = static_cast<std::byte*>(memory);
    sizes_[bytes_at] = wanted;
    taken_ += wanted;
    return bytes_at;
}

Result<std::byte*> CardMemory::take_small(uint64_t bytes, const std::string& what) {
    const uint64_t rounded = (bytes + 255) & ~uint64_t{255};
    if (rounded > kPool / 4) return take(rounded, what);
    if (rounded > pool_left_) {
        STRATA_TRY_ASSIGN(pool_, take(kPool, what));
        pool_left_ = kPool;
    }
    std::byte* piece = pool_ + (kPool - pool_left_);
    pool_left_ -= rounded;
    return piece;
}

void CardMemory::give_back(std::byte* memory) {
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) return;
    cudaFree(memory);
    taken_ -= found->second;
    sizes_.erase(found);
}

Uploader::~Uploader() {
    for (int i = 0; i < 2; ++i) {
        if (pending_[i]) cudaEventSynchronize(sent_[i]);
        if (sent_[i]) cudaEventDestroy(sent_[i]);
        if (buffers_[i]) cudaFreeHost(buffers_[i]);
    }
}

Result<std::byte*> Uploader::stage() {
    if (!buffers_[next_]) {
        if (const cudaError_t error = cudaMallocHost(reinterpret_cast<void**>(&buffers_[next_]), kPiece);
            error != cudaSuccess)
            return cuda_error("no pinned memory for uploads", error);
        if (const cudaError_t error = cudaEventCreateWithFlags(&sent_[next_], cudaEventDisableTiming);
            error != cudaSuccess)
            return cuda_error("uploads", error);
    }
    if (pending_[next_]) {
        if (const cudaError_t error = cudaEventSynchronize(sent_[next_]); error != cudaSuccess)
            return cuda_error("uploads", error);
        pending_[next_] = false;
    }
    return buffers_[next_];
}

Result<void> Uploader::send(std::byte* to, uint64_t bytes) {
    cudaError_t error = cudaMemcpyAsync(to, buffers_[next_], bytes, cudaMemcpyHostToDevice, stream_);
    if (error == cudaSuccess) error = cudaEventRecord(sent_[next_], stream_);
    if (error != cudaSuccess) return cuda_error("upload", error);
    pending_[next_] = true;
    next_ ^= 1;
    return {};
}

}  // namespace strata::cuda
