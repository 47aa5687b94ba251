// Machines whose memory belongs to several nodes: where pages lie, and which processors are near them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace strata::cpu {

struct NumaNode {
    int number;
    std::vector<int> cpus;  // that this process may use, ascending
};

/// The nodes that have processors for this process. Empty where the system does not say.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& root = "/sys/devices/system/node");

struct NodeShare {
    int node;
    double share;  // of the pages whose place is known, 0 .. 1
};

/// The node that holds most of some memory's pages, of those that this process has touched: asks for 4,096 of them,
/// evenly spread. None where the system does not say or no page is there.
std::optional<NodeShare> node_of(std::span<const std::span<const std::byte>> memory);

/// Which node `threads` threads that read such memory should stay on: the one that holds most of it, where it has
/// processors for all of them and others could take them away. None: they stay where they are.
const NumaNode* node_for(std::span<const NumaNode> nodes, int threads, const std::optional<NodeShare>& memory);

}  // namespace strata::cpu
