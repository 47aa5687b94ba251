#include "base/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace strata {

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(temporary_.c_str());
}

Error AtomicFile::error(const char* what) const {
    return file_error(path_ + ": cannot be " + what + ": " + std::strerror(errno), "write");
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
    const std::string temporary = path + ".tmp" + std::to_string(getpid());
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    AtomicFile file(path, temporary, fd);
    if (fd < 0) return file.error("created");
    return file;
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t wrote = ::write(fd_, bytes.data(), bytes.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return error("written");
        bytes = bytes.subspan(static_cast<size_t>(wrote));
    }
    return {};
}

Result<void> AtomicFile::commit() {
    if (fsync(fd_) != 0) return error("flushed to the disk");
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return error("moved to its place");
    close(std::exchange(fd_, -1));
    // The move itself is on the disk once the folder is; where that is refused the file is whole all the same.
    const size_t slash = path_.find_last_of('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    if (const int dir = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); dir >= 0) {
        fsync(dir);
        close(dir);
    }
    return {};
}

}  // namespace strata
