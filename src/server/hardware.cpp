#include "server/hardware.h"

#include <fstream>
#include <string>
#include <unistd.h>

namespace strata::server {
namespace {

/// Processor time since the machine's start, in ticks of all processors together.
void read_ticks(uint64_t& busy, uint64_t& all) {
    std::ifstream file("/proc/stat");
    std::string word;
    busy = all = 0;
    if (!(file >> word) || word != "cpu") return;
    uint64_t ticks = 0;
    for (int i = 0; i < 8 && file >> ticks; ++i) {  // user, nice, system, idle, iowait, irq, softirq, steal
        all += ticks;
        if (i != 3 && i != 4) busy += ticks;
    }
}

void read_memory(uint64_t& total, uint64_t& available) {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    uint64_t kib = 0;
    while (file >> name >> kib && std::getline(file, unit)) {
        if (name == "MemTotal:") total = kib << 10;
        if (name == "MemAvailable:") available = kib << 10;
    }
}

}  // namespace

uint64_t resident_bytes(int pid) {
    if (pid <= 0) return 0;
    std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
    uint64_t pages = 0, resident = 0;
    if (!(file >> pages >> resident)) return 0;
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void HardwareHistory::sample(int engine_pid, uint64_t tokens) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - when_).count();
    HardwareSample one;
    uint64_t busy = 0, ticks = 0;
    read_ticks(busy, ticks);
    if (ticks > ticks_ && ticks_ > 0)
        one.cpu_load = static_cast<double>(busy - busy_) / static_cast<double>(ticks - ticks_);
    read_memory(one.ram_total, one.ram_available);
    one.server_resident = resident_bytes(getpid());
    one.engine_resident = resident_bytes(engine_pid);
    if (seconds > 0) one.tokens_per_second = static_cast<double>(tokens - tokens_) / seconds;
    busy_ = busy;
    ticks_ = ticks;
    tokens_ = tokens;
    when_ = now;
    samples_.push_back(one);
    if (samples_.size() > kKept) samples_.pop_front();
}

Json HardwareHistory::minute() const {
    Json all = Json::array();
    for (const HardwareSample& sample : samples_) all.push_back(json(sample));
    return all;
}

Json HardwareHistory::json(const HardwareSample& s) {
    return {{"cpu_load", s.cpu_load},
            {"ram_total_bytes", s.ram_total},
            {"ram_available_bytes", s.ram_available},
            {"server_resident_bytes", s.server_resident},
            {"engine_resident_bytes", s.engine_resident},
            {"tokens_per_second", s.tokens_per_second}};
}

}  // namespace strata::server
