#include "gguf/mapping.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <string>
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

/// What a signal handler may look at: the mapped ranges and their files' names, in fixed memory. More mappings than
/// places are possible; they are only not named when they fail.
struct Watch {
    std::atomic<bool> taken = false;
    std::atomic<uintptr_t> begin = 0;
    std::atomic<uintptr_t> end = 0;  // 0: not in use
    std::array<char, 512> name{};
};
std::array<Watch, 256> watches;

int watch(const std::byte* data, uint64_t size, const std::string& name) {
    for (size_t i = 0; i < watches.size(); ++i) {
        Watch& place = watches[i];
        if (place.taken.exchange(true)) continue;
        place.name.fill('\0');
        std::copy_n(name.begin(), std::min(name.size(), place.name.size() - 1), place.name.begin());
        place.begin = reinterpret_cast<uintptr_t>(data);
        place.end = reinterpret_cast<uintptr_t>(data) + size;
        return static_cast<int>(i);
    }
    return -1;
}

void unwatch(int place) {
    if (place < 0) return;
    watches[static_cast<size_t>(place)].end = 0;
    watches[static_cast<size_t>(place)].taken = false;
}

void on_bus_error(int, siginfo_t* info, void*) {
    const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
    for (const Watch& place : watches) {
        if (at < place.begin || at >= place.end) continue;
        static constexpr char kText[] =
            ": was cut short or cannot be read any more while it was in use; check the file and start again\n";
        const bool written = ::write(STDERR_FILENO, place.name.data(), ::strlen(place.name.data())) >= 0 &&
                             ::write(STDERR_FILENO, kText, sizeof kText - 1) >= 0;
        ::_exit(written ? 3 : 1);
    }
    ::signal(SIGBUS, SIG_DFL);  // not ours: the read is repeated and ends the process as usual
}

}  // namespace

void report_bus_errors() {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
}

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
    map.watch_ = watch(map.data_, size, path.string());
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
    std::swap(watch_, other.watch_);
    return *this;
}

Mapping::~Mapping() {
    unwatch(watch_);
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
    if (descriptor_ >= 0) ::close(descriptor_);
}

bool Mapping::unchanged() const {
    struct stat facts;
    return descriptor_ >= 0 && ::fstat(descriptor_, &facts) == 0 && static_cast<uint64_t>(facts.st_size) == size_ &&
           nanoseconds(facts.st_mtim) == mtime_ns_;
}

}  // namespace strata::gguf
