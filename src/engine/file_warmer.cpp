#include "engine/file_warmer.h"

#include <algorithm>
#include <cstdint>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/system_memory.h"
#include "gguf/file.h"

namespace strata {

FileWarmer::FileWarmer(std::vector<std::span<const std::byte>> memory, std::function<void()> then)
    : memory_(std::move(memory)), then_(std::move(then)) {
    uint64_t bytes = 0;
    for (const auto& range : memory_) bytes += range.size();
    if (bytes > available_memory()) return;
    for (const auto& range : memory_) gguf::prefer_large_pages(range);
    thread_ = std::thread([this] {
        constexpr size_t kPiece = size_t{4} << 20;
        setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
        for (const auto& range : memory_)
            for (size_t at = 0; at < range.size(); at += kPiece) {
                if (stop_.load(std::memory_order_relaxed)) return;
                gguf::touch(range.subspan(at, std::min(kPiece, range.size() - at)));
            }
        if (then_) then_();
    });
}

FileWarmer::~FileWarmer() {
    stop_.store(true, std::memory_order_relaxed);
    wait();
}

void FileWarmer::wait() {
    if (thread_.joinable()) thread_.join();
}

}  // namespace strata
