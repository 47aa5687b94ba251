#include "text/chat_answer.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

namespace strata {
namespace {

Json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    auto json = parse_json(text.str());
    EXPECT_TRUE(json.ok()) << path;
    return json.ok() ? *json : Json();
}

const std::filesystem::path kData = POLYSTRATA_TEST_DATA;

struct Case {
    std::string name;
    std::string dialect;
    std::string prompt_tail;
    std::string start;
    std::string output;
    AnswerEnd end = AnswerEnd::stop;
    Json tools;
    Json expected;
};

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    auto add = [&](const Json& one, const std::string& name, const Json& tools, const Json& expected) {
        cases.push_back({name, one["dialect"], one["prompt_tail"], one["start"], one["output"],
                         one["ended"] == "length" ? AnswerEnd::length : AnswerEnd::stop, tools, expected});
    };
    Json file = read_json(kData / "chat/parse_cases.json");
    for (const Json& one : file["cases"]) {
        add(one, one["name"], one["tools"] == true ? file["tools"] : Json::array(), one["expected"]);
    }
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(kData / "cases")) {
        if (entry.path().filename().string().starts_with("p")) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
        Json one = read_json(path);
        add(one["input"], one["id"], one["input"]["tools"], one["expect"]);
    }
    return cases;
}

struct Read {
    Answer answer;
    FinishReason finish = FinishReason::stop;
};

AnswerOptions options_of(const Case& one) {
    AnswerOptions options;
    options.start = answer_start(*find_dialect(one.dialect), one.prompt_tail);
    options.tools = ToolSet(one.tools);
    return options;
}

/// Reads pieces as a stream; checks what must hold of every stream.
Read read_pieces(const Dialect& dialect, AnswerOptions options, const std::vector<std::string_view>& pieces,
                 AnswerEnd end) {
    AnswerParser parser(dialect, std::move(options));
    std::vector<AnswerEvent> events;
    for (std::string_view piece : pieces) parser.push(piece, events);
    Read read;
    read.finish = parser.finish(end, events);
    int open = -1;
    for (const AnswerEvent& event : events) {
        switch (event.type) {
            case AnswerEvent::Type::call_begin:
                EXPECT_EQ(open, -1) << "calls do not overlap";
                open = event.call;
                EXPECT_EQ(open, static_cast<int>(read.answer.calls.size()));
                break;
            case AnswerEvent::Type::call_arguments: EXPECT_EQ(event.call, open); break;
            case AnswerEvent::Type::call_end:
                EXPECT_EQ(event.call, open);
                open = -1;
                break;
            default: EXPECT_FALSE(event.text.empty());
        }
        read.answer.add({event});
    }
    if (open != -1) {
        EXPECT_EQ(end, AnswerEnd::length) << "only a reply cut off leaves a call open";
    }
    read.answer.drop_incomplete();
    return read;
}

Read read_whole(const Case& one) {
    return read_pieces(*find_dialect(one.dialect), options_of(one), {one.output}, one.end);
}

Json as_json(const Read& read) {
    Json calls = Json::array();
    for (const Answer::Call& call : read.answer.calls) {
        auto arguments = parse_json(call.arguments);
        EXPECT_TRUE(arguments.ok()) << call.arguments;
        calls.push_back({{"name", call.name}, {"arguments", arguments.ok() ? *arguments : Json()}});
    }
    return {{"reasoning", read.answer.reasoning},
            {"content", read.answer.content},
            {"tool_calls", calls},
            {"finish", to_string(read.finish)}};
}

void expect_same(const Read& a, const Read& b) {
    EXPECT_EQ(a.answer.reasoning, b.answer.reasoning);
    EXPECT_EQ(a.answer.content, b.answer.content);
    EXPECT_EQ(a.finish, b.finish);
    ASSERT_EQ(a.answer.calls.size(), b.answer.calls.size());
    for (size_t i = 0; i < a.answer.calls.size(); ++i) {
        EXPECT_EQ(a.answer.calls[i].name, b.answer.calls[i].name);
        EXPECT_EQ(a.answer.calls[i].arguments, b.answer.calls[i].arguments);
    }
}

TEST(ChatAnswer, ReadsEveryCase) {
    auto cases = all_cases();
    ASSERT_GE(cases.size(), 99u);
    for (const Case& one : cases) {
        SCOPED_TRACE(one.name);
        // Text comparison: key order and the kinds of numbers count.
        EXPECT_EQ(json_text(as_json(read_whole(one))), json_text(one.expected));
    }
}

TEST(ChatAnswer, PromptsEndDecidesTheStart) {
    for (const Case& one : all_cases()) {
        SCOPED_TRACE(one.name);
        AnswerStart start = answer_start(*find_dialect(one.dialect), one.prompt_tail);
        EXPECT_EQ(start, one.start == "reason"    ? AnswerStart::reasoning
                         : one.start == "content" ? AnswerStart::content
                                                  : AnswerStart::undecided);
    }
}

TEST(ChatAnswer, ResultDoesNotDependOnOneCut) {
    for (const Case& one : all_cases()) {
        SCOPED_TRACE(one.name);
        Read whole = read_whole(one);
        std::string_view text = one.output;
        for (size_t cut = 0; cut <= text.size(); ++cut) {
            SCOPED_TRACE(cut);
            expect_same(read_pieces(*find_dialect(one.dialect), options_of(one),
                                    {text.substr(0, cut), text.substr(cut)}, one.end),
                        whole);
        }
    }
}

TEST(ChatAnswer, AnEndMarkInsideOfATextIsReadTheSameAtAnyCut) {
    Case one;
    one.dialect = "gemma";
    one.tools = *parse_json(R"([{"function": {"name": "f", "parameters": {}}}])");
    one.output = "a<|tool_call>call:f{s:<|\"|><tool_call|>\n<|\"|>}<b";
    for (AnswerEnd end : {AnswerEnd::stop, AnswerEnd::length}) {
        one.end = end;
        Read whole = read_whole(one);
        std::string_view text = one.output;
        for (size_t cut = 0; cut <= text.size(); ++cut) {
            SCOPED_TRACE(cut);
            expect_same(read_pieces(gemma_dialect(), options_of(one), {text.substr(0, cut), text.substr(cut)}, one.end),
                        whole);
        }
    }
}

TEST(ChatAnswer, LongNamesAreReadTheSameAtAnyCut) {
    Json tools = *parse_json(R"([{"function": {"name": "f", "parameters": {}}}])");
    for (const char* dialect : {"qwen", "glm", "json", "dsml", "lfm", "gemma"}) {
        for (size_t name : {1, 255, 256, 257, 300}) {
            for (size_t blanks : {0, 300}) {
                Case one;
                one.dialect = dialect;
                one.tools = tools;
                const std::string call = find_dialect(dialect)->forced_call(std::string(name, 'f'));
                const size_t end = call.rfind('f') + 1;
                one.output = "a" + call.substr(0, end) + std::string(blanks, ' ') + call.substr(end) +
                             "<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>";
                SCOPED_TRACE(std::string(dialect) + " " + std::to_string(name) + " " + std::to_string(blanks));
                Read whole = read_whole(one);
                std::string_view text = one.output;
                std::vector<std::string_view> pieces;
                for (size_t i = 0; i < text.size(); ++i) pieces.push_back(text.substr(i, 1));
                expect_same(read_pieces(*find_dialect(dialect), options_of(one), pieces, one.end), whole);
            }
        }
    }
}

TEST(ChatAnswer, ResultDoesNotDependOnPieces) {
    unsigned seed = std::random_device()();
    if (const char* given = std::getenv("POLYSTRATA_TEST_SEED")) seed = static_cast<unsigned>(std::atoi(given));
    SCOPED_TRACE("POLYSTRATA_TEST_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    for (const Case& one : all_cases()) {
        SCOPED_TRACE(one.name);
        Read whole = read_whole(one);
        std::string_view text = one.output;
        for (int round = 0; round < 8; ++round) {
            size_t longest = round == 0 ? 1 : 1 + random() % 20;  // by character first
            std::vector<std::string_view> pieces;
            for (size_t at = 0; at < text.size();) {
                size_t size = 1 + random() % longest;
                pieces.push_back(text.substr(at, size));
                at += pieces.back().size();
            }
            expect_same(read_pieces(*find_dialect(one.dialect), options_of(one), pieces, one.end), whole);
        }
    }
}

/// The words of a text: runs of letters, digits and underscores.
std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words(1);
    for (char c : text) {
        bool part = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
        if (part) {
            words.back() += c;
        } else if (!words.back().empty()) {
            words.emplace_back();
        }
    }
    return words;
}

/// Every word of the output comes out again, as reasoning, content, a call's name or argument; markup aside.
void expect_no_lost_word(const Case& one, const Read& read) {
    std::string all = read.answer.reasoning + "\n" + read.answer.content;
    for (const Answer::Call& call : read.answer.calls) {
        auto arguments = parse_json(call.arguments);
        all += "\n" + call.name + "\n" + call.arguments + "\n" + (arguments.ok() ? json_text(*arguments) : "");
    }
    static const char* kMarkup[] = {
        "think",     "tool_call", "function", "parameter", "arg_key",         "arg_value",     "name", "string",
        "arguments", "call",      "thought",  "channel",   "tool_call_start", "tool_call_end", "true", "false",
        "null",      "True",      "False",    "None"};
    for (const std::string& word : words_of(one.output)) {
        if (word.size() < 2 || word.find("DSML") != word.npos || word.find_first_of("0123456789") != word.npos)
            continue;
        // Half of a tag's or escape's word at the end may be read as one.
        bool markup = std::any_of(std::begin(kMarkup), std::end(kMarkup),
                                  [&](std::string_view mark) { return mark.starts_with(word); });
        if (markup || word.find("tool_call") != word.npos || word.find("function_call") != word.npos) continue;
        std::string plain = word.front() == 'n' || word.front() == 'u' ? word.substr(1) : word;  // behind a backslash
        EXPECT_NE(all.find(plain), all.npos) << "'" << word << "' is lost from " << one.output;
    }
}

TEST(ChatAnswer, TruncatedRepliesLoseNoText) {
    for (Case one : all_cases()) {
        if (one.name.find("invented") != one.name.npos) continue;  // dropped on purpose
        SCOPED_TRACE(one.name);
        std::string output = one.output;
        for (size_t end = 0; end <= output.size(); ++end) {
            if (end < output.size() && (output[end] & 0xC0) == 0x80) continue;  // within a character
            SCOPED_TRACE(end);
            one.output = output.substr(0, end);
            one.end = AnswerEnd::stop;
            Read read = read_whole(one);
            as_json(read);  // arguments are whole JSON
            expect_no_lost_word(one, read);
            one.end = AnswerEnd::length;
            EXPECT_EQ(read_whole(one).finish, FinishReason::length);
        }
    }
}

// With a word of another call in every place, malformed output must still come out whole.
TEST(ChatAnswer, DamagedRepliesLoseNoText) {
    for (Case one : all_cases()) {
        if (one.name.find("invented") != one.name.npos) continue;
        SCOPED_TRACE(one.name);
        std::string output = one.output;
        one.end = AnswerEnd::stop;
        for (size_t at = 0; at <= output.size(); ++at) {
            if (at < output.size() && (output[at] & 0xC0) == 0x80) continue;
            if (at > 0 && output[at - 1] == '\\') continue;
            // Attributes of an element's tag are markup.
            size_t open = output.rfind('<', at), close = output.rfind('>', at);
            if (one.dialect == "dsml" && open != output.npos && (close == output.npos || close < open || close == at))
                continue;
            one.output = output.substr(0, at) + " zq " + output.substr(at);
            SCOPED_TRACE(one.output);
            Read read = read_whole(one);
            as_json(read);
            std::string all = read.answer.reasoning + read.answer.content;
            for (const Answer::Call& call : read.answer.calls) all += call.name + call.arguments;
            EXPECT_NE(all.find("zq"), all.npos);
            std::vector<std::string_view> bytes;
            for (size_t i = 0; i < one.output.size(); ++i) bytes.push_back(std::string_view(one.output).substr(i, 1));
            expect_same(read_pieces(*find_dialect(one.dialect), options_of(one), bytes, one.end), read);
        }
    }
}

Case plain_case(const char* dialect, const char* tail, std::string output) {
    static const Json file = read_json(kData / "chat/parse_cases.json");
    Case one;
    one.dialect = dialect;
    one.prompt_tail = tail;
    one.output = std::move(output);
    one.tools = file["tools"];
    return one;
}

std::vector<AnswerEvent> events_by_character(const Case& one, AnswerEnd end = AnswerEnd::stop) {
    AnswerParser parser(*find_dialect(one.dialect), options_of(one));
    std::vector<AnswerEvent> events;
    for (char c : one.output) parser.push(std::string_view(&c, 1), events);
    parser.finish(end, events);
    return events;
}

constexpr const char* kOff = "<think>\n\n</think>\n\n";

TEST(ChatAnswer, LongTextArgumentsStreamWhileTheyAreWritten) {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "line \"" + std::to_string(i) + "\"\n";
    const std::pair<const char*, std::string> replies[] = {
        {"qwen", "<tool_call>\n<function=write_file>\n<parameter=text>\n" + text},
        {"glm", "<tool_call>write_file<arg_key>text</arg_key><arg_value>" + text},
        {"dsml",
         "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"write_file\">\n<｜DSML｜parameter name=\"text\" "
         "string=\"true\">" +
             text},
    };
    for (const auto& [dialect, output] : replies) {
        SCOPED_TRACE(dialect);
        AnswerParser parser(*find_dialect(dialect), options_of(plain_case(dialect, kOff, "")));
        std::vector<AnswerEvent> events;
        parser.push(output, events);
        Answer answer;
        answer.add(events);
        ASSERT_EQ(answer.calls.size(), 1u);
        EXPECT_EQ(answer.calls[0].name, "write_file");
        EXPECT_GT(answer.calls[0].arguments.size(), text.size());
        EXPECT_FALSE(answer.calls[0].complete);
        EXPECT_EQ(parser.phase(), AnswerParser::Phase::call);
        EXPECT_EQ(parser.finish(AnswerEnd::length, events), FinishReason::length);
        EXPECT_NE(events.back().type, AnswerEvent::Type::call_end) << "a call that is cut off must not be executed";
    }
}

TEST(ChatAnswer, OnlyOneCallWhereCallsAreNotParallel) {
    for (const char* output :
         {"<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</"
          "tool_call>",
          "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>x"}) {
        Case one = plain_case("qwen", kOff, output);
        AnswerOptions options = options_of(one);
        options.parallel_calls = false;
        AnswerParser parser(qwen_dialect(), options);
        std::vector<AnswerEvent> events;
        parser.push(output, events);
        EXPECT_TRUE(parser.wants_stop());
        EXPECT_EQ(parser.finish(AnswerEnd::stop, events), FinishReason::tool_calls);
        Answer answer;
        answer.add(events);
        EXPECT_EQ(answer.calls.size(), 1u);
        EXPECT_EQ(answer.content, "");
    }
}

TEST(ChatAnswer, InventedResultAsksToStop) {
    Case one = plain_case("qwen", kOff, "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_response>\n12");
    AnswerParser parser(qwen_dialect(), options_of(one));
    std::vector<AnswerEvent> events;
    parser.push(one.output, events);
    EXPECT_TRUE(parser.wants_stop());
    EXPECT_EQ(parser.finish(AnswerEnd::stop, events), FinishReason::tool_calls);
}

TEST(ChatAnswer, UnsplitReasoningStaysInTheContentWithItsTags) {
    Case one = plain_case("qwen", "<|im_start|>assistant\n<think>\n", "Let me see.\n</think>\n\nYes.");
    AnswerOptions options = options_of(one);
    options.split_reasoning = false;
    Read read = read_pieces(qwen_dialect(), options, {one.output}, AnswerEnd::stop);
    EXPECT_EQ(read.answer.reasoning, "");
    EXPECT_EQ(read.answer.content, "<think>Let me see.\n</think>\n\nYes.");
    options.start = AnswerStart::undecided;
    read = read_pieces(qwen_dialect(), options, {"<think>\n" + one.output}, AnswerEnd::stop);
    EXPECT_EQ(read.answer.content, "<think>\nLet me see.\n</think>\n\nYes.");
}

TEST(ChatAnswer, ReasoningThatNobodyAskedForIsLeftOut) {
    Case one = plain_case("lfm", "<|im_start|>assistant\n", "<think>hm</think>Hi");
    AnswerOptions options = options_of(one);
    options.drop_reasoning = true;
    Read read = read_pieces(lfm_dialect(), options, {one.output}, AnswerEnd::stop);
    EXPECT_EQ(read.answer.reasoning, "");
    EXPECT_EQ(read.answer.content, "Hi");
}

TEST(ChatAnswer, BareCallsCountOnlyOutsideOfProse) {
    std::string call = "<function=now>\n</function>";
    auto calls = [](const std::string& output) {
        return read_whole(plain_case("qwen", kOff, output)).answer.calls.size();
    };
    EXPECT_EQ(calls(call), 1u);
    EXPECT_EQ(calls("Now:\n" + call + "\n" + call), 2u);
    EXPECT_EQ(calls("Write `" + call + "`."), 0u);
    EXPECT_EQ(calls("Write " + call), 0u);
    EXPECT_EQ(calls("```\n" + call + "\n```\n"), 0u);
    EXPECT_EQ(calls("```\nx\n```\n" + call), 1u);
    EXPECT_EQ(calls("<function=nope>\n</function>"), 0u);
    Case open = plain_case("qwen", kOff, "<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n");
    Read read = read_whole(open);
    EXPECT_EQ(read.answer.calls.size(), 0u) << "not complete";
    EXPECT_EQ(read.answer.content, open.output);
}

TEST(ChatAnswer, ValueMayHoldAWholeCall) {
    std::string inner = "<tool_call>\n<function=now>\n<parameter=a>\n1\n</parameter>\n</function>\nand so on";
    Case one = plain_case(
        "qwen", kOff,
        "<tool_call>\n<function=write_file>\n<parameter=text>\n" + inner + "\n</parameter>\n</function>\n</tool_call>");
    Json read = as_json(read_whole(one));
    ASSERT_EQ(read["tool_calls"].size(), 1u);
    EXPECT_EQ(read["tool_calls"][0]["arguments"]["text"], inner);
}

TEST(ChatAnswer, TwoFunctionsInOneBlockAreTwoCalls) {
    Case one =
        plain_case("qwen", kOff, "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>");
    EXPECT_EQ(read_whole(one).answer.calls.size(), 2u);
}

TEST(ChatAnswer, TextAfterAFunctionWithoutTheBlocksEndIsContent) {
    Case one = plain_case(
        "qwen", kOff, "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\nDone.");
    Read read = read_whole(one);
    ASSERT_EQ(read.answer.calls.size(), 1u);
    EXPECT_EQ(read.answer.calls[0].arguments, R"({"city":"Bern"})");
    EXPECT_EQ(read.answer.content, "Done.");
}

TEST(ChatAnswer, ForcedOpeningIsHandedOutWhenTheReasoningIsOver) {
    Case one = plain_case("qwen", "<think>\n", "");
    AnswerOptions options = options_of(one);
    options.forced = qwen_dialect().forced_call("now");
    AnswerParser parser(qwen_dialect(), options);
    std::vector<AnswerEvent> events;
    parser.push("I must call.", events);
    EXPECT_EQ(parser.take_forced(), "");
    parser.push("\n</think>\n\n", events);
    std::string forced = parser.take_forced();
    EXPECT_EQ(forced, "<tool_call>\n<function=now>\n");
    EXPECT_EQ(parser.take_forced(), "");
    parser.push(forced, events);
    parser.push("</function>\n</tool_call>", events);
    EXPECT_EQ(parser.finish(AnswerEnd::stop, events), FinishReason::tool_calls);
}

TEST(ChatAnswer, CharactersCutInTwoArePutTogether) {
    Case one = plain_case(
        "json", kOff, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich 😀\"}}</tool_call>");
    Answer answer;
    answer.add(events_by_character(one));
    ASSERT_EQ(answer.calls.size(), 1u);
    EXPECT_EQ(answer.calls[0].arguments, "{\"city\":\"Zürich 😀\"}");
}

TEST(ChatAnswer, BytesThatAreNoTextBecomeReplacementCharacters) {
    Case one = plain_case("qwen", kOff, "a\xff\xc3");
    EXPECT_EQ(read_whole(one).answer.content, "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(ChatAnswer, HostileRepliesTakeLinearTime) {
    for (const char* dialect : {"qwen", "glm", "json", "dsml", "lfm", "gemma"}) {
        for (std::string_view opener : find_dialect(dialect)->call_openers()) {
            for (const char* inside : {"", "{", "call:a{", "[a(", "<function=now>", "now<arg_key>", "{\"a\":\""}) {
                std::string output;
                while (output.size() < 400'000) output.append(opener).append(inside);
                for (const char* tail : {kOff, "<think>\n"}) {
                    Case one = plain_case(dialect, tail, output);
                    Read read = read_whole(one);
                    EXPECT_LE(read.answer.content.size() + read.answer.reasoning.size(), output.size());
                }
            }
        }
    }
}

}  // namespace
}  // namespace strata
