#include <gtest/gtest.h>

#include "support/process.h"
#include "text/json.h"

namespace strata::test {
namespace {

const std::string kModel = data("qwen35moe/tiny.gguf");

TEST(Inspect, SaysWhatAFileIs) {
    const Finished done = run({program("polystrata"), "inspect", kModel});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out.find("architecture   qwen35moe"), std::string::npos) << done.out;
    EXPECT_NE(done.out.find("experts        8 a layer, 3 used by a token"), std::string::npos) << done.out;
}

TEST(Inspect, JsonListsEveryTensor) {
    const Finished done = run({program("polystrata"), "inspect", kModel, "--json", "--tensors"});
    EXPECT_EQ(done.code, 0) << done.err;
    const auto json = parse_json(done.out);
    ASSERT_TRUE(json.ok()) << json.error().message;
    EXPECT_EQ((*json)["architecture"], "qwen35moe");
    EXPECT_EQ((*json)["tensors"].size(), 131u);
    uint64_t bytes = 0;
    for (const Json& tensor : (*json)["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
    EXPECT_EQ((*json)["tensor_bytes"], bytes);
    EXPECT_EQ((*json)["dense_bytes"].get<uint64_t>() + (*json)["expert_bytes"].get<uint64_t>(), bytes);
}

TEST(Inspect, MemoryIsWhatTheFileHolds) {
    const auto json = parse_json(run({program("polystrata"), "inspect", kModel, "--json"}).out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ((*json)["runs"], true);
    const Json& memory = (*json)["memory"];
    EXPECT_EQ(memory["expert_bytes"], (*json)["expert_bytes"]);
    EXPECT_EQ(memory["experts"], 7 * 8);
    const Json& longest = memory["conversations"].back();
    EXPECT_EQ(longest["tokens"], 4096);
    EXPECT_LT(longest["q8_0_bytes"].get<uint64_t>(), longest["f16_bytes"].get<uint64_t>());
}

TEST(Inspect, PresetIsWhatTheDownloadWouldBe) {
    const auto json = parse_json(run({program("polystrata"), "inspect", "qwen3.6-35b-a3b:ud-q4_k_m", "--json"}).out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ((*json)["runs"], true) << (*json)["problem"];
    EXPECT_NEAR((*json)["file_bytes"].get<double>(), 22.7e9, 0.2e9);
    EXPECT_EQ((*json)["memory"]["experts"], 41 * 256);
    const Finished wrong = run({program("polystrata"), "inspect", "qwen3.6-35b-a3b:nosuch"});
    EXPECT_EQ(wrong.code, 2);
    EXPECT_EQ(std::ranges::count(wrong.err, '\n'), 1) << wrong.err;
}

TEST(Inspect, SaysWhyAFileCannotRun) {
    const Finished done = run({program("polystrata"), "inspect", data("gguf/v01_empty.gguf"), "--json"});
    EXPECT_EQ(done.code, 0) << done.err;
    const auto json = parse_json(done.out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ((*json)["runs"], false);
    EXPECT_NE((*json)["problem"].get<std::string>().find("general.architecture"), std::string::npos) << done.out;
}

TEST(Inspect, RefusedFileIsOneLineAndCode3) {
    for (const std::string& file : {std::string("/nowhere/model.gguf"), data("gguf/m45_offset_outside.gguf")}) {
        const Finished done = run({program("polystrata"), "inspect", file});
        EXPECT_EQ(done.code, 3) << file;
        EXPECT_EQ(done.out, "") << file;
        EXPECT_NE(done.err.find(file + ": "), std::string::npos) << done.err;
        EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
    }
}

}  // namespace
}  // namespace strata::test
