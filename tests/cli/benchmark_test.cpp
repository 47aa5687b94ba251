#include "cli/benchmark.h"

#include <gtest/gtest.h>

#include "setup/sha256.h"
#include "support/mock_model.h"
#include "support/process.h"

namespace strata::test {
namespace {

constexpr std::string_view kTwoRuns =
    "INFO device=none threads=1\nREADY 4096 stop\n"
    "on GEN\nPP 10 20\nREUSED 0\nT 5\nT 6\nDONE 2 20 100.0 50.0 length 1 2 0 3 4 seed=1\n"
    "on GEN\nPP 64 64\nREUSED 0\nT 5\nT 7\nDONE 2 64 200.0 40.0 length 0 0 0 0 0 seed=1\n";

TEST(Benchmark, TextNeverChanges) {
    EXPECT_EQ(sha256(cli::kBenchmarkText), "ae6d7859d6eba4396ae43287e47982ab053eb68c55a90dc2a4589f3283f19ff4");
}

TEST(Benchmark, ResultHoldsWhatTheEngineSaid) {
    const MockModel mock(kTwoRuns);
    const std::string file = mock.file("result.json");
    const Finished done = run(mock.words("benchmark", {"--prompt-tokens", "64", "--new", "2", "--json", file}));
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out.find("short"), std::string::npos) << done.out;
    const auto result = parse_json(read_file(file));
    ASSERT_TRUE(result.ok());
    ASSERT_EQ((*result)["runs"].size(), 2u);
    const Json& first = (*result)["runs"][0];
    EXPECT_EQ(first["name"], "short");
    EXPECT_DOUBLE_EQ(first["read_tps"].get<double>(), 200.0);
    EXPECT_DOUBLE_EQ(first["write_tps"].get<double>(), 40.0);
    EXPECT_DOUBLE_EQ(first["hit_rate"].get<double>(), 0.75);
    EXPECT_EQ(first["guesses_offered"], 2);
    EXPECT_EQ(first["guesses_right"], 1);
    EXPECT_TRUE((*result)["runs"][1]["hit_rate"].is_null());
    EXPECT_EQ((*result)["model"]["id"], "mock");
    EXPECT_GT((*result)["machine"]["ram_gib"].get<double>(), 0.0);
}

TEST(Benchmark, AsksForGreedyTokensOfTheGivenLengths) {
    const MockModel mock(kTwoRuns);
    ASSERT_EQ(run(mock.words("benchmark", {"--prompt-tokens", "64", "--new", "2"})).code, 0);
    std::istringstream log(mock.log());
    std::string first, second;
    ASSERT_TRUE(std::getline(log, first) && std::getline(log, second));
    EXPECT_EQ(std::ranges::count(second.substr(second.rfind(' ')), ','), 63) << second;
    EXPECT_NE(second.find("cache=0"), std::string::npos) << second;
}

TEST(Benchmark, ComparesWithAnEarlierResult) {
    const MockModel mock(kTwoRuns);
    const std::string file = mock.file("result.json");
    ASSERT_EQ(run(mock.words("benchmark", {"--prompt-tokens", "64", "--new", "2", "--json", file})).code, 0);
    const Finished done = run(mock.words("benchmark", {"--prompt-tokens", "64", "--new", "2", "--compare", file}));
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out.find("short    read 1.00x, write 1.00x, the same answer"), std::string::npos) << done.out;
}

TEST(Benchmark, PromptsAreCutToTheContext) {
    const MockModel mock(
        "READY 100 stop\non GEN\nT 5\nDONE 1 2 1 1 length 0 0 0 0 0\non GEN\nT 5\nDONE 1 2 1 1 length 0 0 0 0 0\n");
    const Finished done = run(mock.words("benchmark", {"--prompt-tokens", "2000", "--new", "10"}));
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.err.find("cut to 82"), std::string::npos) << done.err;
}

TEST(Benchmark, WrongComparisonFileIsRefusedBeforeMeasuring) {
    const MockModel mock(kTwoRuns);
    mock.write("other.json", "{}");
    const Finished done = run(mock.words("benchmark", {"--compare", mock.file("other.json")}));
    EXPECT_EQ(done.code, 3);
    EXPECT_NE(done.err.find("other.json: holds no result"), std::string::npos) << done.err;
    EXPECT_EQ(mock.log(), "");
}

TEST(Benchmark, SyntheticFileIsWrittenOnlyWithAgreement) {
    const TempFolder home;
    const std::vector<std::string> words = {program("polystrata"), "benchmark", "--data-dir", home.path(),
                                            "--synthetic"};
    const auto refused = [&](const std::string& preset) {
        std::vector<std::string> all = words;
        all.push_back(preset);
        const Finished done = run(all);
        EXPECT_EQ(done.code, 2) << done.err;
        EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
        return done.err;
    };
    EXPECT_NE(refused("qwen3.6-35b-a3b").find("22.7 GB"), std::string::npos);
    refused("qwen3.6-35b-a3b:nosuch");
    refused("nosuch");
    EXPECT_TRUE(std::filesystem::is_empty(home.path()));
}

TEST(Benchmark, EngineThatDoesNotStartGivesItsReasonAndCode) {
    const MockModel mock("@stderr not enough memory for the weights\n@exit 4\n");
    const Finished done = run(mock.words("benchmark"));
    EXPECT_EQ(done.code, 4);
    EXPECT_NE(done.err.find("not enough memory for the weights"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace strata::test
