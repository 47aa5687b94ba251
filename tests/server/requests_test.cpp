// Bodies of every dialect become requests, or are refused by name.
#include <gtest/gtest.h>
#include <iterator>
#include <random>

#include "server/anthropic.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/responses.h"

namespace strata::server {
namespace {

Json json(const char* text) {
    auto parsed = parse_json(text);
    EXPECT_TRUE(parsed) << text;
    return parsed ? std::move(*parsed) : Json();
}

AnswerRequest chat(const char* text) {
    auto request = read_chat_request(json(text));
    EXPECT_TRUE(request) << (request ? "" : request.error().message);
    return request ? std::move(*request) : AnswerRequest{};
}

ApiError refusal(const char* text) {
    auto request = read_chat_request(json(text));
    EXPECT_FALSE(request) << text;
    return request ? ApiError{} : request.error();
}

AnthropicRequest messages(const char* text, const ReasoningMemory& memory = {}) {
    auto request = read_messages_request(json(text), memory, {});
    EXPECT_TRUE(request) << (request ? "" : request.error().message);
    return request ? std::move(*request) : AnthropicRequest{};
}

ResponsesRequest responses(const char* text) {
    auto request = read_responses_request(json(text));
    EXPECT_TRUE(request) << (request ? "" : request.error().message);
    return request ? std::move(*request) : ResponsesRequest{};
}

TEST(ChatRequestBody, TakesSamplingLimitsAndStops) {
    const AnswerRequest r = chat(R"({"messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "top_p": 0.9,
        "top_k": 5, "min_p": 0.1, "seed": 7, "presence_penalty": 1, "frequency_penalty": -1, "repeat_penalty": 1.1,
        "logit_bias": {"5": -100, "6": 2}, "max_tokens": 10, "max_completion_tokens": 20, "stop": ["a", "", "b"],
        "n": 2, "stream": true, "stream_options": {"include_usage": true}, "unheard_of": {"x": 1}})");
    EXPECT_FLOAT_EQ(*r.sampling.temperature, 0.5f);
    EXPECT_EQ(r.sampling.top_k, 5);
    EXPECT_EQ(r.sampling.seed, 7u);
    ASSERT_EQ(r.sampling.bias.size(), 2u);
    EXPECT_LT(r.sampling.bias[0].second, -1000);  // -100 is a ban
    EXPECT_FLOAT_EQ(r.sampling.bias[1].second, 2);
    EXPECT_EQ(r.max_tokens, 20);  // the newer name wins
    EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(r.n, 2);
    EXPECT_TRUE(r.stream && r.include_usage);
}

TEST(ChatRequestBody, NullIsAbsent) {
    const AnswerRequest r = chat(R"({"messages": [{"role": "user", "content": "x"}], "temperature": null, "stop": null,
        "tools": null, "tool_choice": null, "response_format": null, "max_tokens": null, "seed": -1})");
    EXPECT_FALSE(r.sampling.temperature || r.max_tokens || r.sampling.seed);
    EXPECT_TRUE(r.stop.empty());
}

TEST(ChatRequestBody, RefusesByName) {
    const struct {
        const char* body;
        const char* param;
        const char* code;
    } cases[] = {
        {R"({})", "messages", "missing_required_parameter"},
        {R"({"messages": [], "temperature": 3})", "temperature", "invalid_value"},
        {R"({"messages": [], "temperature": "hot"})", "temperature", "invalid_type"},
        {R"({"messages": [], "top_p": 0})", "top_p", "invalid_value"},
        {R"({"messages": [], "n": 9})", "n", "invalid_value"},
        {R"({"messages": [], "stop": 5})", "stop", "invalid_type"},
        {R"({"messages": [], "top_logprobs": 3})", "top_logprobs", "invalid_value"},
        {R"({"messages": [], "logprobs": true, "top_logprobs": 21})", "top_logprobs", "invalid_value"},
        {R"({"messages": [], "grammar": "root ::= x"})", "grammar", "unsupported_parameter"},
        {R"({"messages": [], "samplers": ["x"]})", "samplers", "unsupported_parameter"},
        {R"({"messages": [], "audio": {}})", "audio", "unsupported_parameter"},
        {R"({"messages": [], "modalities": ["text", "audio"]})", "modalities", "unsupported_value"},
        {R"({"messages": [], "logit_bias": {"x": 1}})", "logit_bias", "invalid_value"},
        {R"({"messages": [], "response_format": {"type": "xml"}})", "response_format.type", "unsupported_value"},
        {R"({"messages": [], "response_format": {"type": "json_schema"}})", "response_format.json_schema",
         "missing_required_parameter"},
        {R"({"messages": [], "stream": "yes"})", "stream", "invalid_type"},
        {R"({"messages": "hello"})", "messages", "invalid_type"},
    };
    for (const auto& c : cases) {
        const ApiError error = refusal(c.body);
        EXPECT_EQ(error.param, c.param) << c.body;
        EXPECT_EQ(error.code, c.code) << c.body;
        EXPECT_EQ(error.status, 400);
    }
}

TEST(ChatRequestBody, OtherToolsThanFunctionsAreLeftOut) {
    const AnswerRequest r = chat(R"({"messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "web_search"}], "tool_choice": "auto"})");
    EXPECT_TRUE(r.chat.tools.is_null());
    EXPECT_EQ(r.notes.size(), 1u);
}

TEST(ChatRequestBody, ListsSentAsTextAreRead) {
    const AnswerRequest r = chat(R"({"messages": "[{\"role\": \"user\", \"content\": \"x\"}]"})");
    EXPECT_EQ(r.chat.messages[0]["content"], "x");
}

TEST(CompletionBody, TakesEveryFormOfPrompt) {
    const auto read = [](const char* text) { return read_completion_request(json(text)); };
    EXPECT_EQ(std::get<std::string>(read(R"({"prompt": "a"})")->raw.at(0)), "a");
    EXPECT_EQ(read(R"({"prompt": ["a", [1, 2], "b"], "n": 2})")->replies(), 6u);
    EXPECT_EQ(std::get<1>(read(R"({"prompt": [1, 2]})")->raw.at(0)), (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(read(R"({"prompt": "a", "echo": true})").error().param, "echo");
    EXPECT_EQ(read(R"({"prompt": "a", "best_of": 3})").error().param, "best_of");
    EXPECT_EQ(read(R"({})").error().param, "prompt");
}

TEST(Messages, BillingHeaderOfClaudeCodeIsCut) {
    EXPECT_EQ(without_billing_header("x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch=1a2b3;"), "");
    EXPECT_EQ(without_billing_header("x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;\nYou are"), "You are");
    EXPECT_EQ(without_billing_header("You are x-anthropic-billing-header: cch=1;"),
              "You are x-anthropic-billing-header: cch=1;");
    const auto r = messages(R"({"max_tokens": 4000, "messages": [{"role": "user", "content": "x"}], "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cch=abcde;"}, {"type": "text", "text": "A"},
        {"type": "text", "text": "B", "cache_control": {"type": "ephemeral"}}]})");
    EXPECT_EQ(r.answer.chat.messages[0], json(R"({"role": "system", "content": "A\n\nB"})"));
}

TEST(Messages, RemindersBesideResultsBelongToTheLastResult) {
    const auto r = messages(R"({"max_tokens": 4000, "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "ok"}, {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "file"},
            {"type": "text", "text": "<system-reminder>be brief</system-reminder>"}]}]})");
    const Json& list = r.answer.chat.messages;
    ASSERT_EQ(list.size(), 3u);
    EXPECT_EQ(list[1]["reasoning_content"], "hm");
    EXPECT_EQ(list[1]["tool_calls"][0]["function"]["arguments"], json(R"({"path": "a"})"));
    EXPECT_EQ(list[2]["role"], "tool");
    EXPECT_EQ(list[2]["content"], "file\n<system-reminder>be brief</system-reminder>");
}

TEST(Messages, TextBesideResultsIsAUserTurnOfItsOwn) {
    const auto r = messages(R"({"max_tokens": 4000, "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "tool_result", "tool_use_id": "t1"}]}]})");
    const Json& list = r.answer.chat.messages;
    ASSERT_EQ(list.size(), 3u);
    EXPECT_EQ(list[1], json(R"({"role": "tool", "tool_call_id": "t1", "content": ""})"));
    EXPECT_EQ(list[2], json(R"({"role": "user", "content": "and"})"));
}

TEST(Messages, EmptyThinkingIsFoundBySignature) {
    ReasoningMemory memory;
    const std::string name = memory.keep("deep thought");
    const std::string body =
        R"({"max_tokens": 4000, "messages": [{"role": "user", "content": "x"}, {"role": "assistant",
        "content": [{"type": "thinking", "thinking": "", "signature": ")" +
        name + R"("}, {"type": "text", "text": "y"}]},
        {"role": "user", "content": "z"}]})";
    EXPECT_EQ(messages(body.c_str(), memory).answer.chat.messages[1]["reasoning_content"], "deep thought");
}

TEST(Messages, ShortRequestsWithoutAWordAboutThinkingDoNotThink) {
    EXPECT_EQ(messages(R"({"max_tokens": 512, "messages": [{"role": "user", "content": "x"}]})").answer.chat.thinking,
              false);
    EXPECT_FALSE(
        messages(R"({"max_tokens": 5120, "messages": [{"role": "user", "content": "x"}]})").answer.chat.thinking);
    const auto r = messages(R"({"max_tokens": 512, "thinking": {"type": "enabled", "budget_tokens": 99},
        "messages": [{"role": "user", "content": "x"}]})");
    EXPECT_EQ(r.answer.chat.thinking, true);
    EXPECT_EQ(r.answer.reasoning_budget, 99);
}

TEST(Messages, ToolsOfTheServerAreLeftOutThoseOfTheClientRefused) {
    EXPECT_TRUE(messages(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}]})")
                    .answer.chat.tools.is_null());
    const auto refused = read_messages_request(json(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "bash_20250124", "name": "bash"}]})"),
                                               {}, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().param, "tools[0].type");
}

TEST(Messages, PicturesByAddressAreRefused) {
    const auto refused = read_messages_request(json(R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]}]})"),
                                               {}, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, "unsupported_value");
}

TEST(Responses, ItemsOfOneTurnBecomeOneMessage) {
    const auto r = responses(R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "ps1.aG0="},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\": 1}"},
        {"type": "function_call_output", "call_id": "c1", "output": "42"}], "instructions": "be"})");
    const Json& list = r.answer.chat.messages;
    ASSERT_EQ(list.size(), 4u);
    EXPECT_EQ(list[0]["role"], "system");
    EXPECT_EQ(list[2]["reasoning_content"], "hm");
    EXPECT_EQ(list[2]["content"], "ok");
    EXPECT_EQ(list[2]["tool_calls"][0]["id"], "c1");
    EXPECT_EQ(list[3]["tool_call_id"], "c1");
}

TEST(Responses, StoredStateIsRefusedByName) {
    for (const char* body : {R"({"input": "x", "previous_response_id": "r"})", R"({"input": "x", "conversation": "r"})",
                             R"({"input": "x", "background": true})"}) {
        const auto refused = read_responses_request(json(body));
        ASSERT_FALSE(refused) << body;
        EXPECT_EQ(refused.error().code, "unsupported_parameter");
    }
}

TEST(Responses, SealedReasoningComesBack) {
    for (const std::string text : {"", "a", "ab", "abc", "\xff\x00\x01 reasoning"})
        EXPECT_EQ(unbase64(base64(text)), text);
    EXPECT_EQ(base64("hm"), "aG0=");
}

/// Any JSON value, now and then of a kind that nobody expects.
Json odd_value(std::mt19937& random) {
    static const char* kValues[] = {"null",
                                    "true",
                                    "-1",
                                    "0",
                                    "1e300",
                                    "99999999999999999999",
                                    "\"\"",
                                    "\"x\"",
                                    "[]",
                                    "{}",
                                    "[1]",
                                    "[[]]",
                                    "[{}]",
                                    "[null]",
                                    "{\"type\": 5}",
                                    "{\"type\": \"text\"}",
                                    "[{\"type\": \"function\"}]",
                                    "{\"a\": {\"b\": []}}"};
    return parse_json(kValues[random() % std::size(kValues)]).value();
}

void damage(Json& value, std::mt19937& random, int depth = 0) {
    if (random() % 8 == 0 && depth > 0) {
        value = odd_value(random);
    } else if (value.is_object() || value.is_array()) {
        for (Json& inner : value) damage(inner, random, depth + 1);
    }
}

TEST(Bodies, DamagedOnesAreReadOrRefusedWith400) {
    const char* bodies[] = {
        R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:,"}}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f",
            "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "y"}], "tools": [{"type": "function",
            "function": {"name": "f", "parameters": {"type": "object"}}}], "tool_choice": {"type": "function", "function": {"name": "f"}},
            "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}, "stop": ["a"], "logit_bias":
            {"5": 1}, "thinking": {"type": "enabled", "budget_tokens": 5}, "reasoning": {"effort": "low", "max_tokens": 4},
            "stream_options": {"include_usage": true}, "chat_template_kwargs": {"enable_thinking": true}})",
        R"({"system": [{"type": "text", "text": "x"}], "messages": [{"role": "user", "content": [{"type": "tool_result",
            "tool_use_id": "a", "content": [{"type": "text", "text": "x"}, {"type": "image", "source": {"type": "base64",
            "media_type": "image/png", "data": "x"}}]}, {"type": "document", "source": {"type": "text", "data": "x"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "tool_use", "id": "a",
            "name": "f", "input": {}}]}], "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "f"},
            "thinking": {"type": "enabled", "budget_tokens": 9, "display": "omitted"}, "output_config": {"effort": "high", "format":
            {"type": "json_schema", "schema": {}}}, "stop_sequences": ["a"], "max_tokens": 5})",
        R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}, {"type": "reasoning", "summary": [{"text": "x"}],
            "content": [{"text": "y"}], "encrypted_content": "ps1.aG0="}, {"type": "function_call", "call_id": "c", "name": "f",
            "arguments": "{}"}, {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"}, {"type":
            "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]}], "tools": [{"type": "function",
            "name": "f", "parameters": {}}, {"type": "custom", "name": "g"}], "tool_choice": {"type": "function", "name": "f"},
            "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "json_schema", "schema": {}}},
            "include": ["reasoning.encrypted_content"]})",
        R"({"prompt": ["a", [1, 2]], "suffix": "x", "logprobs": 2, "stop": "x", "stream_options": {}})"};
    const unsigned seed = 20261201;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const ReasoningMemory memory;
    const auto check = [](const auto& read, const Json& body) {
        if (read) return;
        EXPECT_EQ(read.error().status, 400) << json_text(body);
        EXPECT_FALSE(read.error().message.empty());
    };
    for (int round = 0; round < 2000; ++round) {
        Json body = json(bodies[round % 4]);
        damage(body, random);
        check(read_chat_request(body), body);
        check(read_messages_request(body, memory, {}), body);
        check(read_responses_request(body), body);
        check(read_completion_request(body), body);
    }
}

}  // namespace
}  // namespace strata::server
