#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

#include "support/process.h"
#include "text/json.h"

namespace strata::test {
namespace {

namespace fs = std::filesystem;

Finished setup(const TempFolder& home, std::vector<std::string> words) {
    words.insert(words.begin(), {program("polystrata"), "setup", "--data-dir", home.path()});
    return run(words);
}

void expect_refused(const Finished& done, int code, const std::string& says) {
    EXPECT_EQ(done.code, code) << done.err;
    EXPECT_EQ(done.out, "");
    EXPECT_NE(done.err.find(says), std::string::npos) << done.err;
    EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
}

TEST(Setup, WithNothingNamedAndNothingInstalledTheProjectsModelAnswers) {
    const TempFolder home;
    const Finished done = setup(home, {"--prompt", "What is the capital of France?"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out.find("Paris"), std::string::npos) << done.out;
    EXPECT_TRUE(fs::exists(home.path() / "strata-nano.json"));
    const Finished again = setup(home, {"--prompt", "What is the capital of Japan?"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.out.find("Tokyo"), std::string::npos) << again.out;
}

TEST(Setup, TinyAnswersAndSaysThatItsWordsAreNoise) {
    const TempFolder home;
    const Finished done = setup(home, {"--family", "tiny", "--prompt", "Hello"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_FALSE(done.out.empty());
    EXPECT_NE(done.err.find("noise"), std::string::npos) << done.err;
    EXPECT_TRUE(fs::exists(home.path() / "strata-tiny.json"));
}

TEST(Setup, PreparedModelHasANameAndItsContext) {
    const TempFolder home;
    const Finished done =
        setup(home, {"--model", data("qwen35moe/tiny.gguf"), "--context", "512", "--no-start", "--cpu", "--yes"});
    EXPECT_EQ(done.code, 0) << done.err;
    const Finished listed = run({program("polystrata"), "models", "--json", "--data-dir", home.path()});
    const auto models = parse_json(listed.out);
    ASSERT_TRUE(models.ok()) << listed.out;
    ASSERT_EQ((*models)["models"].size(), 1u);
    EXPECT_EQ((*models)["models"][0]["id"], "tiny");
    EXPECT_EQ((*models)["models"][0]["context"], 512);
    EXPECT_EQ((*models)["models"][0]["status"], "available");
    const Finished answer = run({program("polystrata"), "chat", "--model", "tin", "--data-dir", home.path(), "--prompt",
                                 "x", "--think", "off", "--max-new", "2"});
    EXPECT_EQ(answer.code, 0) << answer.err;
}

TEST(Setup, FindsTheFamilysFileInAFolder) {
    const TempFolder home, models;
    fs::copy_file(data("qwen35moe/tiny.gguf"), models.path() / "Qwen3.6-35B-A3B-Q4_K_M.gguf");
    fs::copy_file(data("qwen35moe/tiny.gguf"), models.path() / "Qwen3.6-35B-A3B-UD-Q3_K_M.gguf");
    models.file("readme.txt", "x");
    const std::vector<std::string> words = {"--family", "qwen36", "--gguf-dir", models.path(), "--no-start"};
    expect_refused(setup(home, words), 2, "holds several");
    std::vector<std::string> sized = words;
    sized.insert(sized.end(), {"--model", "q4_k_m"});
    EXPECT_EQ(setup(home, sized).code, 0);
    EXPECT_TRUE(fs::exists(home.path() / "strata-qwen3.6-35b-a3b-q4_k_m.json"));
    expect_refused(setup(home, {"--family", "clover", "--gguf-dir", models.path()}), 3, "holds no model");
}

TEST(Setup, UsesTheDraftModelThatLiesBesideTheModel) {
    const TempFolder home, models;
    fs::copy_file(data("gemma4/tiny.gguf"), models.path() / "gemma.gguf");
    fs::copy_file(data("gemma4/tiny-assistant.gguf"), models.path() / "assistant.gguf");
    const Finished done =
        setup(home, {"--family", "gemma4", "--gguf-dir", models.path(), "--no-start", "--cpu", "--context", "512"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.err.find("assistant.gguf guesses for it"), std::string::npos) << done.err;
    const Finished listed = run({program("polystrata"), "models", "--json", "--data-dir", home.path()});
    const auto list = parse_json(listed.out);
    ASSERT_TRUE(list.ok()) << listed.out;
    ASSERT_EQ((*list)["models"].size(), 1u);
    EXPECT_EQ((*list)["models"][0]["mtp"], true);
    const auto config = parse_json(read_file(home.path() / "strata-gemma.json"));
    ASSERT_TRUE(config.ok());
    const auto arguments = (*config)["args"].get<std::vector<std::string>>();
    const auto flag = std::ranges::find(arguments, "--draft-model");
    ASSERT_NE(flag, arguments.end());
    EXPECT_EQ(flag[1], models.path() / "assistant.gguf");
}

TEST(Setup, WhatDoesNotExistIsRefusedInOneLine) {
    const TempFolder home;
    expect_refused(setup(home, {"--family", "nosuch"}), 2, "known are nano, tiny, qwen36");
    expect_refused(setup(home, {"--family", "qwen36"}), 3, "setup downloads nothing");
    expect_refused(setup(home, {"--vision", "yes"}), 2, "reads no pictures");
    expect_refused(setup(home, {"--gguf-dir", "/nowhere"}), 3, "/nowhere is not a folder");
    expect_refused(setup(home, {"--model", "/nowhere/x.gguf"}), 3, "there is no such file");
    expect_refused(setup(home, {"--context", "5"}), 2, "--context");
    expect_refused(setup(home, {"--family", "tiny", "--model", "Q4_K_M"}), 2, "one size only");
}

TEST(Setup, CheckChangesNothing) {
    const TempFolder home;
    const Finished done = setup(home, {"--check"});
    EXPECT_EQ(done.code, 0) << done.err;
    for (const char* family : {"nano", "tiny", "qwen36", "clover"})
        EXPECT_NE(done.out.find(family), std::string::npos) << done.out;
    EXPECT_TRUE(fs::is_empty(home.path()));
}

}  // namespace
}  // namespace strata::test
