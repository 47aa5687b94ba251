// polystrata chat, with an engine that follows a script and with the tiny model.
#include <algorithm>
#include <gtest/gtest.h>

#include "gguf/file.h"
#include "gguf/writer.h"
#include "support/mock_model.h"
#include "support/process.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace strata::test {
namespace {

const std::string kTiny = data("qwen35moe/tiny.gguf");

const Tokenizer& tokenizer() {
    static const Tokenizer loaded = [] {
        const auto file = gguf::File::open(kTiny);
        return Tokenizer::load(file.value()).value();
    }();
    return loaded;
}

/// "T 1\nT 2\n" for a text.
std::string tokens(std::string_view text) {
    std::string lines;
    for (const int32_t id : tokenizer().encode(text)) lines += "T " + std::to_string(id) + "\n";
    return lines;
}

std::string done(const std::string& finish) {
    return "DONE 4 30 100.0 50.0 " + finish + " 0 0 0 0 0 seed=7\n";
}
std::string answer(std::string_view text) {
    return "on GEN\nREUSED 0\n" + tokens(text) + done("stop");
}
const std::string kReady = "READY 4096 stop\n";

/// The prompts that the engine was given, as text.
std::vector<std::string> prompts(const MockModel& mock) {
    std::vector<std::string> texts;
    std::istringstream log(mock.log());
    for (std::string line; std::getline(log, line);) {
        if (!line.starts_with("GEN ")) continue;
        std::vector<int32_t> ids;
        std::istringstream list(line.substr(line.rfind(' ') + 1));
        for (std::string id; std::getline(list, id, ',');) ids.push_back(std::stoi(id));
        texts.push_back(tokenizer().decode(ids, true));
    }
    return texts;
}

Finished once(const MockModel& mock, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--prompt", "Hello", "--think", "off"});
    return run(mock.words("chat", more));
}

TEST(ChatOnce, PrintsTheAnswerAlone) {
    const MockModel mock(kReady + answer("Hi there"));
    const Finished result = once(mock);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out, "Hi there\n");
    EXPECT_EQ(result.err, "");
}

TEST(ChatOnce, ReasoningStaysOffStandardOutput) {
    const MockModel mock(kReady + answer("because</think>\n\nHello"));
    const Finished result = run(mock.words("chat", {"--prompt", "Hello", "--think", "on"}));
    EXPECT_EQ(result.out, "Hello\n");
    const MockModel again(kReady + answer("because</think>\n\nHello"));
    const auto json = parse_json(run(again.words("chat", {"--prompt", "Hello", "--think", "on", "--json"})).out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ((*json)["content"], "Hello");
    EXPECT_EQ((*json)["reasoning"], "because");
    EXPECT_EQ((*json)["finish"], "stop");
    EXPECT_DOUBLE_EQ((*json)["write_tps"].get<double>(), 80.0);
}

TEST(ChatOnce, SystemMessageComesFirst) {
    const MockModel mock(kReady + answer("x"));
    once(mock, {"--system", "Be brief"});
    ASSERT_EQ(prompts(mock).size(), 1u);
    const std::string prompt = prompts(mock)[0];
    EXPECT_LT(prompt.find("Be brief"), prompt.find("Hello")) << prompt;
}

TEST(ChatOnce, SamplingComesFromFlagsOverTheRunConfig) {
    const MockModel mock(kReady + answer("x"), {{"temperature", 0.5}, {"top_k", 7}});
    once(mock, {"--top-k", "9", "--seed", "3", "--max-new", "5"});
    const std::string log = mock.log();
    EXPECT_NE(log.find("temperature=0.5 "), std::string::npos) << log;
    EXPECT_NE(log.find("top_k=9 "), std::string::npos) << log;
    EXPECT_NE(log.find("seed=3 "), std::string::npos) << log;
    EXPECT_TRUE(log.starts_with("GEN 5 ")) << log;
}

TEST(ChatOnce, TokensThatTheFileSuppressesAreNeverSampled) {
    TempFolder folder;
    const auto tiny = gguf::File::open(kTiny);
    ASSERT_TRUE(tiny.ok());
    gguf::Contents contents;
    for (const gguf::Key& key : tiny->keys()) contents.keys.copy(key);
    const std::vector<int32_t> suppressed = {7, 271};
    contents.keys.set_array<int32_t>("tokenizer.ggml.suppress_tokens", suppressed);
    auto layout = gguf::lay_out(contents, folder.path() / "suppressing.gguf");
    ASSERT_TRUE(layout.ok()) << layout.error().message;
    auto file = gguf::Output::create(std::move(*layout), {});
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_TRUE(file->finish().ok());
    const MockModel mock(kReady + answer("x"), Json::object(), folder.path() / "suppressing.gguf");
    const Finished done = once(mock);
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(mock.log().find(" bias=7:-1e+09,271:-1e+09 "), std::string::npos) << mock.log();
}

TEST(ChatOnce, EngineErrorsAreOneLineAndACode) {
    const struct {
        std::string script;
        int code;
        const char* says;
    } cases[] = {
        {"@stderr x.gguf: is damaged\n@exit 3\n", 3, "x.gguf: is damaged"},
        {"@stderr no card\n@exit 4\n", 4, "no card"},
        {kReady + "on GEN\nERR the device is lost\n", 1, "the device is lost"},
        {kReady + "on GEN\n" + tokens("ab") + "@exit 1\n", 1, "ended"},
        {"READY 40 stop\n", 1, "the context holds 40"},
    };
    for (const auto& c : cases) {
        const MockModel mock(c.script);
        const Finished result = once(mock, {"--system", "some words to make it longer"});
        EXPECT_EQ(result.code, c.code) << c.says;
        EXPECT_NE(result.err.find(c.says), std::string::npos) << result.err;
        EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    }
}

TEST(ChatOnce, MissingAndForeignFilesAreCode3) {
    for (const std::string& file : {std::string("/nowhere/x.gguf"), data("gguf/v01_empty.gguf")}) {
        const Finished result = run({program("polystrata"), "chat", "--model", file, "--prompt", "x"});
        EXPECT_EQ(result.code, 3) << file;
        EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    }
}

TEST(ChatOnce, CtrlCStopsAndIsCode130) {
    const MockModel mock(kReady + "on GEN\nREUSED 0\n" + tokens("endless") + "@wait STOP\n" + done("cancel"));
    Terminal terminal(mock.words("chat", {"--prompt", "Hello", "--think", "off"}));
    ASSERT_TRUE(terminal.wait_for("endless")) << terminal.seen();
    terminal.type("\x03");
    EXPECT_EQ(terminal.finish(), 130);
    EXPECT_NE(mock.log().find("STOP"), std::string::npos);
}

TEST(ChatOnce, AnswersFollowASchemaOrAGrammar) {
    TempFolder folder;
    const auto chat = [&](const char* flag, const std::string& file) {
        return run({program("polystrata"), "chat", "--model", kTiny, "--prompt", "Hello", "--think", "off", "--max-new",
                    "400", flag, file});
    };
    const Finished schema = chat("--json-schema", folder.file("schema.json", R"({"type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 20000}}, "required": ["n"],
        "additionalProperties": false})"));
    ASSERT_EQ(schema.code, 0) << schema.err;
    const auto json = parse_json(schema.out);
    ASSERT_TRUE(json.ok() && json->is_object()) << schema.out;
    EXPECT_GE((*json)["n"].get<int>(), 3);
    EXPECT_LE((*json)["n"].get<int>(), 20000);
    const Finished grammar = chat("--grammar", folder.file("choice.gbnf", "root ::= \"left\" | \"right\""));
    EXPECT_TRUE(grammar.out == "left\n" || grammar.out == "right\n") << grammar.out << grammar.err;

    const Finished refused = chat("--json-schema", folder.file("bad.json", R"({"properties": {"a": {"not": {}}}})"));
    EXPECT_EQ(refused.code, 3);
    EXPECT_NE(refused.err.find("$.properties.a: 'not' is not supported"), std::string::npos) << refused.err;
    EXPECT_EQ(chat("--grammar", folder.file("bad.gbnf", "root ::= x")).code, 3);
}

TEST(ChatOnce, TinyModelAnswersAsTheEngineAlone) {
    TempFolder folder;
    const std::string messages = folder.file("messages.json", R"([{"role": "user", "content": "Hello"}])");
    const Finished ids =
        run({program("polystrata"), "render", "--model", kTiny, "--messages", messages, "--think", "off", "--ids"});
    ASSERT_EQ(ids.code, 0) << ids.err;
    const Finished engine = run({program("strata-poly"), "--model", kTiny, "--tokens-file", folder.file("ids", ids.out),
                                 "--max-new", "12", "--json", "--quiet"});
    ASSERT_EQ(engine.code, 0) << engine.err;
    std::vector<int32_t> told;
    std::istringstream lines(engine.out);
    for (std::string line; std::getline(lines, line);) {
        const auto event = parse_json(line);
        if (event.ok() && (*event)["event"] == "token") told.push_back((*event)["token"].get<int32_t>());
    }
    ASSERT_EQ(told.size(), 12u) << engine.out;
    const Finished chat = run({program("polystrata"), "chat", "--model", kTiny, "--prompt", "Hello", "--think", "off",
                               "--max-new", "12", "--temp", "0", "--json"});
    ASSERT_EQ(chat.code, 0) << chat.err;
    const auto json = parse_json(chat.out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ((*json)["new_tokens"], 12);
    Detokenizer text(tokenizer(), true);
    std::string expected;
    for (const int32_t id : told) expected += text.push(id);
    expected += text.finish();
    EXPECT_EQ((*json)["content"], expected.substr(expected.find_first_not_of(" \n\t\r")));
}

TEST(ChatTerminal, CtrlCStopsTheAnswerAndNotTheChat) {
    const MockModel mock(kReady + "on GEN\nREUSED 0\n" + tokens("endless") + "@wait STOP\n" + done("cancel") +
                         answer("second"));
    Terminal terminal(mock.words("chat", {"--think", "off"}));
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    terminal.type("first\r");
    ASSERT_TRUE(terminal.wait_for("endless")) << terminal.seen();
    terminal.type("\x03");
    ASSERT_TRUE(terminal.wait_for("stopped")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    terminal.type("next\r");
    ASSERT_TRUE(terminal.wait_for("second")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("tokens/s")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    terminal.type("\x04");
    EXPECT_EQ(terminal.finish(), 0);
    ASSERT_EQ(prompts(mock).size(), 2u);
    EXPECT_NE(prompts(mock)[1].find("endless"), std::string::npos) << prompts(mock)[1];
}

TEST(ChatTerminal, TwoCtrlCEndItEvenWhenTheEngineHangs) {
    const MockModel mock(kReady + "on GEN\nREUSED 0\n" + tokens("endless") + "@wait NEVER\n");
    Terminal terminal(mock.words("chat", {"--think", "off"}));
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    terminal.type("first\r");
    ASSERT_TRUE(terminal.wait_for("endless")) << terminal.seen();
    EXPECT_EQ(terminal.finish_by("\x03"), 130);
}

TEST(ChatTerminal, TwoCtrlCAtThePromptEndIt) {
    const MockModel mock(kReady);
    Terminal terminal(mock.words("chat"));
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    EXPECT_EQ(terminal.finish_by("\x03"), 130);
    EXPECT_EQ(mock.log(), "");
}

TEST(ChatTerminal, TerminalComesBackAsItWas) {
    const MockModel mock(kReady);
    Terminal terminal({"/bin/sh", "-c", "before=$(stty -g); \"$@\"; test \"$before\" = \"$(stty -g)\" && echo same",
                       "sh", program("polystrata"), "chat", "--model", "mock", "--data-dir", mock.file("")});
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    terminal.type("\x04");
    EXPECT_TRUE(terminal.wait_for("same")) << terminal.seen();
    EXPECT_NE(terminal.seen().find("\x1b[?2004l"), std::string::npos);
}

TEST(ChatTerminal, ReasoningIsDimAndCanBeHidden) {
    const MockModel mock(kReady + answer("because</think>\n\nHello") + answer("secret</think>\n\nAgain"));
    Terminal terminal(mock.words("chat", {"--think", "on"}));
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.type("hi\r");
    ASSERT_TRUE(terminal.wait_for("\x1b[2mbecause\x1b[0m")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("Hello")) << terminal.seen();
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    terminal.type("/think hide\r");
    ASSERT_TRUE(terminal.wait_for("> ")) << terminal.seen();
    terminal.type("hi\r");
    ASSERT_TRUE(terminal.wait_for("Again")) << terminal.seen();
    terminal.type("\x04");
    EXPECT_EQ(terminal.finish(), 0);
    EXPECT_EQ(terminal.seen().find("secret"), std::string::npos) << terminal.seen();
}

TEST(ChatTerminal, PastedLinesAreOneMessage) {
    const MockModel mock(kReady + answer("ok"));
    Terminal terminal(mock.words("chat", {"--think", "off"}));
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.type("\x1b[200~one\rtwo\x1b[201~\r");
    ASSERT_TRUE(terminal.wait_for("ok")) << terminal.seen();
    terminal.type("\x04");
    EXPECT_EQ(terminal.finish(), 0);
    ASSERT_EQ(prompts(mock).size(), 1u);
    EXPECT_NE(prompts(mock)[0].find("one\ntwo"), std::string::npos) << prompts(mock)[0];
}

TEST(ChatTerminal, AModelCannotSteerTheTerminal) {
    const MockModel mock(kReady + answer("a\x1b]0;title\x07"
                                         "b"));
    Terminal terminal(mock.words("chat", {"--think", "off"}));
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.type("hi\r");
    EXPECT_TRUE(terminal.wait_for("a]0;titleb")) << terminal.seen();
    terminal.type("\x04");
    EXPECT_EQ(terminal.finish(), 0);
}

TEST(ChatPiped, HasAnswersAloneAndKeepsTheConversation) {
    const MockModel mock(kReady + answer("one") + answer("two") + answer("three"));
    const Finished result = run(mock.words("chat", {"--think", "off"}), "first\nsecond \\\nline\n/new\nthird\n");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, "one\ntwo\na new conversation starts\nthree\n");
    const std::vector<std::string> asked = prompts(mock);
    ASSERT_EQ(asked.size(), 3u);
    EXPECT_NE(asked[1].find("first"), std::string::npos);
    EXPECT_NE(asked[1].find("one"), std::string::npos);
    EXPECT_NE(asked[1].find("second \nline"), std::string::npos) << asked[1];
    EXPECT_EQ(asked[2].find("first"), std::string::npos) << asked[2];
}

TEST(ChatPiped, CommandsDoWhatHelpSays) {
    const MockModel mock(kReady + answer("one") + answer("other"));
    const std::string saved = mock.file("saved.json");
    const Finished result =
        run(mock.words("chat", {"--think", "off"}), "/help\n/model\n/model list\n/system Be kind\nhi\n/retry\n/save " +
                                                        saved + "\n/model unload\n/quit\nnot read\n");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    for (const char* text : {"/retry", "mock (qwen35moe tiny), not loaded", "one\nother\n", "saved to", "unloaded"})
        EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
    const auto messages = parse_json(read_file(saved));
    ASSERT_TRUE(messages.ok());
    ASSERT_EQ(messages->size(), 3u);
    EXPECT_EQ((*messages)[0]["content"], "Be kind");
    EXPECT_EQ((*messages)[2]["content"], "other");
    ASSERT_EQ(prompts(mock).size(), 2u);
    EXPECT_EQ(prompts(mock)[0], prompts(mock)[1]);
}

TEST(ChatPiped, WrongCommandsAreAnsweredAndTheChatGoesOn) {
    const MockModel mock(kReady + answer("one"));
    const Finished result = run(mock.words("chat", {"--think", "off"}),
                                "/nosuch\n/model switch nosuch\n/think loudly\n/retry\n/save\nhi\n");
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out, "one\n");
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 5) << result.err;
}

TEST(ChatPiped, FailedAnswerLeavesTheChatUsable) {
    const MockModel mock(kReady + "on GEN\nERR something broke\n" + answer("fine"));
    const Finished result = run(mock.words("chat", {"--think", "off"}), "first\nsecond\n");
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out, "fine\n");
    EXPECT_NE(result.err.find("something broke"), std::string::npos);
    EXPECT_EQ(prompts(mock)[1].find("first"), std::string::npos);
}

TEST(ChatPiped, SwitchingGoesOnWithAnotherModel) {
    const MockModel mock(kReady + answer("one"));
    mock.write(
        "strata-real.json",
        json_text({{"exe", program("strata-poly")}, {"args", {"--model", kTiny, "--quiet"}}, {"model_name", "real"}}));
    const Finished result =
        run(mock.words("chat", {"--think", "off", "--max-new", "2"}), "hi\n/model switch rea\nhi\n");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(result.out.starts_with("one\nreal answers from now on")) << result.out;
    EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace strata::test
