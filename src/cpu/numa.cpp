#include "cpu/numa.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace strata::cpu {

#if defined(__linux__)

namespace {

/// The numbers of a list like "0-3,8,10-11" that are in `allowed`; what is no number is left out.
std::vector<int> usable_cpus(const std::string& list, const cpu_set_t& allowed) {
    std::vector<int> cpus;
    std::istringstream items(list);
    for (std::string item; std::getline(items, item, ',');) {
        std::istringstream numbers(item);
        int first = 0, last = 0;
        char dash = 0;
        if (!(numbers >> first)) continue;
        if (!(numbers >> dash >> last)) last = first;
        for (int cpu = std::max(0, first); cpu <= last && cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    }
    return cpus;
}

}  // namespace

std::vector<NumaNode> numa_nodes(const std::filesystem::path& root) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
    std::vector<NumaNode> nodes;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(root, ignored)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("node") || name.size() > 8) continue;
        std::istringstream digits(name.substr(4));
        int number = 0;
        if (!(digits >> number)) continue;
        std::ifstream file(entry.path() / "cpulist");
        std::string list;
        std::getline(file, list);
        std::vector<int> cpus = usable_cpus(list, allowed);
        if (!cpus.empty()) nodes.push_back({number, std::move(cpus)});
    }
    std::sort(nodes.begin(), nodes.end(), [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
    return nodes;
}

std::optional<NodeShare> node_of(std::span<const std::span<const std::byte>> memory) {
    constexpr uint64_t kPages = 4096;
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    uint64_t bytes = 0;
    for (const auto& range : memory) bytes += range.size();
    const uint64_t step = std::max(page, bytes / kPages);
    std::vector<void*> pages;
    for (const auto& range : memory)
        for (uint64_t at = 0; at < range.size(); at += step) {
            const auto address = reinterpret_cast<uintptr_t>(range.data() + at) & ~(page - 1);
            pages.push_back(reinterpret_cast<void*>(address));
        }
    if (pages.empty()) return std::nullopt;
    std::vector<int> places(pages.size(), -1);  // a node, or an error below zero
    if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, places.data(), 0) != 0) return std::nullopt;
    std::map<int, uint64_t> counts;
    uint64_t known = 0;
    for (const int place : places)
        if (place >= 0) ++counts[place], ++known;
    if (known == 0) return std::nullopt;
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return NodeShare{most->first, static_cast<double>(most->second) / static_cast<double>(known)};
}

#else

std::vector<NumaNode> numa_nodes(const std::filesystem::path&) {
    return {};
}
std::optional<NodeShare> node_of(std::span<const std::span<const std::byte>>) {
    return std::nullopt;
}

#endif

const NumaNode* node_for(std::span<const NumaNode> nodes, int threads, const std::optional<NodeShare>& memory) {
    if (nodes.size() < 2 || !memory || memory->share <= 0.5) return nullptr;
    for (const NumaNode& node : nodes)
        if (node.number == memory->node && static_cast<size_t>(threads) <= node.cpus.size()) return &node;
    return nullptr;
}

}  // namespace strata::cpu
