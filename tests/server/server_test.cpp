// The server with the tiny model's engine, over sockets.
#include "server/server.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <signal.h>
#include <thread>

#include "live_server.h"

namespace strata::server {
namespace {

using test::sse_data;

std::string chat_body(std::string_view text, std::string_view more = {}) {
    return R"({"messages": [{"role": "user", "content": ")" + std::string(text) +
           R"("}], "temperature": 0, "max_tokens": 12)" + std::string(more) + "}";
}

std::string content_of_stream(const std::vector<Json>& data) {
    std::string text;
    for (const Json& one : data) {
        if (!one.is_object() || !one.contains("choices")) continue;
        for (const Json& choice : one["choices"])
            for (const char* key : {"reasoning_content", "content"})
                if (const auto found = choice["delta"].find(key); found != choice["delta"].end() && found->is_string())
                    text += found->get<std::string>();
    }
    return text;
}

std::string text_of(const Json& answer) {
    const Json& message = answer["choices"][0]["message"];
    std::string text;
    for (const char* key : {"reasoning_content", "content"})
        if (const auto found = message.find(key); found != message.end() && found->is_string())
            text += found->get<std::string>();
    return text;
}

TEST(Server, StreamedAndWholeAnswersSayTheSame) {
    LiveServer live;
    const HttpAnswer whole = live.post("/v1/chat/completions", chat_body("hello"));
    ASSERT_EQ(whole.status, 200) << whole.body;
    EXPECT_EQ(whole.json()["usage"]["completion_tokens"], 12);
    EXPECT_EQ(whole.json()["choices"][0]["finish_reason"], "length");
    const HttpAnswer streamed = live.post(
        "/v1/chat/completions", chat_body("hello", R"(, "stream": true, "stream_options": {"include_usage": true})"));
    ASSERT_EQ(streamed.status, 200);
    EXPECT_EQ(streamed.header("content-type"), "text/event-stream");
    EXPECT_EQ(streamed.header("x-accel-buffering"), "no");
    const std::vector<Json> data = sse_data(streamed.body);
    EXPECT_EQ(content_of_stream(data), text_of(whole.json()));
    EXPECT_EQ(data.back(), "[DONE]");
    EXPECT_EQ(data[data.size() - 2]["usage"]["completion_tokens"], 12);
}

TEST(Server, ConversationsAreFoundAgainByContent) {
    LiveServer live;
    const std::string body = chat_body("a long enough message that is sent twice");
    live.post("/v1/chat/completions", body);
    const Json usage = live.post("/v1/chat/completions", body).json()["usage"];
    EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"].get<int>() - 1);
}

TEST(Server, CountTokensEqualsUsage) {
    LiveServer live;
    const std::string body =
        R"({"model": "claude-x", "max_tokens": 2, "messages": [{"role": "user", "content": "hello there"}],
        "system": "be brief", "tools": [{"name": "Read", "description": "reads", "input_schema": {"type": "object"}}]})";
    const HttpAnswer count = live.post("/v1/messages/count_tokens", body);
    ASSERT_EQ(count.status, 200) << count.body;
    const HttpAnswer answer = live.post("/v1/messages?beta=true", body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json usage = answer.json()["usage"];
    EXPECT_EQ(count.json()["input_tokens"],
              usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>());
    EXPECT_EQ(answer.json()["model"], "claude-x");
    EXPECT_FALSE(answer.header("request-id").empty());
}

TEST(Server, ClaudeCodeReadsOnlyWhatIsNew) {
    LiveServer live;
    const auto body = [](const char* header, const char* more) {
        return std::string(
                   R"({"max_tokens": 4, "temperature": 0, "thinking": {"type": "disabled"}, "system": [{"type": "text",
            "text": "x-anthropic-billing-header: cch=)") +
               header +
               R"(;"}, {"type": "text", "text": "You are an agent with a long system prompt that never changes."}],
            "tools": [{"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}],
            "messages": [{"role": "user", "content": "read the file"}, {"role": "assistant", "content": [{"type": "tool_use",
            "id": "toolu_1", "name": "Read", "input": {"path": "a"}}]}, {"role": "user", "content": [{"type": "tool_result",
            "tool_use_id": "toolu_1", "content": "text of the file"}, {"type": "text",
            "text": "<system-reminder>be careful</system-reminder>"}]})" +
               more + "]}";
    };
    const Json first = live.post("/v1/messages", body("aaaaa", "")).json();
    ASSERT_TRUE(first.contains("usage")) << json_text(first);
    const int whole = first["usage"]["input_tokens"];
    const Json second =
        live.post("/v1/messages",
                  body("bbbbb", R"(, {"role": "assistant", "content": "done"}, {"role": "user", "content": "thanks"})"))
            .json();
    EXPECT_GT(second["usage"]["cache_read_input_tokens"].get<int>(), whole / 2) << json_text(second);
}

TEST(Server, ErrorsComeBeforeTheAnswerInBothForms) {
    LiveServer live;
    const HttpAnswer openai = live.post("/v1/chat/completions", "{not json");
    EXPECT_EQ(openai.status, 400);
    EXPECT_EQ(openai.json()["error"]["code"], "invalid_json");
    const HttpAnswer anthropic = live.post("/v1/messages", R"({"messages": [{"role": "wizard", "content": "x"}]})");
    EXPECT_EQ(anthropic.status, 400);
    EXPECT_EQ(anthropic.json()["error"]["type"], "invalid_request_error");
    EXPECT_EQ(anthropic.json()["type"], "error");
    const HttpAnswer long_one = live.post("/v1/chat/completions", chat_body(std::string(20000, 'x')));
    EXPECT_EQ(long_one.status, 400);
    EXPECT_EQ(long_one.json()["error"]["code"], "context_length_exceeded");
    EXPECT_EQ(live.ask("GET", "/v1/chat/completions").status, 405);
    EXPECT_EQ(live.ask("GET", "/v1/chat/completions").header("allow"), "POST");
    EXPECT_EQ(live.ask("GET", "/nothing").status, 404);
    EXPECT_EQ(live.post("/v1/embeddings", "{}").status, 404);
    EXPECT_EQ(live.post("/v1/chat/completions", chat_body("x", R"(, "response_format": {"type": "json_schema",
        "json_schema": {"schema": {"not": {}}}})"))
                  .json()["error"]["code"],
              "unsupported_value");
    EXPECT_EQ(live.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": [{"type": "image_url",
        "image_url": {"url": "https://example.org/x.png"}}]}]})")
                  .status,
              400);
}

TEST(Server, PathsTakeQueriesSlashesAndHead) {
    LiveServer live;
    EXPECT_EQ(live.ask("GET", "/v1/models/").status, 200);
    EXPECT_EQ(live.ask("GET", "/v1/models?x=1").status, 200);
    const HttpAnswer head = live.ask("HEAD", "/health");
    EXPECT_EQ(head.status, 200);
    EXPECT_TRUE(head.body.empty());
    EXPECT_EQ(live.ask("OPTIONS", "/v1/models").status, 204);
}

TEST(Server, ConnectionsAreKeptAndRequestsMayComeInPieces) {
    LiveServer live;
    HttpClient client(live.port());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(client.ask("GET", "/health").status, 200);
    const std::string body = R"({"content": "hello"})";
    client.send(
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("5\r\n" + body.substr(0, 5) + "\r\n");
    client.send("f\r\n" + body.substr(5, 15) + "\r\n0\r\n\r\n");
    const HttpAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200) << answer.body;
    // Two requests at once: answered in order.
    client.send(HttpClient::request("GET", "/health") + HttpClient::request("GET", "/nothing"));
    EXPECT_EQ(client.read_answer().status, 200);
    EXPECT_EQ(client.read_answer().status, 404);
}

TEST(Server, LimitsAreKept) {
    ServerOptions options;
    options.body_limit = 1000;
    LiveServer live(options);
    EXPECT_EQ(live.post("/tokenize", R"({"content": ")" + std::string(2000, 'x') + "\"}").status, 413);
    EXPECT_EQ(live.ask("GET", "/health", "", "X-Long: " + std::string(100000, 'x') + "\r\n").status, 431);
    std::string deep(500, '[');
    EXPECT_EQ(live.post("/tokenize", deep).json()["error"]["code"], "invalid_json");
    HttpClient garbage(live.port());
    garbage.send("\x16\x03\x01\x02 this is no HTTP\r\n\r\n");
    EXPECT_EQ(garbage.read_answer().status, 400);
}

TEST(Server, KeysHostsAndOrigins) {
    ServerOptions options;
    options.api_key = "secret";
    LiveServer locked(options);
    EXPECT_EQ(locked.ask("GET", "/v1/models").status, 401);
    EXPECT_EQ(locked.ask("GET", "/v1/models", "", "Authorization: Bearer wrong\r\n").status, 401);
    EXPECT_EQ(locked.ask("GET", "/v1/models", "", "Authorization: Bearer secret\r\n").status, 200);
    EXPECT_EQ(locked.ask("GET", "/v1/models", "", "x-api-key: secret\r\n").status, 200);
    EXPECT_EQ(locked.ask("GET", "/health").status, 200);
    EXPECT_EQ(locked.ask("POST", "/v1/messages", "{}").json()["error"]["type"], "authentication_error");

    LiveServer open;
    HttpClient renamed(open.port());
    renamed.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    EXPECT_EQ(renamed.read_answer().status, 403);
    EXPECT_EQ(open.ask("POST", "/tokenize", R"({"content": "x"})", "Origin: https://evil.example\r\n").status, 403);
    const HttpAnswer local = open.ask("POST", "/tokenize", R"({"content": "x"})", "Origin: http://localhost:3000\r\n");
    EXPECT_EQ(local.status, 200);
    EXPECT_EQ(local.header("access-control-allow-origin"), "http://localhost:3000");
}

TEST(Server, ListensBeyondThisMachineOnlyWithAKeyOrWhenTold) {
    ServerOptions options;
    options.host = "0.0.0.0";
    options.port = 0;
    const auto log = Log::open({.level = LogLevel::error}).value();
    const auto refused = Server::open(options, {}, *log);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("--api-key"), std::string::npos);
    options.allow_open = true;
    EXPECT_TRUE(Server::open(options, {}, *log));
}

TEST(Server, TakenPortIsSaid) {
    LiveServer live;
    ServerOptions options;
    options.port = live.port();
    const auto log = Log::open({.level = LogLevel::error}).value();
    const auto refused = Server::open(options, {}, *log);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("is taken"), std::string::npos);
}

TEST(Server, ModelsThatCannotBeUsedAreListedWithTheReason) {
    LiveServer live;
    const Json models = live.ask("GET", "/api/models").json()["models"];
    ASSERT_EQ(models.size(), 2u);
    EXPECT_EQ(models[0]["id"], "tiny");
    EXPECT_EQ(models[0]["status"], "loaded");
    EXPECT_EQ(models[1]["id"], "broken");
    EXPECT_EQ(models[1]["status"], "unavailable");
    const std::string problem = models[1]["problem"];
    EXPECT_NE(problem.find("broken.gguf"), std::string::npos);
    EXPECT_EQ(problem.find(live.folder().path().string()), std::string::npos);  // no paths of this machine
    const Json list = live.ask("GET", "/v1/models").json();
    EXPECT_EQ(list["data"][0]["id"], "tiny");
    EXPECT_EQ(list["first_id"], "tiny");
    EXPECT_EQ(live.ask("GET", "/v1/models/tiny").json()["meta"]["loaded"], true);
    EXPECT_EQ(live.ask("GET", "/v1/models/none").status, 404);
}

TEST(Server, ModelDroppedIntoTheFolderAppearsAndIsSwitchedTo) {
    LiveServer live;
    std::filesystem::create_symlink(test::data("clover_moe/tiny.gguf"), live.folder().path() / "models/clover.gguf");
    EXPECT_EQ(live.ask("GET", "/api/models").json()["models"].size(), 3u);
    EXPECT_EQ(live.post("/api/models/load", R"({"model": "nobody"})").status, 404);
    EXPECT_EQ(live.post("/api/models/load", R"({"model": "broken"})").status, 503);
    EXPECT_EQ(live.ask("GET", "/api/models/current").json()["loaded"], true);  // the earlier one answers still
    const HttpAnswer switched = live.post("/api/models/load", R"({"model": "clov"})");
    ASSERT_EQ(switched.status, 200) << switched.body;
    EXPECT_EQ(switched.json()["status"], "loaded");
    EXPECT_EQ(live.post("/v1/chat/completions", chat_body("hello")).json()["model"], "clover");
    // The one that is not in use, by its exact name, without switching on request.
    EXPECT_EQ(live.post("/v1/chat/completions", chat_body("x", R"(, "model": "tiny")")).json()["error"]["code"],
              "model_not_found");
    EXPECT_EQ(live.post("/v1/chat/completions", chat_body("x", R"(, "model": "gpt-4o")")).status, 200);
}

TEST(Server, RequestMaySwitchWhereThatIsAllowed) {
    ServerOptions options;
    options.switch_on_request = true;
    LiveServer live(options);
    std::filesystem::create_symlink(test::data("clover_moe/tiny.gguf"), live.folder().path() / "models/clover.gguf");
    live.ask("GET", "/api/models");
    EXPECT_EQ(live.post("/v1/chat/completions", chat_body("x", R"(, "model": "clover")")).json()["model"], "clover");
    EXPECT_EQ(live.post("/v1/chat/completions", chat_body("x", R"(, "model": "tiny")")).json()["model"], "tiny");
}

TEST(Server, UnloadedModelIsLoadedByTheNextRequest) {
    LiveServer live;
    EXPECT_EQ(live.post("/api/models/unload", "{}").status, 200);
    EXPECT_EQ(live.ask("GET", "/api/models/current").json()["loaded"], false);
    EXPECT_EQ(live.ask("GET", "/ready").status, 503);
    EXPECT_EQ(live.post("/v1/chat/completions", chat_body("hello")).status, 200);
    EXPECT_EQ(live.ask("GET", "/ready").status, 200);
}

TEST(Server, KilledEngineFailsItsRequestsAndTheNextSucceed) {
    LiveServer live({}, {"--max-context", "4096"});
    for (int round = 0; round < 4; ++round) {
        HttpClient client(live.port());
        client.send(HttpClient::request(
            "POST", "/v1/chat/completions",
            R"({"messages": [{"role": "user", "content": "x"}], "ignore_eos": true, "max_tokens": 3000, "stream": true})"));
        HttpAnswer begun;
        ASSERT_TRUE(client.read_head(begun));
        ASSERT_EQ(begun.status, 200);
        std::string text;
        for (int i = 0; i < 3; ++i) text += client.read_chunk();
        kill(live.server().host().serving().engine->pid(), SIGKILL);
        for (std::string piece; !(piece = client.read_chunk()).empty();) text += piece;
        const std::vector<Json> data = sse_data(text);
        ASSERT_FALSE(data.empty());
        EXPECT_EQ(data.back()["error"]["code"], "engine_failed") << json_text(data.back());
        const HttpAnswer next = live.post("/v1/chat/completions", chat_body("hello"));
        EXPECT_EQ(next.status, 200) << next.body;
    }
}

TEST(Server, ClientThatGoesAwayFreesItsPlace) {
    LiveServer live;
    {
        HttpClient client(live.port());
        client.send(HttpClient::request(
            "POST", "/v1/chat/completions",
            R"({"messages": [{"role": "user", "content": "x"}], "ignore_eos": true, "max_tokens": 4000, "stream": true})"));
        HttpAnswer begun;
        ASSERT_TRUE(client.read_head(begun));
        client.read_chunk();
        client.read_chunk();
    }
    const Json next = live.post("/v1/chat/completions", chat_body("hello")).json();
    EXPECT_EQ(next["usage"]["completion_tokens"], 12);
    // The one that was left is counted with what it had.
    const Json requests = live.ask("GET", "/metrics?format=json").json()["requests"];
    ASSERT_EQ(requests.size(), 2u);
    EXPECT_EQ(requests[1]["finish"], "gone");
    EXPECT_LT(requests[1]["timings"]["predicted_n"], 4000);
}

TEST(Server, FullQueueIsSaidWithRetryAfter) {
    ServerOptions options;
    options.queue = 1;
    LiveServer live(options);
    const std::string endless =
        R"({"messages": [{"role": "user", "content": "x"}], "ignore_eos": true, "max_tokens": 4000, "stream": true})";
    HttpClient first(live.port()), second(live.port());
    HttpAnswer head;
    first.send(HttpClient::request("POST", "/v1/chat/completions", endless));
    ASSERT_TRUE(first.read_head(head));
    first.read_chunk();
    first.read_chunk();  // it runs
    second.send(HttpClient::request("POST", "/v1/chat/completions", endless));
    ASSERT_TRUE(second.read_head(head));  // it waits
    const HttpAnswer third = live.post("/v1/chat/completions", chat_body("x"));
    EXPECT_EQ(third.status, 429);
    EXPECT_EQ(third.header("retry-after"), "5");
    EXPECT_EQ(live.post("/v1/messages", R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})").status,
              529);
    // Counting tokens never waits.
    EXPECT_EQ(live.post("/v1/messages/count_tokens", R"({"messages": [{"role": "user", "content": "x"}]})").status,
              200);
    first.close();
    second.close();
    // Their places are free as soon as the server has seen them go.
    HttpAnswer next;
    do next = live.post("/v1/chat/completions", chat_body("x"));
    while (next.status == 429);
    EXPECT_EQ(next.status, 200);
}

TEST(Server, RequestsBesideEachOtherGetTheAnswersTheyGetAlone) {
    LiveServer live({}, {"--parallel", "4", "--max-context", "1024"});
    std::vector<std::string> alone;
    for (int i = 0; i < 12; ++i)
        alone.push_back(
            text_of(live.post("/v1/chat/completions", chat_body("message " + std::to_string(i * 7919))).json()));
    std::vector<std::string> together(alone.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < alone.size(); ++i)
        clients.emplace_back([&, i] {
            const HttpAnswer answer = live.post(
                "/v1/chat/completions", chat_body("message " + std::to_string(i * 7919), R"(, "stream": true)"));
            together[i] = content_of_stream(sse_data(answer.body));
        });
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(together, alone);
}

TEST(Server, AnswersFollowASchema) {
    LiveServer live;
    const char* formats[] = {
        R"({"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1,
            "maximum": 9}}, "required": ["city", "days"], "additionalProperties": false})",
        R"({"enum": ["red", "green"]})",
    };
    for (const char* schema : formats) {
        const std::string body =
            R"({"messages": [{"role": "user", "content": "go"}], "temperature": 0.9, "max_tokens": 200, "seed": 3,
            "chat_template_kwargs": {"enable_thinking": false}, "response_format": {"type": "json_schema", "json_schema":
            {"name": "x", "schema": )" +
            std::string(schema) + "}}}";
        const HttpAnswer answer = live.post("/v1/chat/completions", body);
        ASSERT_EQ(answer.status, 200) << answer.body;
        const std::string text = answer.json()["choices"][0]["message"]["content"];
        const auto parsed = parse_json(text);
        ASSERT_TRUE(parsed) << text;
        EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "stop") << answer.body;
        if (parsed->is_object()) {
            EXPECT_TRUE((*parsed)["city"].is_string() && (*parsed)["days"].is_number_integer()) << text;
        } else {
            EXPECT_TRUE(*parsed == "red" || *parsed == "green") << text;
        }
    }
}

TEST(Server, ReasoningEndsWithItsBudget) {
    LiveServer live;
    const Json answer =
        live.post(
                "/v1/chat/completions",
                R"({"messages": [{"role": "user", "content": "go"}], "temperature": 0, "max_tokens": 60, "ignore_eos": true,
        "reasoning_budget_tokens": 5, "chat_template_kwargs": {"enable_thinking": true}})")
            .json();
    const Json usage = answer["usage"];
    EXPECT_GT(usage["completion_tokens_details"]["reasoning_tokens"].get<int>(), 0) << json_text(answer);
    EXPECT_LT(usage["completion_tokens_details"]["reasoning_tokens"].get<int>(), 20) << json_text(answer);
    EXPECT_FALSE(answer["choices"][0]["message"]["content"].get<std::string>().empty());
}

TEST(Server, LogprobsAreTheModelsOwn) {
    LiveServer live;
    const Json answer = live.post("/v1/chat/completions", chat_body("hi", R"(, "logprobs": true, "top_logprobs": 3,
        "chat_template_kwargs": {"enable_thinking": false})"))
                            .json();
    const Json content = answer["choices"][0]["logprobs"]["content"];
    ASSERT_FALSE(content.empty()) << json_text(answer);
    std::string joined;
    for (const Json& token : content) {
        EXPECT_LE(token["logprob"].get<double>(), 0);
        ASSERT_EQ(token["top_logprobs"].size(), 3u);
        EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);  // greedy
        for (const Json& byte : token["bytes"]) joined += static_cast<char>(byte.get<int>());
    }
    EXPECT_NE(joined.find(answer["choices"][0]["message"]["content"].get<std::string>().substr(0, 4)),
              std::string::npos);
}

TEST(Server, SeveralRepliesOfOnePrompt) {
    LiveServer live;
    const std::string body =
        R"({"messages": [{"role": "user", "content": "go"}], "temperature": 1, "seed": 1, "max_tokens": 8, "n": 3})";
    const Json answer = live.post("/v1/chat/completions", body).json();
    ASSERT_EQ(answer["choices"].size(), 3u);
    EXPECT_EQ(answer["usage"]["completion_tokens"], 24);
    EXPECT_NE(json_text(answer["choices"][0]["message"]), json_text(answer["choices"][1]["message"]));
    EXPECT_EQ(json_text(live.post("/v1/chat/completions", body).json()["choices"]), json_text(answer["choices"]));
}

TEST(Server, CompletionsTokenizeAndBack) {
    LiveServer live;
    const HttpAnswer tokens = live.post("/tokenize", R"({"content": "hello world"})");
    ASSERT_EQ(tokens.status, 200);
    EXPECT_EQ(live.post("/detokenize", tokens.body).json()["content"], "hello world");
    EXPECT_EQ(live.post("/detokenize", R"({"tokens": [99999999]})").status, 400);
    const Json by_text =
        live.post("/v1/completions", R"({"prompt": "hello world", "temperature": 0, "max_tokens": 5})").json();
    ASSERT_TRUE(by_text.contains("choices")) << json_text(by_text);
    const Json by_ids = live.post("/v1/completions", R"({"prompt": )" + json_text(tokens.json()["tokens"]) +
                                                         R"(, "temperature": 0, "max_tokens": 5})")
                            .json();
    EXPECT_EQ(by_text["choices"][0]["text"], by_ids["choices"][0]["text"]);
    const std::string text = by_text["choices"][0]["text"];
    size_t at = 1;
    while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;  // the second character
    const std::string stop = text.substr(at);
    ASSERT_FALSE(stop.empty());
    const Json stopped =
        live.post("/v1/completions", R"({"prompt": "hello world", "temperature": 0, "max_tokens": 5, "stop": )" +
                                         json_text(Json(stop)) + "}")
            .json();
    EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(stopped["choices"][0]["text"].get<std::string>().find(stop), std::string::npos);
}

TEST(Server, MetricsCountWhatHappened) {
    LiveServer live;
    live.post("/v1/chat/completions", chat_body("hello"));
    HttpAnswer text;  // a route is counted right behind its answer
    do text = live.ask("GET", "/metrics");
    while (text.body.find("/v1/chat/completions") == std::string::npos);
    EXPECT_NE(text.body.find("polystrata_requests_total{path=\"/v1/chat/completions\",code=\"200\"} 1"),
              std::string::npos)
        << text.body;
    EXPECT_NE(text.body.find("polystrata_reply_tokens_total 12"), std::string::npos);
    EXPECT_NE(text.body.find("polystrata_first_token_seconds_count 1"), std::string::npos);
    const Json json = live.ask("GET", "/metrics", "", "Accept: application/json\r\n").json();
    EXPECT_EQ(json["totals"]["reply_tokens"], 12);
    EXPECT_EQ(json["totals"]["engine_starts"], 1);
}

TEST(Server, ManyIdleConnectionsDisturbNobody) {
    LiveServer live;
    std::vector<std::unique_ptr<HttpClient>> idle;
    for (int i = 0; i < 300; ++i) {
        idle.push_back(std::make_unique<HttpClient>(live.port()));
        ASSERT_TRUE(idle.back()->connected());
    }
    EXPECT_EQ(idle[0]->ask("GET", "/health").status, 200);
    EXPECT_EQ(live.post("/v1/chat/completions", chat_body("hello")).status, 200);
    EXPECT_EQ(idle[299]->ask("GET", "/health").status, 200);
}

TEST(Server, RunningRequestsAreEndedWithinTheBoundAtTheEnd) {
    ServerOptions options;
    options.shutdown_limit = std::chrono::seconds(1);
    LiveServer live(options);
    HttpClient client(live.port());
    client.send(HttpClient::request(
        "POST", "/v1/chat/completions",
        R"({"messages": [{"role": "user", "content": "x"}], "ignore_eos": true, "max_tokens": 4000, "stream": true, "n": 8})"));
    HttpAnswer head;
    ASSERT_TRUE(client.read_head(head));
    std::string text = client.read_chunk() + client.read_chunk();
    std::thread stopper([&] { live.server().stop(); });
    for (std::string piece; !(piece = client.read_chunk()).empty();) text += piece;
    stopper.join();
    const std::vector<Json> data = sse_data(text);
    ASSERT_FALSE(data.empty());
    EXPECT_TRUE(data.back().is_object() && data.back().contains("error")) << json_text(data.back());
}

}  // namespace
}  // namespace strata::server
