#include "cli/load_sampler.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace strata::cli {
namespace {

constexpr auto kRamPause = std::chrono::milliseconds(100);
constexpr auto kCardPause = std::chrono::milliseconds(500);

/// The number behind a name in a file of "Name:   123" lines; 0 where it is missing.
uint64_t number_in(const std::string& path, const std::string& name) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with(name)) continue;
        std::istringstream words(line.substr(name.size()));
        uint64_t value = 0;
        words >> value;
        return value;
    }
    return 0;
}

/// Busy and all ticks of all cores since the start of the system.
void cpu_ticks(uint64_t& busy, uint64_t& all) {
    std::ifstream in("/proc/stat");
    std::string word;
    in >> word;
    busy = all = 0;
    uint64_t ticks = 0;
    for (int field = 0; field < 8 && in >> ticks; ++field) {  // user nice system idle iowait irq softirq steal
        all += ticks;
        if (field != 3 && field != 4) busy += ticks;
    }
}

struct Card {
    double load;
    uint64_t used_mib;
};

std::optional<Card> ask_card() {
    const std::unique_ptr<FILE, int (*)(FILE*)> answer(
        popen("nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits 2>/dev/null", "re"),
        pclose);
    double load = 0, used = 0;
    if (!answer || std::fscanf(answer.get(), "%lf, %lf", &load, &used) != 2) return std::nullopt;
    return Card{load / 100, static_cast<uint64_t>(used)};
}

}  // namespace

LoadSampler::LoadSampler(pid_t process, bool with_card) : process_(process) {
    cpu_ticks(busy_start_, ticks_start_);
    disk_start_ = number_in("/proc/" + std::to_string(process_) + "/io", "read_bytes:");
    ram_thread_ = std::thread([this] { sample(); });
    if (!with_card) return;
    card_thread_ = std::thread([this] {
        std::unique_lock lock(mutex_);
        while (!ends_) {
            lock.unlock();
            const auto card = ask_card();
            lock.lock();
            if (!card) return;
            gpu_sum_ += card->load;
            ++gpu_samples_;
            load_.vram_peak_mib = std::max(load_.vram_peak_mib.value_or(0), card->used_mib);
            wake_.wait_for(lock, kCardPause, [this] { return ends_; });
        }
    });
}

LoadSampler::~LoadSampler() {
    finish();
}

void LoadSampler::sample() {
    std::unique_lock lock(mutex_);
    for (;;) {
        const uint64_t total = number_in("/proc/meminfo", "MemTotal:");
        const uint64_t available = number_in("/proc/meminfo", "MemAvailable:");
        load_.ram_peak = std::max(load_.ram_peak, (total - std::min(available, total)) << 10);
        if (wake_.wait_for(lock, kRamPause, [this] { return ends_; })) return;
    }
}

MachineLoad LoadSampler::finish() {
    {
        const std::lock_guard lock(mutex_);
        if (ends_) return load_;
        ends_ = true;
    }
    wake_.notify_all();
    ram_thread_.join();
    if (card_thread_.joinable()) card_thread_.join();
    uint64_t busy = 0, ticks = 0;
    cpu_ticks(busy, ticks);
    if (ticks > ticks_start_)
        load_.cpu = static_cast<double>(busy - busy_start_) / static_cast<double>(ticks - ticks_start_);
    if (gpu_samples_ > 0) load_.gpu = gpu_sum_ / gpu_samples_;
    const uint64_t disk = number_in("/proc/" + std::to_string(process_) + "/io", "read_bytes:");
    load_.disk_read = disk - std::min(disk_start_, disk);
    return load_;
}

}  // namespace strata::cli
