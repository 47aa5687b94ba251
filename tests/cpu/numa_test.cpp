#include "cpu/numa.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

namespace strata::cpu {
namespace {

/// The first processor that this process may use.
int first_cpu() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed)) ++cpu;
    return cpu;
}

TEST(Numa, NodesAreThoseWithProcessorsThatMayBeUsed) {
    const std::filesystem::path root =
        std::filesystem::temp_directory_path() / ("polystrata-numa-" + std::to_string(getpid()));
    const int cpu = first_cpu();
    const auto write = [&](const char* node, const std::string& list) {
        std::filesystem::create_directories(root / node);
        std::ofstream(root / node / "cpulist") << list << "\n";
    };
    write("node3", std::to_string(cpu) + "-" + std::to_string(cpu));
    write("node1", "100000," + std::to_string(cpu) + ",x");
    write("node0", "100000-100003");
    write("node2", "");
    write("nodes", std::to_string(cpu));
    const auto nodes = numa_nodes(root);
    std::filesystem::remove_all(root);
    ASSERT_EQ(nodes.size(), 2u);
    EXPECT_EQ(nodes[0].number, 1);
    EXPECT_EQ(nodes[0].cpus, std::vector<int>{cpu});
    EXPECT_EQ(nodes[1].number, 3);
    EXPECT_TRUE(numa_nodes(root / "none").empty());
}

TEST(Numa, ThreadsMoveOnlyToANodeThatHoldsMostOfTheMemoryAndHasRoom) {
    const std::vector<NumaNode> two{{0, {0, 1, 2, 3}}, {1, {4, 5}}};
    EXPECT_EQ(node_for(two, 4, NodeShare{0, 0.9}), &two[0]);
    EXPECT_EQ(node_for(two, 2, NodeShare{1, 0.9}), &two[1]);
    EXPECT_EQ(node_for(two, 3, NodeShare{1, 0.9}), nullptr);  // more threads than processors
    EXPECT_EQ(node_for(two, 2, NodeShare{1, 0.5}), nullptr);  // half is not most
    EXPECT_EQ(node_for(two, 2, NodeShare{7, 0.9}), nullptr);
    EXPECT_EQ(node_for(two, 2, std::nullopt), nullptr);
    EXPECT_EQ(node_for(std::span(two).first(1), 2, NodeShare{0, 1.0}), nullptr);  // one node: nothing to say
}

TEST(Numa, PagesOfAMachineAreFoundOnOneOfItsNodesOrNowhere) {
    std::vector<std::byte> memory(1 << 20, std::byte{1});
    const std::span<const std::byte> range(memory);
    const auto found = node_of({&range, 1});
    if (found) {
        EXPECT_GE(found->node, 0);
        EXPECT_GT(found->share, 0);
        EXPECT_LE(found->share, 1);
    }
    EXPECT_FALSE(node_of({}));
}

}  // namespace
}  // namespace strata::cpu
