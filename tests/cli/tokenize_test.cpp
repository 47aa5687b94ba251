#include <gtest/gtest.h>

#include "support/process.h"
#include "text/json.h"

namespace strata::test {
namespace {

const std::string kModel = data("qwen35moe/tiny.gguf");

Finished tokenize(std::vector<std::string> words, std::string_view input = {}) {
    words.insert(words.begin(), {program("polystrata"), "tokenize", "--model", kModel});
    return run(words, input);
}

TEST(Tokenize, TextComesBack) {
    const std::string text = "Hello <|im_end|> w\xC3\xB6rld\n 123";
    const Finished ids = tokenize({"--text", text});
    EXPECT_EQ(ids.code, 0) << ids.err;
    const Finished back = tokenize({"--decode", ids.out});
    EXPECT_EQ(back.code, 0) << back.err;
    EXPECT_EQ(back.out, text + "\n");
}

TEST(Tokenize, StandardInputIsTheSameAsText) {
    EXPECT_EQ(tokenize({}, "one two").out, tokenize({"--text", "one two"}).out);
    EXPECT_EQ(tokenize({"--text", ""}).out, "\n");
}

TEST(Tokenize, NoSpecialKeepsSpecialTokensAsText) {
    const auto special = parse_json(tokenize({"--text", "<|im_end|>", "--json"}).out);
    const auto plain = parse_json(tokenize({"--text", "<|im_end|>", "--json", "--no-special"}).out);
    ASSERT_TRUE(special.ok() && plain.ok());
    EXPECT_EQ((*special)["ids"].size(), 1u);
    EXPECT_EQ((*special)["pieces"][0]["text"], "<|im_end|>");
    EXPECT_GT((*plain)["ids"].size(), 1u);
}

TEST(Tokenize, BytesThatAreNotUtf8ComeBackWithKeepBytes) {
    const std::string bytes = "a\xFF\xC3(\xF0\x9F\x98";
    const Finished kept = tokenize({"--keep-bytes"}, bytes);
    EXPECT_EQ(tokenize({"--decode", kept.out}).out, bytes + "\n");
    EXPECT_EQ(tokenize({"--decode", tokenize({}, "a\xFF").out}).out, "a\xEF\xBF\xBD\n");
}

TEST(Tokenize, AnotherSplitRuleCanBeForced) {
    const Finished forced = tokenize({"--text", "a 12", "--tokenizer-pre", "llama-bpe"});
    EXPECT_EQ(forced.code, 0) << forced.err;
    EXPECT_NE(forced.err.find("llama-bpe"), std::string::npos) << "a warning says so";
    const Finished unknown = tokenize({"--text", "a", "--tokenizer-pre", "nobodys"});
    EXPECT_NE(unknown.code, 0);
    EXPECT_NE(unknown.err.find("nobodys"), std::string::npos) << unknown.err;
}

TEST(Tokenize, WrongIdsAreRefusedByName) {
    for (const char* ids : {"1,x", "280", "-1", "1,99999999999"}) {
        const Finished done = tokenize({"--decode", ids});
        EXPECT_EQ(done.code, 2) << ids;
        EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
    }
}

TEST(Tokenize, MissingFileIsCode3) {
    const Finished done = run({program("polystrata"), "tokenize", "--model", "/nowhere.gguf", "--text", "x"});
    EXPECT_EQ(done.code, 3);
    EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << done.err;
}

}  // namespace
}  // namespace strata::test
