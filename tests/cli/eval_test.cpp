// polystrata eval, with an engine that follows a script, and its checks.
#include <gtest/gtest.h>

#include "cli/eval_check.h"
#include "gguf/file.h"
#include "support/mock_model.h"
#include "support/process.h"
#include "text/tokenizer.h"

namespace strata::test {
namespace {

std::string answer(std::string_view text) {
    static const Tokenizer tokenizer = [] {
        const auto file = gguf::File::open(data("qwen35moe/tiny.gguf"));
        return Tokenizer::load(file.value()).value();
    }();
    std::string lines = "on GEN\nREUSED 0\n";
    for (const int32_t id : tokenizer.encode(text)) lines += "T " + std::to_string(id) + "\n";
    return lines + "DONE 4 30 100.0 50.0 stop 3 4 0 0 0 seed=7\n";
}

Json check(std::string_view text) {
    auto json = parse_json(text);
    EXPECT_TRUE(json.ok()) << text;
    EXPECT_TRUE(cli::test_check(*json).ok()) << text;
    return *json;
}
bool passes(std::string_view rule, const std::string& content) {
    Answer answer;
    answer.content = content;
    return cli::passes(check(rule), answer);
}

const std::string kPrompts =
    R"({"skill":"sums","id":"a","messages":[{"role":"user","content":"1 + 1"}],"think":"off","check":{"kind":"ends","value":"2"}}
{"skill":"words","id":"b","messages":[{"role":"user","content":"x"}],"think":"off","check":{"kind":"exact","value":"yes"}}

{"skill":"sums","id":"c","messages":[{"role":"user","content":"1 + 2"}],"think":"off","check":{"kind":"ends","value":"3"}}
)";

TEST(Eval, CountsRightAnswersBySkill) {
    const MockModel mock("READY 4096 stop\n" + answer("It is 2.") + answer("no") + answer("13"));
    mock.write("prompts", kPrompts);
    const Finished result = run(mock.words("eval", {"--prompts", mock.file("prompts"), "--json"}));
    ASSERT_EQ(result.code, 0) << result.err;
    const auto json = parse_json(result.out);
    ASSERT_TRUE(json.ok()) << result.out;
    EXPECT_EQ((*json)["skills"]["sums"]["right"], 1);
    EXPECT_EQ((*json)["skills"]["sums"]["count"], 2);
    EXPECT_EQ((*json)["skills"]["words"]["right"], 0);
    EXPECT_EQ((*json)["all"]["count"], 3);
    EXPECT_EQ((*json)["guesses_right"], 9);
    ASSERT_EQ((*json)["wrong"].size(), 2u);
    EXPECT_EQ((*json)["wrong"][0]["id"], "b");
    EXPECT_EQ((*json)["wrong"][1]["content"], "13");
}

TEST(Eval, FailsWhereASkillHasTooFewRight) {
    const MockModel mock("READY 4096 stop\n" + answer("2") + answer("no"));
    mock.write("prompts", kPrompts);
    const Finished result =
        run(mock.words("eval", {"--prompts", mock.file("prompts"), "--limit", "1", "--at-least", "50"}));
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find("words: 0 of 1"), std::string::npos) << result.err;
    EXPECT_NE(result.out.find("sums"), std::string::npos) << result.out;
}

TEST(Eval, NamesTheLineThatItCannotRead) {
    const MockModel mock("READY 4096 stop\n");
    mock.write("prompts", kPrompts + R"({"messages":[],"check":{"kind":"exact","value":3}})");
    const Finished result = run(mock.words("eval", {"--prompts", mock.file("prompts")}));
    EXPECT_EQ(result.code, 3);
    EXPECT_NE(result.err.find("line 5"), std::string::npos) << result.err;
}

TEST(EvalCheck, EndsIsNotAPartOfALongerNumberOrWord) {
    const char* rule = R"({"kind":"ends","value":"12"})";
    EXPECT_TRUE(passes(rule, "12"));
    EXPECT_TRUE(passes(rule, "3 + 9 = 12."));
    EXPECT_FALSE(passes(rule, "112"));
    EXPECT_FALSE(passes(rule, "-12"));
    EXPECT_FALSE(passes(rule, "0.12"));
    EXPECT_FALSE(passes(rule, "12 or so"));
}

TEST(EvalCheck, ContainsWantsWholeWordsInAnyCase) {
    const char* rule = R"({"kind":"contains","value":["he","Paris"]})";
    EXPECT_TRUE(passes(rule, "He lives in PARIS."));
    EXPECT_FALSE(passes(rule, "The town is Paris."));
    EXPECT_FALSE(passes(rule, "he"));
}

TEST(EvalCheck, JsonIsComparedByValue) {
    const char* rule = R"({"kind":"json","value":{"a":1,"b":[true,null]}})";
    EXPECT_TRUE(passes(rule, "{\"b\": [true, null],\n \"a\": 1}"));
    EXPECT_TRUE(passes(rule, "```json\n{\"a\":1,\"b\":[true,null]}\n```"));
    EXPECT_FALSE(passes(rule, "{\"a\":2,\"b\":[true,null]}"));
    EXPECT_FALSE(passes(rule, "Here: {\"a\":1,\"b\":[true,null]}"));
}

TEST(EvalCheck, CallsMustHaveNameAndArguments) {
    const Json rule = check(R"({"kind":"calls","value":[["timer",{"minutes":5,"label":"tea"}]]})");
    Answer answer;
    answer.calls.push_back({"timer", R"({"label":"tea","minutes":5})", true});
    EXPECT_TRUE(cli::passes(rule, answer));
    answer.calls[0].arguments = R"({"label":"tea","minutes":6})";
    EXPECT_FALSE(cli::passes(rule, answer));
    answer.calls[0] = {"timer", R"({"label":"tea","minutes":5})", false};
    EXPECT_FALSE(cli::passes(rule, answer));
    EXPECT_FALSE(cli::passes(check(R"({"kind":"contains","value":[],"no_call":true})"), answer));
}

TEST(EvalCheck, RefusesWhatItDoesNotKnow) {
    for (const char* rule :
         {R"({"kind":"maybe","value":"x"})", R"({"kind":"exact"})", R"({"kind":"calls","value":[["x"]]})", "[]"})
        EXPECT_FALSE(cli::test_check(*parse_json(rule)).ok()) << rule;
}

}  // namespace
}  // namespace strata::test
