#include <algorithm>
#include <gtest/gtest.h>

#include "support/process.h"
#include "text/json.h"

namespace strata::test {
namespace {

std::vector<std::string> words(std::vector<std::string> more) {
    more.insert(more.begin(), {program("polystrata"), "synth"});
    return more;
}

TEST(Synth, ListNamesPresetsAndMixes) {
    const Finished done = run(words({"--list"}));
    EXPECT_EQ(done.code, 0);
    for (const char* name : {"qwen3.6-35b-a3b", "gemma-4-26b-a4b-assistant", "ud-q4_k_m", "experts-TYPE", "iq3_xxs"})
        EXPECT_NE(done.out.find(name), std::string::npos) << name;
}

TEST(Synth, UnknownNamesAreWrongUsageAnsweredWithTheKnownOnes) {
    const TempFolder folder;
    const std::string out = (folder.path() / "m.gguf").string();
    const Finished preset = run(words({"--like", "gpt-9", "--out", out}));
    EXPECT_EQ(preset.code, 2);
    EXPECT_NE(preset.err.find("kolibri-1"), std::string::npos) << preset.err;
    const Finished mix = run(words({"--like", "lfm2-8b-a1b", "--mix", "q9", "--out", out}));
    EXPECT_EQ(mix.code, 2);
    EXPECT_NE(mix.err.find("ud-q3_k_m"), std::string::npos) << mix.err;
    EXPECT_EQ(run(words({"--like", "lfm2-8b-a1b"})).code, 2) << "no --out";
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Synth, WritesAModelThatInspectKnowsAndKeepsAnExistingFile) {
    const TempFolder folder;
    const std::string out = (folder.path() / "m.gguf").string();
    const std::vector<std::string> command =
        words({"--like", "lfm2-8b-a1b", "--layers", "1", "--mix", "iq1_s", "--out", out});
    const Finished done = run(command);
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(done.err, "");
    const Finished inspected = run({program("polystrata"), "inspect", out, "--json"});
    const auto facts = parse_json(inspected.out);
    ASSERT_TRUE(facts.ok()) << inspected.out << inspected.err;
    EXPECT_EQ((*facts)["architecture"], "lfm2moe");
    EXPECT_EQ((*facts)["vocabulary"], 65536);

    const auto size = std::filesystem::file_size(out);
    const Finished again = run(command);
    EXPECT_EQ(again.code, 1);
    EXPECT_EQ(std::ranges::count(again.err, '\n'), 1) << again.err;
    EXPECT_NE(again.err.find("--force"), std::string::npos) << again.err;
    EXPECT_EQ(std::filesystem::file_size(out), size);
    std::vector<std::string> forced = command;
    forced.push_back("--force");
    EXPECT_EQ(run(forced).code, 0);
}

TEST(Synth, AWriteThatFailsHalfwayLeavesNoFileAndOneLine) {
    const TempFolder folder;
    const std::string out = (folder.path() / "m.gguf").string();
    // The system refuses to let files grow beyond 4 MB: what a disk that fills up meanwhile does.
    const Finished done = run({"/bin/sh", "-c",
                               "trap '' XFSZ; ulimit -f 8192; exec '" + program("polystrata") +
                                   "' synth --like lfm2-8b-a1b --layers 1 --mix iq1_s --out '" + out + "'"});
    EXPECT_EQ(done.code, 1);
    EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace strata::test
