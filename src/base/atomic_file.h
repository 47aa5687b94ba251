// A file that appears whole or not at all: written beside its place, flushed to the disk, then moved over the old one.
// A process that is killed at any moment leaves the old file, or none, and perhaps a file of a temporary name.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace strata {

class AtomicFile {
  public:
    static Result<AtomicFile> create(const std::string& path);
    AtomicFile(AtomicFile&& other) noexcept;
    AtomicFile& operator=(AtomicFile&&) = delete;
    /// Without commit the file is dropped.
    ~AtomicFile();

    Result<void> write(std::span<const std::byte> bytes);
    Result<void> commit();

  private:
    AtomicFile(std::string path, std::string temporary, int fd);
    Error error(const char* what) const;

    std::string path_, temporary_;
    int fd_;
};

}  // namespace strata
