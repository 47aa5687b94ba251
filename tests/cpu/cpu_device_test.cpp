#include "cpu/cpu_device.h"

#include "ops_harness.h"

namespace strata::test {
namespace {

TEST(CpuDevice, MatricesAndAlignedFloatsStayInTheFile) {
    const auto device = make_device();
    alignas(64) std::array<std::byte, 4 * 64> file{};
    WeightView view{.name = "w", .type = Type::f32, .rows = 4, .cols = 16, .data = file.data()};
    EXPECT_EQ(device->load_matrix(view).value().data, file.data());
    EXPECT_EQ(reinterpret_cast<const std::byte*>(device->load_vector(view).value()), file.data());
    view.data = file.data() + 2;
    view.rows = 1;
    EXPECT_NE(reinterpret_cast<const std::byte*>(device->load_vector(view).value()), file.data() + 2);
}

TEST(CpuDevice, VectorsOfOtherTypesAreConverted) {
    const auto device = make_device();
    const std::array<uint16_t, 4> bf16{bf16_from_float(1.0f), bf16_from_float(-2.5f), bf16_from_float(0.0f),
                                       bf16_from_float(3e20f)};
    const WeightView view{
        .name = "w", .type = Type::bf16, .cols = 4, .data = reinterpret_cast<const std::byte*>(bf16.data())};
    const float* values = device->load_vector(view).value();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(values[i], float_from_bf16(bf16[size_t(i)]));
    const std::vector<float> host{1, 2, 3};
    const float* copy = device->load_vector(host).value();
    EXPECT_NE(copy, host.data());
    EXPECT_EQ(copy[2], 3.0f);
}

TEST(CpuDevice, RoomForALongContextCostsNothingBeforeItIsUsed) {
    const auto device = make_device();
    auto memory = device->allocate(uint64_t{1} << 37, "a long context");  // 128 GiB
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    std::byte* last = memory.value() + (uint64_t{1} << 37) - 1;
    EXPECT_EQ(*last, std::byte{0});
    *last = std::byte{1};
    device->release(memory.value());
}

TEST(CpuDevice, NoMemoryIsAnErrorThatNamesWhatItWasFor) {
    const auto memory = make_device()->allocate(uint64_t{1} << 62, "blk.3.k");
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().kind, ErrorKind::device);
    EXPECT_NE(memory.error().message.find("blk.3.k"), std::string::npos);
}

TEST(CpuDevice, FactsSayWhatItRunsOn) {
    const auto device = make_device({cpu::Simd::scalar, 3});
    EXPECT_EQ(device->facts().name, "cpu");
    EXPECT_EQ(device->facts().threads, 3);
    EXPECT_NE(device->facts().description.find("3 threads, scalar"), std::string::npos);
}

class BadCalls : public testing::Test {
  protected:
    BadCalls() : device(make_device()) {
        layout.add({.kind = PartSpec::Kind::ring,
                    .name = "ring",
                    .type = Type::f32,
                    .width = 32,
                    .window = 5,
                    .capacity = 14});
        state = device->make_state(layout, 20).value();
    }
    void expect_refused(const Call& call) {
        device->begin(call);
        EXPECT_FALSE(device->status().ok());
        Table x(1, 32);  // and nothing is computed any more
        x.at(0, 0) = 7.0f;
        device->scale(x.view(), 2.0f, nullptr);
        EXPECT_EQ(x.at(0, 0), 7.0f);
    }
    std::unique_ptr<CpuDevice> device;
    StateLayout layout;
    State state;
};

TEST_F(BadCalls, RowsBehindTheConversationsRoom) {
    state.rows = 15;
    TestCall call({{&state, 6}});
    expect_refused(call.call());
}

TEST_F(BadCalls, MoreRowsThanARingHasRoomFor) {
    TestCall fits({{&state, 10}});
    device->begin(fits.call());
    EXPECT_TRUE(device->status().ok());
    TestCall call({{&state, 11}});
    expect_refused(call.call());
}

TEST_F(BadCalls, WindowsLongerThanTheLog) {
    TestCall call({{&state, kMaxWindow + 1, true}});
    expect_refused(call.call());
}

TEST_F(BadCalls, SpansThatDoNotCoverTheCall) {
    TestCall call({{&state, 3}});
    call.call().rows = 4;
    expect_refused(call.call());
}

}  // namespace
}  // namespace strata::test
