#include "setup/machine.h"

#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace strata {
namespace {

/// The value of "NAME<separator>value" in a file of such lines; quotes around it are dropped.
std::string value_in(const char* path, std::string_view name, char separator) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with(name)) continue;
        const size_t at = line.find(separator);
        if (at == std::string::npos) continue;
        std::string value = line.substr(at + 1);
        const size_t first = value.find_first_not_of(" \t\"");
        const size_t last = value.find_last_not_of(" \t\"");
        return first == std::string::npos ? std::string{} : value.substr(first, last - first + 1);
    }
    return {};
}

uint64_t leading_number(std::string_view text) {
    uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

void add_card(Machine& machine) {
    const std::unique_ptr<FILE, int (*)(FILE*)> answer(
        popen("nvidia-smi --query-gpu=memory.total,driver_version,name --format=csv,noheader,nounits 2>/dev/null",
              "re"),
        pclose);
    char line[256];
    if (!answer || !std::fgets(line, sizeof line, answer.get())) return;
    const std::string text = line;  // "143771, 570.86.15, NVIDIA H200"
    const size_t first = text.find(", "), second = text.find(", ", first + 1);
    if (first == std::string::npos || second == std::string::npos) return;
    machine.vram = leading_number(text) << 20;
    machine.driver = text.substr(first + 2, second - first - 2);
    machine.gpu = text.substr(second + 2, text.find_last_not_of("\r\n") - second - 1);
}

std::string gibibytes(uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
    return text;
}

}  // namespace

Machine this_machine() {
    Machine machine;
    machine.cpu = value_in("/proc/cpuinfo", "model name", ':');
    cpu_set_t set;
    machine.cores =
        sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    machine.ram = leading_number(value_in("/proc/meminfo", "MemTotal", ':')) << 10;
    machine.os = value_in("/etc/os-release", "PRETTY_NAME", '=');
    utsname kernel{};
    if (uname(&kernel) == 0)
        machine.os += (machine.os.empty() ? "" : ", ") + std::string(kernel.sysname) + " " + kernel.release;
    add_card(machine);
    return machine;
}

Json machine_json(const Machine& machine) {
    return {{"cpu", machine.cpu},
            {"cores", machine.cores},
            {"ram_gib", static_cast<double>(machine.ram * 10 / (1 << 30)) / 10},
            {"gpu", machine.gpu},
            {"vram_mib", machine.vram >> 20},
            {"os", machine.os},
            {"driver", machine.driver}};
}

std::string machine_text(const Machine& machine) {
    return (machine.cpu.empty() ? "an unknown processor" : machine.cpu) + ", " + std::to_string(machine.cores) +
           " threads, " + gibibytes(machine.ram) + " of RAM, " +
           (machine.gpu.empty() ? "no card" : machine.gpu + " with " + gibibytes(machine.vram));
}

}  // namespace strata
