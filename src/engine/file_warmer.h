// A model's file is read in place: the first touch of each of its pages is a page fault, and a read of the disk where
// the system does not hold it yet. A warmer touches all pages once, beside everything else, so that a first answer is
// as fast as a later one; and it asks for large pages, of which a token's reads walk past fewer.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <thread>
#include <vector>

namespace strata {

class FileWarmer {
  public:
    /// Starts a thread of low priority that touches every page of `memory`, mapped files, and calls `then` when all are
    /// touched. Does nothing at all where the memory is more than the machine has free: pages would push each other
    /// out.
    FileWarmer(std::vector<std::span<const std::byte>> memory, std::function<void()> then);
    /// Stops; `then` is not called any more, or has returned.
    ~FileWarmer();
    FileWarmer(const FileWarmer&) = delete;
    FileWarmer& operator=(const FileWarmer&) = delete;

    /// Waits until everything was touched and `then` has returned.
    void wait();

  private:
    std::vector<std::span<const std::byte>> memory_;
    std::function<void()> then_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace strata
