#include "text/chat.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace strata {
namespace {

const std::filesystem::path kData = POLYSTRATA_TEST_DATA;

std::string read_text(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_TRUE(file.good()) << path;
    return text.str();
}

Json json(std::string_view text) {
    auto value = parse_json(text);
    EXPECT_TRUE(value.ok()) << text;
    return value.ok() ? *value : Json();
}

ChatFormat format_of(std::string source, ChatSettings settings = {}) {
    ChatModel model;
    model.name = "test.gguf";
    model.chat_template = std::move(source);
    model.bos_token = "<bos>";
    auto format = ChatFormat::make(std::move(model), std::move(settings));
    EXPECT_TRUE(format.ok()) << format.error().message;
    return std::move(*format);
}

ChatFormat own(const std::string& name, ChatSettings settings = {}) {
    return format_of(read_text(kData / "chat/templates" / (name + ".jinja")), std::move(settings));
}

Result<ChatPrompt> render(const ChatFormat& format, const Json& body) {
    STRATA_TRY_ASSIGN(ChatRequest request, ChatRequest::from_body(body));
    return format.render(request);
}

std::string text_of(const ChatFormat& format, std::string_view body) {
    auto prompt = render(format, json(body));
    return prompt.ok() ? prompt->text : "error " + prompt.error().code + ": " + prompt.error().message;
}

// The cases that users met elsewhere, in properties of the prompt. Their templates are the makers' own, which are not
// ours to copy: templates of our own with the same traits stand for them. POLYSTRATA_CHAT_TEMPLATES names a folder with
// the makers'.
std::string template_for(const std::string& name) {
    if (const char* folder = std::getenv("POLYSTRATA_CHAT_TEMPLATES"))
        return read_text(std::filesystem::path(folder) / name);
    if (name.starts_with("Qwen")) return read_text(kData / "chat/templates/chatml-xml.jinja");
    EXPECT_TRUE(name.starts_with("GLM"));
    return read_text(kData / "chat/templates/pairs.jinja");
}

void check_property(const std::string& property, const Json& wanted, const Result<ChatPrompt>& prompt,
                    const std::map<std::string, Result<ChatPrompt>>& all) {
    const std::string text = prompt.ok() ? prompt->text : "";
    auto has = [&](const Json& part) { return text.find(part.get<std::string>()) != text.npos; };
    if (property == "status") {
        EXPECT_EQ(prompt.ok() ? 200 : 400, wanted.get<int>()) << (prompt.ok() ? text : prompt.error().message);
    } else if (property == "contains") {
        EXPECT_TRUE(has(wanted)) << wanted << " in " << text;
    } else if (property == "not_contains") {
        EXPECT_FALSE(has(wanted)) << wanted << " in " << text;
    } else if (property == "count") {
        int found = 0;
        const std::string part = wanted[0];
        for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
        EXPECT_EQ(found, wanted[1].get<int>()) << wanted << " in " << text;
    } else if (property == "in_order") {
        size_t at = 0;
        for (const Json& part : wanted) {
            at = text.find(part.get<std::string>(), at);
            ASSERT_NE(at, text.npos) << part << " in " << text;
        }
    } else if (property == "ends_with") {
        EXPECT_TRUE(text.ends_with(wanted.get<std::string>())) << text;
    } else if (property == "same_prompt_as") {
        EXPECT_EQ(text, all.at(wanted)->text);
    } else if (property == "starts_with_prompt_of") {
        EXPECT_TRUE(text.starts_with(all.at(wanted)->text)) << text;
    } else if (property == "error_code") {
        EXPECT_EQ(prompt.error().code, wanted);
    } else if (property == "error_contains") {
        EXPECT_NE(prompt.error().message.find(wanted.get<std::string>()), std::string::npos);
    } else {
        FAIL() << "unknown property " << property;
    }
}

TEST(Chat, PromptsHaveThePropertiesOfEveryCase) {
    int cases = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kData / "cases")) {
        if (!entry.path().filename().string().starts_with("r")) continue;
        ++cases;
        Json one = json(read_text(entry.path()));
        SCOPED_TRACE(one["id"].get<std::string>());
        ChatFormat format =
            format_of(one["input"].contains("template_text") ? one["input"]["template_text"].get<std::string>()
                                                             : template_for(one["input"]["template"]));
        std::map<std::string, Result<ChatPrompt>> prompts;
        for (const auto& [name, body] : one["input"]["requests"].items()) prompts.emplace(name, render(format, body));
        for (const auto& [name, properties] : one["expect"].items()) {
            SCOPED_TRACE(name);
            for (const Json& property : properties) {
                for (const auto& [key, wanted] : property.items()) {
                    if (key == "followed_by") {
                        std::string before = prompts.at(property["starts_with_prompt_of"])->text;
                        EXPECT_TRUE(
                            prompts.at(name)->text.substr(before.size()).starts_with(wanted.get<std::string>()));
                    } else {
                        check_property(key, wanted, prompts.at(name), prompts);
                    }
                }
            }
        }
    }
    EXPECT_EQ(cases, 9);
}

TEST(Chat, TableOfDialects) {
    auto name_of = [](DialectClues clues) { return std::string(pick_dialect(clues).name()); };
    EXPECT_EQ(name_of({.chat_template = "<|tool_call>call:"}), "gemma");
    EXPECT_EQ(name_of({.chat_template = "<｜DSML｜invoke <tool_call>"}), "dsml");
    EXPECT_EQ(name_of({.chat_template = "<|tool_call_start|>"}), "lfm");
    EXPECT_EQ(name_of({.chat_template = "x", .has_tool_call_token = true}), "lfm");
    EXPECT_EQ(name_of({.chat_template = "<tool_call><arg_key>"}), "glm");
    EXPECT_EQ(name_of({.chat_template = "<tool_call><function="}), "qwen");
    EXPECT_EQ(name_of({.chat_template = "<tool_call>"}), "json");
    EXPECT_EQ(name_of({.chat_template = "x", .tokenizer_kind = "gemma4"}), "none");
    EXPECT_EQ(name_of({.tokenizer_kind = "gemma4"}), "gemma");
    EXPECT_EQ(pick_dialect({.chat_template = "x"}).reasoning_opener(), "");
    EXPECT_EQ(pick_dialect({.chat_template = "x", .has_think_token = true}).reasoning_opener(), "<think>");
    for (const char* name : {"chatml-xml", "pairs", "turns", "dsml", "python-calls", "json-calls"}) {
        EXPECT_NE(own(name).dialect().name(), "none") << name;
    }
}

TEST(Chat, ProbesWhatTheTemplateUnderstands) {
    EXPECT_TRUE(own("chatml-xml").handles_parts());
    EXPECT_FALSE(own("json-calls").handles_parts());
    EXPECT_FALSE(own("chatml-xml").handles_late_system());
    EXPECT_TRUE(own("python-calls").handles_late_system());
}

TEST(Chat, FilesWithoutTemplateSpeakChatMlOrNothing) {
    ChatModel model;
    model.name = "bare.gguf";
    auto refused = ChatFormat::make(model);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, "no_template");
    model.has_token = [](std::string_view token) { return token == "<|im_start|>"; };
    auto format = ChatFormat::make(model);
    ASSERT_TRUE(format.ok());
    EXPECT_EQ(text_of(*format, R"({"messages": [{"role": "user", "content": "Hi"}]})"),
              "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Chat, TemplateThatDoesNotParseIsSaidSo) {
    ChatModel model;
    model.name = "bad.gguf";
    model.chat_template = "a\n{% if %}";
    auto format = ChatFormat::make(model);
    ASSERT_FALSE(format.ok());
    EXPECT_EQ(format.error().code, "template_broken");
    EXPECT_NE(format.error().message.find("line 2"), std::string::npos);
}

TEST(Chat, StartFollowsThePromptsEnd) {
    auto start = [](const ChatFormat& format, std::string_view body) {
        return render(format, json(body))->answer.start;
    };
    constexpr std::string_view kOn = R"({"messages": [{"role": "user", "content": "Hi"}]})";
    constexpr std::string_view kOff =
        R"({"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"enable_thinking": false}})";
    EXPECT_EQ(start(own("chatml-xml"), kOn), AnswerStart::reasoning);
    EXPECT_EQ(start(own("chatml-xml"), kOff), AnswerStart::content);
    EXPECT_EQ(start(own("json-calls"), kOn), AnswerStart::undecided);
    EXPECT_EQ(start(own("json-calls"), kOff), AnswerStart::content);
    EXPECT_EQ(start(own("turns"), kOn), AnswerStart::undecided);
    EXPECT_EQ(start(own("turns"), kOff), AnswerStart::content);
    EXPECT_EQ(start(own("dsml"), kOn), AnswerStart::reasoning);
    EXPECT_EQ(start(own("dsml"), kOff), AnswerStart::content);
}

TEST(Chat, ThinkingOffClosesTheBlockWhereTheTemplateHasNoSwitch) {
    constexpr std::string_view kOff =
        R"({"messages": [{"role": "user", "content": "Hi"}], "thinking": {"type": "disabled"}})";
    EXPECT_TRUE(text_of(own("pairs"), kOff).ends_with("<|assistant|><think></think>"));
    EXPECT_TRUE(text_of(own("python-calls"), kOff).ends_with("<|im_start|>assistant\n<think></think>"));
    EXPECT_TRUE(text_of(own("chatml-xml"), kOff).ends_with("<think>\n\n</think>\n\n"));
    auto prompt = render(own("pairs"), json(kOff));
    EXPECT_EQ(prompt->answer.start, AnswerStart::content);
    EXPECT_TRUE(prompt->answer.drop_reasoning);
    ChatFormat no_switch =
        format_of("<tool_call><function=x>{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}");
    EXPECT_TRUE(text_of(no_switch, kOff).ends_with("<think>\n\n</think>\n\n"));
}

TEST(Chat, StrongestSwitchWins) {
    auto thinking = [](std::string_view fields, ChatSettings settings = {}) {
        auto prompt =
            render(own("chatml-xml", settings),
                   json("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]" + std::string(fields) + "}"));
        return prompt->thinking;
    };
    ChatSettings off;
    off.thinking = false;
    EXPECT_TRUE(thinking(""));
    EXPECT_FALSE(thinking("", off));
    EXPECT_TRUE(thinking(R"(, "reasoning_effort": "low")", off));
    EXPECT_FALSE(thinking(R"(, "reasoning_effort": "none")"));
    EXPECT_TRUE(thinking(R"(, "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true})"));
    EXPECT_FALSE(thinking(R"(, "reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false})"));
    EXPECT_FALSE(thinking(R"(, "reasoning": {"enabled": false})"));
    EXPECT_FALSE(thinking(R"(, "thinking": false)"));
}

TEST(Chat, EffortsTheTemplateWouldMistakeAreMapped) {
    ChatFormat pairs = own("pairs");
    EXPECT_EQ(pairs.effort_for("minimal"), "low");
    EXPECT_EQ(pairs.effort_for("low"), "low");
    EXPECT_EQ(pairs.effort_for("medium"), "high");
    EXPECT_EQ(pairs.effort_for("high"), "high");
    EXPECT_EQ(pairs.effort_for("xhigh"), "max");
    EXPECT_EQ(pairs.effort_for("max"), "max");
    EXPECT_EQ(own("chatml-xml").effort_for("high"), "") << "the template knows no efforts";
    EXPECT_EQ(own("json-calls").effort_for("xhigh"), "xhigh");
}

TEST(Chat, SystemMessagesJoinAndLateOnesBecomeUserMessages) {
    constexpr std::string_view kBody =
        R"({"messages": [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"},
        {"role": "user", "content": "C"}, {"role": "system", "content": "D"}, {"role": "user", "content": "E"}]})";
    EXPECT_EQ(text_of(own("chatml-xml"), kBody),
              "<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n<|im_start|>user\nD<|im_end|>\n"
              "<|im_start|>user\nE<|im_end|>\n<|im_start|>assistant\n<think>\n");
    EXPECT_NE(text_of(own("python-calls"), kBody).find("<|im_start|>system\nD<|im_end|>"), std::string::npos);
}

constexpr std::string_view kToolTurn = R"({"messages": [{"role": "user", "content": "Look."},
    {"role": "assistant", "content": null, "reasoning": "Both.", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Bern\", \"days\": 2}"}},
        {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "b", "content": "noon"},
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "sun"}, {"type": "text", "text": "wind"}]}],
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}},
              {"type": "function", "function": {"name": "now"}}, {"type": "web_search"}]})";

TEST(Chat, ResultsComeInTheOrderOfTheirCalls) {
    std::string text = text_of(own("chatml-xml"), kToolTurn);
    EXPECT_NE(
        text.find(
            "<think>\nBoth.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n"
            "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
            "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nsun\nwind\n</tool_response>\n"
            "<tool_response>\nnoon\n</tool_response><|im_end|>\n"),
        std::string::npos)
        << text;
    EXPECT_EQ(text.find("web_search"), std::string::npos);
}

TEST(Chat, EveryFamilyShowsACallAndItsResults) {
    EXPECT_NE(
        text_of(own("pairs"), kToolTurn)
            .find("<|assistant|><think>Both.</think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Bern</"
                  "arg_value>"
                  "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call><tool_call>now</tool_call><|observation|>"
                  "<tool_response>sun\nwind</tool_response><tool_response>noon</tool_response><|assistant|><think>"),
        std::string::npos);
    EXPECT_NE(text_of(own("dsml"), kToolTurn)
                  .find("<think>Both.</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
                        "<｜DSML｜parameter name=\"city\" string=\"true\">Bern</｜DSML｜parameter>\n"
                        "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n"),
              std::string::npos);
    EXPECT_NE(
        text_of(own("python-calls"), kToolTurn)
            .find("<think>Both.</think><|tool_call_start|>[get_weather(city='Bern', days=2), now()]<|tool_call_end|>"),
        std::string::npos);
    EXPECT_NE(text_of(own("json-calls"), kToolTurn)
                  .find("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
                        "2}}\n</tool_call>"),
              std::string::npos);
    std::string turns = text_of(own("turns"), kToolTurn);
    EXPECT_TRUE(
        turns.ends_with("<|tool_call>call:get_weather{city:<|\"|>Bern<|\"|>,days:2}<tool_call|><|tool_call>call:now{}"
                        "<tool_call|><|tool_response>response:get_weather{value:<|\"|>sun\nwind<|\"|>}<tool_response|>"
                        "<|tool_response>response:now{value:<|\"|>noon<|\"|>}<tool_response|>"))
        << turns;
}

TEST(Chat, AnswerAfterResultsJoinsTheTurnInOlderGemmaTemplates) {
    Json body = json(kToolTurn);
    body["messages"].push_back({{"role", "assistant"}, {"content", "Done."}});
    body["messages"].push_back({{"role", "user"}, {"content", "Thanks."}});
    std::string text = render(own("turns"), body)->text;
    EXPECT_NE(text.find("<tool_response|>Done.<turn|>\n<|turn>user\nThanks.<turn|>\n<|turn>model\n"), text.npos)
        << text;
}

TEST(Chat, GenerationPromptIsCompletedWhereTheTemplateForgetsIt) {
    ChatFormat format =
        format_of("<|tool_call>call:{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n{% endfor %}");
    auto prompt = render(format, json(R"({"messages": [{"role": "user", "content": "Hi"}]})"));
    EXPECT_TRUE(prompt->text.ends_with("<turn|>\n<|turn>model\n"));
    EXPECT_EQ(prompt->generation_prompt, "<|turn>model\n");
}

TEST(Chat, ArgumentsThatAreNoObjectAreRefusedByName) {
    for (const char* arguments : {"\"[1]\"", "[1]", "\"3\"", "true", "\"\\\"text\\\"\""}) {
        auto prompt = render(
            own("chatml-xml"),
            json("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"tool_calls\": "
                 "[{\"id\": \"c\", \"function\": {\"name\": \"f\", \"arguments\": " +
                 std::string(arguments) + "}}]}, {\"role\": \"tool\", \"content\": \"r\"}]}"));
        ASSERT_FALSE(prompt.ok()) << arguments;
        EXPECT_EQ(prompt.error().code, "invalid_request");
        EXPECT_NE(prompt.error().message.find("messages[1].tool_calls[0].function.arguments"), std::string::npos);
    }
}

TEST(Chat, LastAnswerIsContinued) {
    auto text = [](const char* name, const char* message, const char* more = "") {
        return text_of(own(name), "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, " + std::string(message) +
                                      "]" + more + "}");
    };
    constexpr const char* kPlain = R"({"role": "assistant", "content": "Once upon"})";
    EXPECT_TRUE(text("chatml-xml", kPlain).ends_with("<think>\n\n</think>\n\nOnce upon"));
    EXPECT_TRUE(text("chatml-xml", kPlain, R"(, "thinking": false)").ends_with("<think>\n\n</think>\n\nOnce upon"));
    EXPECT_TRUE(text("json-calls", kPlain).ends_with("<|im_start|>assistant\nOnce upon"));
    EXPECT_TRUE(text("pairs", kPlain).ends_with("<think></think>Once upon"));
    EXPECT_TRUE(text("turns", kPlain).ends_with("<|turn>model\nOnce upon"));
    EXPECT_TRUE(text("chatml-xml", kPlain, R"(, "add_generation_prompt": true)")
                    .ends_with("Once upon<|im_end|>\n<|im_start|>assistant\n<think>\n"));

    constexpr const char* kBoth = R"({"role": "assistant", "reasoning_content": "Hm.", "content": "So"})";
    EXPECT_TRUE(text("chatml-xml", kBoth).ends_with("<think>\nHm.\n</think>\n\nSo"));
    EXPECT_TRUE(text("json-calls", kBoth).ends_with("<|im_start|>assistant\n<think>\nHm.\n</think>\n\nSo"));
    EXPECT_TRUE(text("turns", kBoth).ends_with("<|channel>thought\nHm.\n<channel|>So"));

    constexpr const char* kThought = R"({"role": "assistant", "reasoning_content": "Hm.", "content": ""})";
    EXPECT_TRUE(text("chatml-xml", kThought).ends_with("<think>\nHm."));

    // A prefill that closes its block itself goes on as content.
    auto prompt = render(own("chatml-xml"), json(R"({"messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nSo"}]})"));
    EXPECT_TRUE(prompt->text.ends_with("<|im_start|>assistant\n<think>\n\nHm.\n</think>\n\nSo")) << prompt->text;
    EXPECT_EQ(prompt->answer.start, AnswerStart::content);
    EXPECT_TRUE(prompt->answer.continues);
}

TEST(Chat, RefusesWhatCannotBeContinued) {
    for (
        const char* body :
        {R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]})",
         R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]})",
         R"({"messages": [{"role": "user", "content": "x"}], "continue_final_message": true})",
         R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "a"}], "continue_final_message": true, "add_generation_prompt": true})"}) {
        auto prompt = render(own("chatml-xml"), json(body));
        ASSERT_FALSE(prompt.ok()) << body;
        EXPECT_EQ(prompt.error().code, "invalid_request");
    }
}

TEST(Chat, BadRequestsNameTheField) {
    const std::pair<const char*, const char*> bodies[] = {
        {R"({})", "messages"},
        {R"({"messages": []})", "messages"},
        {R"({"messages": [{"role": "robot", "content": "x"}]})", "messages[0].role"},
        {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
        {R"({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})", "messages[0].content[0]"},
        {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {}}]})",
         "tools[0]"},
        {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "a b"}]})", "tools[0]"},
        {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "a"}, {"name": "a"}]})", "tools[1]"},
        {R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"})", "tool_choice"},
        {R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": {"function": {"name": "f"}}})",
         "tool_choice"},
        {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "a"}], "tool_choice": "maybe"})",
         "tool_choice"},
        {R"({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"enable_thinking": "yes"}})",
         "enable_thinking"},
    };
    for (const auto& [body, field] : bodies) {
        auto prompt = render(own("chatml-xml"), json(body));
        ASSERT_FALSE(prompt.ok()) << body;
        EXPECT_EQ(prompt.error().code, "invalid_request") << body;
        EXPECT_NE(prompt.error().message.find(field), std::string::npos) << prompt.error().message;
    }
}

TEST(Chat, ToolChoiceDecidesWhatTheModelSees) {
    auto body = [](const char* choice) {
        return json(
            R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "alpha"}, {"name": "beta"}], "tool_choice": )" +
            std::string(choice) + "}");
    };
    ChatFormat format = own("chatml-xml");
    auto none = render(format, body("\"none\""));
    EXPECT_EQ(none->text.find("alpha"), std::string::npos);
    EXPECT_TRUE(none->answer.tools.empty());
    auto some = render(
        format,
        body(
            R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "beta"}}]}})"));
    EXPECT_EQ(some->text.find("alpha"), std::string::npos);
    EXPECT_NE(some->text.find("beta"), std::string::npos);
    auto any = render(format, body("\"required\""));
    EXPECT_EQ(any->answer.forced, "<tool_call>\n<function=");
    EXPECT_EQ(any->call_names, (std::vector<std::string>{"alpha", "beta"}));
    auto one = render(format, body(R"({"type": "function", "function": {"name": "beta"}})"));
    EXPECT_EQ(one->answer.forced, "<tool_call>\n<function=beta>\n");
    EXPECT_TRUE(one->call_names.empty());
}

TEST(Chat, ForcedCallBeginsInThePromptWhereThereIsNoReasoning) {
    ChatFormat format = own("chatml-xml");
    auto prompt = render(format, json(R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "now"}],
        "tool_choice": "required", "reasoning_effort": "none"})"));
    EXPECT_TRUE(prompt->text.ends_with("<think>\n\n</think>\n\n<tool_call>\n<function=now>\n"));
    AnswerParser parser = format.parser(*prompt);
    std::vector<AnswerEvent> events;
    parser.push("</function>\n</tool_call>", events);
    EXPECT_EQ(parser.finish(AnswerEnd::stop, events), FinishReason::tool_calls);
    Answer answer;
    answer.add(events);
    ASSERT_EQ(answer.calls.size(), 1u);
    EXPECT_EQ(answer.calls[0].name, "now");
    EXPECT_EQ(answer.content, "");
}

TEST(Chat, PicturesStandWhereTheTemplatePutsThem) {
    ChatFormat format = own("chatml-xml");
    auto prompt =
        render(format, json(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a <|image_pad|> b"},
        {"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "c"}]}]})"));
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    EXPECT_EQ(prompt->pictures, 1);
    EXPECT_EQ(prompt->picture_mark, "<|image_pad|>");
    EXPECT_NE(prompt->text.find("a <\u200B|image_pad|> b<|vision_start|><|image_pad|><|vision_end|>c"),
              std::string::npos);
    auto refused =
        render(own("json-calls"), json(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, "pictures_unsupported");
}

TEST(Chat, SchemaReachesOnlyTemplatesThatShowIt) {
    constexpr std::string_view kBody = R"({"messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}}})";
    EXPECT_NE(text_of(own("dsml"), kBody).find(R"(Answer as {"type": "object"})"), std::string::npos);
}

TEST(Chat, OldFormsOfFunctionsAreUnderstood) {
    std::string text = text_of(own("chatml-xml"), R"({"messages": [{"role": "user", "content": "x"},
        {"role": "assistant", "content": null, "function_call": {"name": "now", "arguments": "{}"}},
        {"role": "function", "name": "now", "content": "noon"}], "functions": [{"name": "now"}], "function_call": "auto"})");
    EXPECT_NE(text.find("<function=now>\n</function>\n</tool_call>"), text.npos) << text;
    EXPECT_NE(text.find("<tool_response>\nnoon\n</tool_response>"), text.npos);
}

TEST(Chat, WhatAModelWritesReadsBackAsItWas) {
    // The call in a history, as the template shows it, is what the parser makes a call of.
    Json body = json(kToolTurn);
    for (const char* name : {"chatml-xml", "pairs", "dsml", "python-calls", "json-calls", "turns"}) {
        SCOPED_TRACE(name);
        ChatFormat format = own(name);
        Json first = body;
        first["messages"] = Json::array({body["messages"][0]});
        auto start = render(format, first);
        Json with_call = body;
        with_call["messages"].erase(3);
        with_call["messages"].erase(2);
        with_call["add_generation_prompt"] = false;
        auto whole = render(format, with_call);
        ASSERT_TRUE(start.ok() && whole.ok());
        AnswerParser parser = format.parser(*start);
        std::vector<AnswerEvent> events;
        size_t common = static_cast<size_t>(
            std::mismatch(start->text.begin(), start->text.end(), whole->text.begin(), whole->text.end()).first -
            start->text.begin());
        std::string reply = whole->text.substr(common);
        for (const char* mark : {"<|im_end|>\n", "<｜end▁of▁sentence｜>", "<turn|>\n"}) {
            if (reply.ends_with(mark)) reply.erase(reply.size() - std::string_view(mark).size());
        }
        if (size_t role = reply.find("<|turn>model\n"); role != reply.npos) reply.erase(0, role + 13);
        parser.push(reply, events);
        EXPECT_EQ(parser.finish(AnswerEnd::stop, events), FinishReason::tool_calls);
        Answer answer;
        answer.add(events);
        ASSERT_EQ(answer.calls.size(), 2u) << reply;
        EXPECT_EQ(answer.calls[0].name, "get_weather");
        EXPECT_EQ(answer.calls[0].arguments, R"({"city":"Bern","days":2})");
        EXPECT_EQ(answer.calls[1].arguments, "{}");
        EXPECT_EQ(answer.content, "");
    }
}

}  // namespace
}  // namespace strata
