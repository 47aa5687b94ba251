// A whole file mapped read-only and shared, its descriptor kept open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace strata::gguf {

/// Size, inode and time come from the open descriptor, so they belong to the bytes that are mapped even if the path
/// names another file by now. Moves leave the source empty.
class Mapping {
  public:
    static Result<Mapping> open(const std::filesystem::path& path);

    Mapping() = default;
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&& other) noexcept;
    ~Mapping();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    int descriptor() const { return descriptor_; }
    uint64_t device() const { return device_; }
    uint64_t inode() const { return inode_; }
    int64_t mtime_ns() const { return mtime_ns_; }

    /// Whether the file still has the size and time that it had when it was opened. A read of a mapping whose file was
    /// cut short ends the process, so ask before using parts that are loaded late.
    bool unchanged() const;

  private:
    const std::byte* data_ = nullptr;
    uint64_t size_ = 0;
    int descriptor_ = -1;
    uint64_t device_ = 0;
    uint64_t inode_ = 0;
    int64_t mtime_ns_ = 0;
    int watch_ = -1;  // place in the table of report_bus_errors
};

/// A file that is cut short while it is mapped turns the next read of it into a bus error. After this call the process
/// then ends with exit code 3 and one line on standard error that names the file. For the main function of a program.
void report_bus_errors();

}  // namespace strata::gguf
