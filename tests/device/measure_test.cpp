#include "device/measure.h"

#include <array>
#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(MeasuringDevice, CountsTheMemoryOfAConversation) {
    MeasuringDevice device;
    StateLayout layout;
    layout.add({.kind = PartSpec::Kind::rows, .name = "k", .type = Type::f16, .width = 64});
    layout.add(
        {.kind = PartSpec::Kind::ring, .name = "w", .type = Type::q8_0, .width = 64, .window = 5, .capacity = 20});
    layout.add({.kind = PartSpec::Kind::block, .name = "s", .bytes = 1000, .log_bytes = 10});
    {
        auto state = device.make_state(layout, 1 << 20);
        ASSERT_TRUE(state.ok());
        EXPECT_EQ(device.allocated(), (uint64_t{1} << 20) * 128 + 20 * 68 + 1000 + 80);
        EXPECT_NE(state.value().part(0), state.value().part(1));
    }
    EXPECT_EQ(device.allocated(), 0u);
    EXPECT_GT(device.peak(), 0u);
}

TEST(MeasuringDevice, RefusesAConversationWhoseSizeOverflows) {
    MeasuringDevice device;
    StateLayout layout;
    layout.add({.kind = PartSpec::Kind::block, .name = "s", .bytes = ~uint64_t{0} - 3, .log_bytes = 8});
    EXPECT_FALSE(device.make_state(layout, 1).ok());
}

TEST(MeasuringDevice, GivesWeightsThatAreThere) {
    MeasuringDevice device;
    const std::array<float, 4> values{};
    const WeightView view{.name = "w",
                          .type = Type::f32,
                          .rows = 2,
                          .cols = 2,
                          .data = reinterpret_cast<const std::byte*>(values.data())};
    EXPECT_TRUE(static_cast<bool>(device.load_matrix(view).value()));
    EXPECT_NE(device.load_vector(view).value(), nullptr);
    EXPECT_EQ(device.dense_bytes(), 2u * sizeof values);
    EXPECT_TRUE(static_cast<bool>(device.load_experts(0, Gate::silu, view, view, view).value().down));
    EXPECT_EQ(device.expert_bytes(), 3u * sizeof values);
    EXPECT_EQ(device.dense_bytes(), 2u * sizeof values);
}

TEST(Arena, MeasuresWhatTheSameCallsTakeFromMemory) {
    const auto take = [](Arena& arena) {
        arena.rows(3, 100);
        {
            const Arena::Scope scope(arena);
            arena.activations(5, 64);
        }
        arena.rows(1, 7);
    };
    Arena measured(nullptr, 0);
    take(measured);
    std::vector<std::byte> memory(measured.peak());
    Arena real(memory.data(), memory.size());
    take(real);
    EXPECT_EQ(real.peak(), measured.peak());
    EXPECT_EQ(real.used(), measured.used());
    EXPECT_EQ(real.take(memory.size()), nullptr);
}

}  // namespace
}  // namespace strata
