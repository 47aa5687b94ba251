#include <algorithm>
#include <gtest/gtest.h>

#include "support/process.h"

namespace strata::test {
namespace {

const std::string kModel = data("qwen35moe/tiny.gguf");

Finished render(std::vector<std::string> words, std::string_view input = {}) {
    words.insert(words.begin(), {program("polystrata"), "render", "--model", kModel});
    return run(words, input);
}

TEST(Render, ShowsThePromptOfAChat) {
    TempFolder folder;
    const std::string messages = folder.file("m.json", R"([{"role": "user", "content": "Hi"}])");
    const Finished done = render({"--messages", messages, "--think", "off"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(done.out, "<|im_start|>user\nHi<|im_end|><|im_start|>assistant\n<think>\n</think>\n\n");
    EXPECT_EQ(render({"--messages", "-", "--think", "off"}, read_file(messages)).out, done.out);
}

TEST(Render, IdsAreThoseOfTheText) {
    const std::string_view messages = R"({"messages": [{"role": "user", "content": "Hi"}]})";
    const Finished ids = render({"--messages", "-", "--ids"}, messages);
    const Finished text = run({program("polystrata"), "tokenize", "--model", kModel, "--decode", ids.out});
    EXPECT_EQ(text.out, render({"--messages", "-"}, messages).out + "\n");
}

TEST(Render, ToolsMustBeAList) {
    TempFolder folder;
    const std::string tools = folder.file("t.json", R"([{"type": "function", "function": {"name": 5}}])");
    const Finished done = render({"--messages", "-", "--tools", tools}, R"([{"role": "user", "content": "Hi"}])");
    EXPECT_EQ(done.code, 3);
    EXPECT_NE(done.err.find("tools[0]"), std::string::npos) << done.err;
}

TEST(Render, WrongInputIsOneLineAndCode3) {
    for (const char* messages : {"", "{", "5", R"({"message": []})", R"([{"role": "nobody", "content": "x"}])"}) {
        const Finished done = render({"--messages", "-"}, messages);
        EXPECT_EQ(done.code, 3) << messages;
        EXPECT_EQ(done.out, "") << messages;
        EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
    }
}

}  // namespace
}  // namespace strata::test
