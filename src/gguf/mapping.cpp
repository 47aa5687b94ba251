#include "gguf/mapping.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace strata::gguf {
namespace {

Error refused(const std::filesystem::path& path, int error) {
    const std::string text = path.string() + ": cannot be opened: " + std::generic_category().message(error);
    return file_error(text, error == ENOENT ? "missing" : "unreadable");
}

int64_t nanoseconds(const struct timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<Mapping> Mapping::open(const std::filesystem::path& path) {
    Mapping map;
    // O_NONBLOCK: a path that names a pipe must be refused, not waited for.
    map.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (map.descriptor_ < 0) return refused(path, errno);
    struct stat facts;
    if (::fstat(map.descriptor_, &facts) != 0) return refused(path, errno);
    if (!S_ISREG(facts.st_mode))
        return file_error(path.string() + ": is not a file: name the .gguf file itself", "not-a-file");
    map.device_ = facts.st_dev;
    map.inode_ = facts.st_ino;
    map.mtime_ns_ = nanoseconds(facts.st_mtim);
    const auto size = static_cast<uint64_t>(facts.st_size);
    if (size == 0) return map;  // nothing to map; the parser refuses it
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, map.descriptor_, 0);
    if (data == MAP_FAILED) return refused(path, errno);
    map.data_ = static_cast<const std::byte*>(data);
    map.size_ = size;
    return map;
}

Mapping::Mapping(Mapping&& other) noexcept {
    *this = std::move(other);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(device_, other.device_);
    std::swap(inode_, other.inode_);
    std::swap(mtime_ns_, other.mtime_ns_);
    return *this;
}

Mapping::~Mapping() {
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
    if (descriptor_ >= 0) ::close(descriptor_);
}

bool Mapping::unchanged() const {
    struct stat facts;
    return descriptor_ >= 0 && ::fstat(descriptor_, &facts) == 0 && static_cast<uint64_t>(facts.st_size) == size_ &&
           nanoseconds(facts.st_mtim) == mtime_ns_;
}

}  // namespace strata::gguf
