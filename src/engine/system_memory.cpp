#include "engine/system_memory.h"

#include <fstream>
#include <string>

namespace strata {
namespace {

/// The value in KiB of a "Name:   123 kB" line, in bytes; 0 where there is none.
uint64_t value_of(const char* file, const std::string& name) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) << 10;
    return 0;
}

}  // namespace

uint64_t available_memory() {
    const uint64_t bytes = value_of("/proc/meminfo", "MemAvailable");
    return bytes > 0 ? bytes : UINT64_MAX;
}

OwnMemory own_memory() {
    return {value_of("/proc/self/status", "RssAnon"), value_of("/proc/self/status", "VmHWM")};
}

}  // namespace strata
