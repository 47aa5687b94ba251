// What each dialect's client sees of an answer: streams keep their client's rules, and say the same as whole answers.
#include <gtest/gtest.h>
#include <map>

#include "http_client.h"
#include "server/anthropic.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/responses.h"

namespace strata::server {
namespace {

using Type = AnswerEvent::Type;
using test::sse_data;

const AnswerIdentity kIdentity{"abc", "model-x", "asked-for", 1750000000};

/// A reply with everything: reasoning, text, two calls (one without arguments).
std::vector<AnswerEvent> full_reply() {
    return {{Type::reasoning, -1, "let "},          {Type::reasoning, -1, "me see"},
            {Type::content, -1, "I look"},          {Type::content, -1, " it up."},
            {Type::call_begin, 0, "weather"},       {Type::call_arguments, 0, "{\"city\":"},
            {Type::call_arguments, 0, "\"Bern\"}"}, {Type::call_end, 0, ""},
            {Type::call_begin, 1, "now"},           {Type::call_end, 1, ""}};
}

Totals totals() {
    Totals t;
    t.prompt_tokens = 100;
    t.cached_tokens = 60;
    t.reply_tokens = 30;
    t.reasoning_tokens = 10;
    t.prompt_ms = 40;
    t.reply_ms = 300;
    return t;
}

ReplyResult result_of(const std::vector<AnswerEvent>& events, Finish finish) {
    ReplyResult result;
    result.answer.add(events);
    result.finish = finish;
    return result;
}

/// The whole stream, one event a call.
std::string stream(AnswerWriter& writer, const std::vector<AnswerEvent>& events, Finish finish) {
    std::string out = writer.begin(100);
    for (const AnswerEvent& event : events) out += writer.events(0, {&event, 1}, {});
    out += writer.end_reply(0, result_of(events, finish), totals());
    return out + writer.end(totals());
}

TEST(ChatStream, RoleFirstOneFinishThenUsageThenDone) {
    AnswerRequest request;
    request.include_usage = true;
    const auto writer = chat_writer(request, kIdentity);
    const std::vector<Json> data = sse_data(stream(*writer, full_reply(), Finish::tool_calls));
    ASSERT_GT(data.size(), 4u);
    EXPECT_EQ(data[0]["choices"][0]["delta"]["role"], "assistant");
    EXPECT_EQ(data.back(), "[DONE]");
    const Json& usage = data[data.size() - 2];
    EXPECT_TRUE(usage["choices"].empty());
    EXPECT_EQ(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 60);
    const Json& last = data[data.size() - 3];
    EXPECT_EQ(last["choices"][0]["finish_reason"], "tool_calls");
    EXPECT_TRUE(last.contains("timings"));
    std::string content, reasoning;
    std::map<int, std::string> names, arguments;
    for (size_t i = 0; i + 3 < data.size(); ++i) {
        EXPECT_TRUE(data[i]["choices"][0]["finish_reason"].is_null());
        EXPECT_TRUE(data[i]["usage"].is_null());
        EXPECT_EQ(data[i]["id"], "chatcmpl-abc");
        const Json& delta = data[i]["choices"][0]["delta"];
        if (i > 0 && delta.contains("content")) content += delta["content"].get<std::string>();
        if (delta.contains("reasoning_content")) reasoning += delta["reasoning_content"].get<std::string>();
        if (delta.contains("tool_calls"))
            for (const Json& call : delta["tool_calls"]) {
                const int index = call["index"];
                if (call.contains("id")) names[index] = call["function"]["name"];
                arguments[index] += call["function"]["arguments"].get<std::string>();
            }
    }
    EXPECT_EQ(content, "I look it up.");
    EXPECT_EQ(reasoning, "let me see");
    EXPECT_EQ(names[0] + names[1], "weathernow");
    EXPECT_EQ(arguments[0], "{\"city\":\"Bern\"}");
}

TEST(ChatAnswer, ContentIsNullOnlyBesideCalls) {
    AnswerRequest request;
    const auto whole = [&](const std::vector<AnswerEvent>& events) {
        const ReplyResult result = result_of(events, Finish::stop);
        return chat_writer(request, kIdentity)->whole({&result, 1}, totals())["choices"][0]["message"];
    };
    EXPECT_TRUE(whole({{Type::call_begin, 0, "f"}, {Type::call_end, 0, ""}})["content"].is_null());
    EXPECT_EQ(whole({{Type::call_begin, 0, "f"}, {Type::call_end, 0, ""}})["tool_calls"][0]["function"]["arguments"],
              "{}");
    EXPECT_EQ(whole({})["content"], "");
    EXPECT_FALSE(whole({}).contains("tool_calls"));
    EXPECT_FALSE(whole({}).contains("reasoning_content"));
}

TEST(ChatStream, TimingsStandOnAnswerWithoutUsageToo) {
    AnswerRequest request;
    const auto writer = chat_writer(request, kIdentity);
    const std::vector<Json> data = sse_data(stream(*writer, {}, Finish::length));
    ASSERT_EQ(data.size(), 3u);
    EXPECT_EQ(data[1]["choices"][0]["finish_reason"], "length");
    EXPECT_FALSE(data[1].contains("usage"));
}

TEST(MessagesStream, OneBlockOpenAtATimeAndIndexesCountUp) {
    ReasoningMemory memory;
    const AnthropicRequest request;
    const auto writer = messages_writer(request, kIdentity, memory);
    const std::vector<Json> data = sse_data(stream(*writer, full_reply(), Finish::tool_calls));
    ASSERT_GT(data.size(), 6u);
    EXPECT_EQ(data[0]["type"], "message_start");
    EXPECT_EQ(data[0]["message"]["model"], "asked-for");
    EXPECT_EQ(data[0]["message"]["usage"]["input_tokens"], 100);
    EXPECT_EQ(data[1]["type"], "ping");
    EXPECT_EQ(data[data.size() - 2]["type"], "message_delta");
    EXPECT_EQ(data[data.size() - 2]["delta"]["stop_reason"], "tool_use");
    EXPECT_EQ(data[data.size() - 2]["usage"]["input_tokens"], 40);
    EXPECT_EQ(data.back()["type"], "message_stop");
    int open = -1, next = 0;
    std::string kind, signature;
    std::map<int, std::string> json;
    for (size_t i = 2; i + 2 < data.size(); ++i) {
        const Json& e = data[i];
        if (e["type"] == "content_block_start") {
            EXPECT_EQ(open, -1);
            open = e["index"];
            EXPECT_EQ(open, next++);
            kind = e["content_block"]["type"];
        } else if (e["type"] == "content_block_delta") {
            EXPECT_EQ(e["index"], open);
            const std::string delta = e["delta"]["type"];
            if (kind == "thinking") EXPECT_TRUE(delta == "thinking_delta" || delta == "signature_delta");
            if (kind == "text") EXPECT_EQ(delta, "text_delta");
            if (kind == "tool_use") json[open] += e["delta"]["partial_json"].get<std::string>();
            if (delta == "signature_delta") signature = e["delta"]["signature"];
        } else {
            EXPECT_EQ(e["type"], "content_block_stop");
            EXPECT_EQ(e["index"], open);
            open = -1;
        }
    }
    EXPECT_EQ(open, -1);
    EXPECT_EQ(next, 4);
    EXPECT_EQ(json[2], "{\"city\":\"Bern\"}");
    EXPECT_EQ(json[3], "{}");
    EXPECT_EQ(memory.find(signature), "let me see");
}

TEST(MessagesAnswer, SaysWhatTheStreamSays) {
    ReasoningMemory memory;
    const ReplyResult result = result_of(full_reply(), Finish::tool_calls);
    const Json whole = messages_writer({}, kIdentity, memory)->whole({&result, 1}, totals());
    EXPECT_EQ(whole["content"][0]["thinking"], "let me see");
    EXPECT_FALSE(whole["content"][0]["signature"].get<std::string>().empty());
    EXPECT_EQ(whole["content"][1]["text"], "I look it up.");
    EXPECT_EQ(whole["content"][2]["input"]["city"], "Bern");
    EXPECT_EQ(whole["content"][3]["input"], Json::object());
    EXPECT_EQ(whole["stop_reason"], "tool_use");
    EXPECT_EQ(whole["usage"]["cache_read_input_tokens"], 60);
}

TEST(MessagesAnswer, StopSequenceIsNamed) {
    ReasoningMemory memory;
    ReplyResult result = result_of({{Type::content, -1, "x"}}, Finish::stop_string);
    result.stop_string = "END";
    const Json whole = messages_writer({}, kIdentity, memory)->whole({&result, 1}, totals());
    EXPECT_EQ(whole["stop_reason"], "stop_sequence");
    EXPECT_EQ(whole["stop_sequence"], "END");
}

void check_responses_stream(const ResponsesRequest& request) {
    const auto writer = responses_writer(request, kIdentity);
    const std::vector<Json> data = sse_data(stream(*writer, full_reply(), Finish::tool_calls));
    std::map<int, std::string> open;  // output_index to type
    std::map<std::string, std::string> deltas;
    for (size_t i = 0; i < data.size(); ++i) {
        EXPECT_EQ(data[i]["sequence_number"], i);
        const std::string type = data[i]["type"];
        if (type == "response.output_item.added") open[data[i]["output_index"]] = data[i]["item"]["type"];
        if (type.ends_with(".delta")) {
            EXPECT_TRUE(open.contains(data[i]["output_index"])) << type;
            deltas[type.substr(0, type.size() - 6) + data[i]["item_id"].get<std::string>()] +=
                data[i]["delta"].get<std::string>();
        }
        if (type.ends_with("text.done")) {
            const std::string key = type.substr(0, type.size() - 5) + data[i]["item_id"].get<std::string>();
            EXPECT_EQ(data[i]["text"], deltas[key]);
        }
        if (type == "response.output_item.done") {
            EXPECT_EQ(open[data[i]["output_index"]], data[i]["item"]["type"]);
            open.erase(data[i]["output_index"].get<int>());
        }
    }
    EXPECT_TRUE(open.empty());
    EXPECT_EQ(data[0]["type"], "response.created");
    EXPECT_EQ(data[1]["type"], "response.in_progress");
    const Json& last = data.back();
    EXPECT_EQ(last["type"], "response.completed");
    EXPECT_EQ(last["response"]["output"].size(), 4u);
    EXPECT_EQ(last["response"]["usage"]["total_tokens"], 130);
}

TEST(ResponsesStream, EveryAddedHasItsDoneAndNumbersHaveNoGaps) {
    ResponsesRequest request;
    request.echo = Json::object();
    check_responses_stream(request);
    request.summary = true;
    check_responses_stream(request);
    request.custom_tools = {"weather"};
    check_responses_stream(request);
}

TEST(ResponsesAnswer, CutAnswersAreIncomplete) {
    ResponsesRequest request;
    request.encrypted = true;
    const ReplyResult result = result_of({{Type::reasoning, -1, "hm"}, {Type::content, -1, "x"}}, Finish::length);
    const Json whole = responses_writer(request, kIdentity)->whole({&result, 1}, totals());
    EXPECT_EQ(whole["status"], "incomplete");
    EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_EQ(whole["output"][1]["status"], "incomplete");
    EXPECT_EQ(whole["output"][0]["encrypted_content"], "ps1.aG0=");
}

TEST(CompletionAnswer, OldLogprobsHaveOffsetsInCharacters) {
    AnswerRequest request;
    request.raw = {std::string("x")};
    request.logprobs = 1;
    ReplyResult result = result_of({{Type::content, -1, "\xC3\xA9z"}}, Finish::length);
    result.logprobs = {{{"\xC3\xA9", -0.5}, {{"e", -1.0}}}, {{"z", -0.25}, {}}};
    const Json choice = completion_writer(request, kIdentity)->whole({&result, 1}, totals())["choices"][0];
    EXPECT_EQ(choice["logprobs"]["text_offset"], (Json{0, 1}));
    EXPECT_EQ(choice["logprobs"]["token_logprobs"], (Json{-0.5, -0.25}));
    EXPECT_EQ(choice["finish_reason"], "length");
}

TEST(Errors, EachClientGetsItsOwnForm) {
    const ApiError full = queue_full(4);
    EXPECT_EQ(error_response(full, Wire::openai, "r").status, 429);
    EXPECT_EQ(error_response(full, Wire::anthropic, "r").status, 529);
    EXPECT_EQ(error_json(full, Wire::anthropic, "r")["error"]["type"], "overloaded_error");
    const ApiError field = invalid_value("tools[0].name", "tools[0].name is wrong");
    EXPECT_EQ(error_json(field, Wire::openai, "r")["error"]["param"], "tools[0].name");
    EXPECT_EQ(error_json(field, Wire::anthropic, "r")["error"]["message"], "tools.0.name is wrong");
    const ApiError long_one = context_exceeded(100, 150);
    EXPECT_EQ(
        error_json(long_one, Wire::openai, "r")["error"]["message"],
        "This model's maximum context length is 100 tokens. However, your messages resulted in 150 tokens. Please "
        "reduce the length of the messages.");
    EXPECT_EQ(error_json(long_one, Wire::anthropic, "r")["error"]["message"],
              "prompt is too long: 150 tokens > 100 maximum");
}

}  // namespace
}  // namespace strata::server
