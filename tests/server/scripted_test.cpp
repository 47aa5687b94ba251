// The server with an engine that follows a script: what happens when the engine is silent, slow, broken or gone.
#include <gtest/gtest.h>

#include "live_server.h"

namespace strata::server {
namespace {

using namespace std::chrono_literals;
using test::sse_data;

constexpr const char* kStream = R"({"messages": [{"role": "user", "content": "x"}], "stream": true})";
constexpr const char* kWhole = R"({"messages": [{"role": "user", "content": "x"}]})";
constexpr const char* kDone = "DONE 2 5 1.0 2.0 length 0 0 0 0 0\n";

/// Answers `times` requests with two tokens each.
std::string healthy(int times = 1) {
    std::string script = "READY 4096 stop\n";
    for (int i = 0; i < times; ++i) script += std::string("on GEN\nREUSED 0\nT 72\nT 73\n") + kDone;
    return script;
}
/// Says nothing until it is told to stop, then answers.
std::string silent() {
    return std::string("READY 4096 stop\non GEN\n@wait STOP\nDONE 0 5 1.0 0 cancel 0 0 0 0 0\non GEN\nT 72\nT 73\n") +
           kDone;
}

/// Reads a stream until `text` has come; false at its end.
bool read_until(HttpClient& client, std::string_view text, std::string& seen) {
    while (seen.find(text) == std::string::npos) {
        const std::string piece = client.read_chunk();
        if (piece.empty()) return false;
        seen += piece;
    }
    return true;
}

HttpAnswer begin(HttpClient& client, std::string_view path, std::string_view body) {
    client.send(HttpClient::request("POST", path, body));
    HttpAnswer head;
    client.read_head(head);
    return head;
}

TEST(Silence, StreamsGetKeepAlivesWhileTheyWaitAndWhileTheyRead) {
    ServerOptions options;
    options.ping = 10ms;
    const ScriptedServer live(silent(), options);
    HttpClient reads(live.port()), waits(live.port()), anthropic(live.port());
    std::string seen;
    ASSERT_EQ(begin(reads, "/v1/chat/completions", kStream).status, 200);
    EXPECT_TRUE(read_until(reads, ": ping\n\n", seen));
    ASSERT_EQ(begin(waits, "/v1/chat/completions", kStream).status, 200);
    seen.clear();
    EXPECT_TRUE(read_until(waits, ": ping\n\n", seen));
    ASSERT_EQ(begin(anthropic, "/v1/messages", kStream).status, 200);
    seen.clear();
    // The second: one belongs to every stream's beginning.
    EXPECT_TRUE(read_until(anthropic, "event: ping\ndata: {\"type\":\"ping\"}\n\nevent: ping\n", seen)) << seen;
}

TEST(Silence, KeepAlivesComeAlsoWhileTextIsHeldBack) {
    ServerOptions options;
    options.ping = 10ms;
    // Two tokens, the second after a while: the first's text could be a stop string's beginning, so nothing is sent.
    const ScriptedServer live("READY 4096 stop\non GEN\nT 72\n@wait STOP\nDONE 1 5 1 1 cancel 0 0 0 0 0\n", options);
    const std::string text = live.post("/detokenize", R"({"tokens": [72]})").json()["content"];
    HttpClient client(live.port());
    ASSERT_EQ(begin(client, "/v1/completions",
                    R"({"prompt": "x", "stream": true, "stop": )" + json_text(Json(text + "!")) + "}")
                  .status,
              200);
    std::string seen;
    EXPECT_TRUE(read_until(client, ": ping\n\n", seen));
    EXPECT_EQ(seen.find("\"text\""), std::string::npos) << seen;
}

TEST(Silence, RequestEndsAtItsTimeLimitAndTheNextIsAnswered) {
    ServerOptions options;
    options.request_limit = 50ms;
    const ScriptedServer streamed(silent(), options), whole(silent(), options);
    const std::vector<Json> data = sse_data(streamed.post("/v1/chat/completions", kStream).body);
    ASSERT_FALSE(data.empty());
    EXPECT_EQ(data.back()["error"]["code"], "timeout") << json_text(data.back());
    const HttpAnswer late = whole.post("/v1/chat/completions", kWhole);
    EXPECT_EQ(late.status, 500);
    EXPECT_EQ(late.json()["error"]["code"], "timeout");
    EXPECT_NE(late.body.find("0.05 s"), std::string::npos);
    EXPECT_EQ(whole.post("/v1/chat/completions", kWhole).status, 200);
}

TEST(Silence, HungEngineIsEndedAndStartedAgain) {
    HostOptions host;
    host.silence_limit = 100ms;
    const ScriptedServer live("READY 4096 stop\non GEN\nT 72\n@wait NOTHING\n", {}, host);
    live.model().write("script", healthy());  // for the one that is started again
    const std::vector<Json> data = sse_data(live.post("/v1/chat/completions", kStream).body);
    ASSERT_FALSE(data.empty());
    EXPECT_EQ(data.back()["error"]["code"], "engine_failed") << json_text(data.back());
    EXPECT_EQ(live.post("/v1/chat/completions", kWhole).status, 200);
    const Json totals = live.ask("GET", "/metrics?format=json").json()["totals"];
    EXPECT_EQ(totals["engine_failures"], 1);
    EXPECT_EQ(totals["engine_starts"], 2);
}

TEST(BrokenEngine, AnErrorInTheMiddleIsTheStreamsLastEvent) {
    const ScriptedServer live(
        "READY 4096 stop\non GEN\nT 72\nERR the card is full\non GEN\nT 72\nERR the card is full\n");
    const HttpAnswer openai = live.post("/v1/chat/completions", kStream);
    const std::vector<Json> data = sse_data(openai.body);
    EXPECT_EQ(openai.status, 200);
    EXPECT_EQ(data.back()["error"]["message"], "the engine failed: the card is full");
    const std::string text = live.post("/v1/messages", kStream).body;
    EXPECT_NE(text.find("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\""), std::string::npos)
        << text;
    EXPECT_EQ(text.find("message_stop"), std::string::npos);
}

TEST(BrokenEngine, ThreeEndsWithoutAnAnswerAreSaidAtOnce) {
    const ScriptedServer live("READY 4096 stop\non GEN\n@stderr the driver is gone\n@exit 9\n");
    for (int i = 0; i < 3; ++i) {
        const HttpAnswer failed = live.post("/v1/chat/completions", kWhole);
        EXPECT_EQ(failed.status, 500) << failed.body;
        EXPECT_EQ(failed.json()["error"]["code"], "engine_failed") << i << failed.body;
    }
    const HttpAnswer told = live.post("/v1/chat/completions", kWhole);
    EXPECT_EQ(told.status, 503);
    EXPECT_NE(told.body.find("the driver is gone"), std::string::npos) << told.body;
    EXPECT_FALSE(told.header("retry-after").empty());
    EXPECT_EQ(live.ask("GET", "/health").status, 200);  // the server stays up
}

TEST(BrokenEngine, OneThatWritesBeforeItEndsIsStartedAgainEveryTime) {
    const ScriptedServer live("READY 4096 stop\non GEN\nT 72\n@exit 9\n");
    for (int i = 0; i < 5; ++i) {
        const HttpAnswer failed = live.post("/v1/chat/completions", kWhole);
        EXPECT_EQ(failed.status, 500) << failed.body;
        EXPECT_EQ(failed.json()["error"]["code"], "engine_failed") << i << failed.body;
    }
}

TEST(BrokenEngine, ModelThatCannotBeLoadedIsSaidWithTheReason) {
    const ScriptedServer live("@stderr weights.gguf: tensor blk.0 is missing\n@exit 3\n", {}, {}, true);
    const HttpAnswer answer = live.post("/v1/messages", kWhole);
    EXPECT_EQ(answer.status, 529);
    EXPECT_NE(answer.body.find("tensor blk.0 is missing"), std::string::npos) << answer.body;
    EXPECT_EQ(live.ask("GET", "/ready").status, 503);
}

TEST(Settings, StandBetweenTheRequestsFieldsAndTheModels) {
    const ScriptedServer live(healthy(4));
    const HttpAnswer set = live.post("/settings", R"({"temperature": 0.25, "top_k": 7})");
    ASSERT_EQ(set.status, 200) << set.body;
    EXPECT_EQ(set.json()["temperature"], 0.25);
    live.post("/v1/chat/completions", kWhole);
    live.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "temperature": 0.5})");
    EXPECT_EQ(live.post("/settings", R"({"temperature": null})").json()["temperature"], Json());
    live.post("/v1/chat/completions", kWhole);
    std::istringstream log(live.model().log());
    std::vector<std::string> sent;
    for (std::string line; std::getline(log, line);)
        if (line.starts_with("GEN")) sent.push_back(line);
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_NE(sent[0].find(" temperature=0.25 "), std::string::npos) << sent[0];
    EXPECT_NE(sent[0].find(" top_k=7 "), std::string::npos) << sent[0];
    EXPECT_NE(sent[1].find(" temperature=0.5 "), std::string::npos) << sent[1];
    EXPECT_NE(sent[2].find(" temperature=0.8 "), std::string::npos) << sent[2];
    EXPECT_NE(sent[2].find(" top_k=7 "), std::string::npos) << sent[2];
}

TEST(Settings, AreRefusedByNameAndThenNothingChanges) {
    const ScriptedServer live(healthy());
    const HttpAnswer refused = live.post("/settings", R"({"top_k": 3, "temperature": 9})");
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["param"], "temperature");
    EXPECT_EQ(live.post("/settings", R"({"colour": "red"})").json()["error"]["param"], "colour");
    EXPECT_EQ(live.ask("GET", "/settings").json()["top_k"], Json());
}

TEST(Control, IsNeverForPagesOfOtherMachines) {
    ServerOptions options;
    options.cors = {"*"};
    const ScriptedServer live(healthy(), options);
    const std::string foreign = "Origin: https://page.example\r\nContent-Type: application/json\r\n";
    EXPECT_EQ(live.ask("POST", "/tokenize", R"({"content": "x"})", foreign).status, 200);  // --cors lets it ask
    for (const char* path : {"/settings", "/api/models/load", "/api/models/unload", "/v1/unload", "/v1/vram"}) {
        const HttpAnswer answer = live.ask("POST", path, "{}", foreign);
        EXPECT_EQ(answer.status, 403) << path;
        EXPECT_TRUE(answer.header("access-control-allow-origin").empty()) << path;
        const HttpAnswer before = live.ask("OPTIONS", path, "", foreign + "Access-Control-Request-Method: POST\r\n");
        EXPECT_TRUE(before.header("access-control-allow-origin").empty()) << path;
    }
    // The own page, but not as a form that any page could send.
    EXPECT_EQ(live.ask("POST", "/settings", "{}", "Origin: http://localhost\r\nContent-Type: text/plain\r\n").status,
              415);
    EXPECT_EQ(
        live.ask("POST", "/settings", "{}", "Origin: http://localhost\r\nContent-Type: application/json\r\n").status,
        200);
}

TEST(Monitors, HaveAKeyThatReadsAndDoesNothingElse) {
    ServerOptions options;
    options.api_key = "secret";
    options.metrics_key = "watcher";
    const ScriptedServer live(healthy(), options);
    const std::string watcher = "Authorization: Bearer watcher\r\n";
    for (const char* path : {"/metrics", "/status", "/v1/status", "/slots"}) {
        EXPECT_EQ(live.ask("GET", path, "", watcher).status, 200) << path;
        EXPECT_EQ(live.ask("GET", path, "", "x-api-key: secret\r\n").status, 200) << path;
        EXPECT_EQ(live.ask("GET", path, "", "Authorization: Bearer other\r\n").status, 401) << path;
        EXPECT_EQ(live.ask("GET", path).status, 401) << path;
    }
    for (const char* path : {"/v1/models", "/settings", "/props"})
        EXPECT_EQ(live.ask("GET", path, "", watcher).status, 401) << path;
    EXPECT_EQ(live.ask("POST", "/v1/chat/completions", kWhole, watcher).status, 401);
    // An empty key is none.
    options.metrics_key.clear();
    const ScriptedServer without(healthy(), options);
    EXPECT_EQ(without.ask("GET", "/metrics", "", "Authorization: Bearer \r\n").status, 401);
}

TEST(Monitors, SeeWhatRuns) {
    const ScriptedServer live(
        "INFO device=cpu parallel=2\nREADY 4096 stop\non GEN\nPP 3 9\nT 72\n@wait STOP\nDONE 1 5 1 1 cancel 0 0 0 0 "
        "0\n");
    Json slots = live.ask("GET", "/slots").json();
    ASSERT_EQ(slots.size(), 2u);
    EXPECT_EQ(slots[0]["is_processing"], false);
    EXPECT_EQ(live.ask("GET", "/v1/status").json()["activity"]["busy"], false);
    HttpClient client(live.port());
    ASSERT_EQ(begin(client, "/v1/chat/completions", kStream).status, 200);
    do slots = live.ask("GET", "/slots").json();
    while (slots[0]["is_processing"] == false || slots[0]["n_decoded"] == 0);
    EXPECT_EQ(slots.size(), 2u);
    EXPECT_EQ(slots[0]["n_ctx"], 4096);
    EXPECT_EQ(slots[0]["n_prompt_tokens_processed"], 3);
    EXPECT_EQ(slots[1]["is_processing"], false);
    const Json status = live.ask("GET", "/v1/status").json();
    EXPECT_EQ(status["activity"]["busy"], true);
    EXPECT_EQ(status["model"], "mock");
    EXPECT_EQ(status["context"], 4096);
    EXPECT_EQ(status["engine"]["device"], "cpu");
    EXPECT_GT(status["machine"]["cores"].get<int>(), 0);
}

TEST(SlowReader, GetsEveryTokenInOrderAndSlowsNobodyElse) {
    // More than the buffers between server and client hold.
    constexpr int kPairs = 40'000;
    std::string script = "INFO parallel=2\nREADY 1000000 stop\non GEN\n";
    for (int i = 0; i < kPairs; ++i) script += "T 72\nT 73\n";
    script += "DONE 80000 5 1 1 length 0 0 0 0 0\n";
    script += std::string("on GEN\nT 72\n") + kDone;
    const ScriptedServer live(script);
    const std::string pair = live.post("/detokenize", R"({"tokens": [72, 73]})").json()["content"];
    HttpClient slow(live.port());
    ASSERT_EQ(begin(slow, "/v1/completions", R"({"prompt": "x", "stream": true})").status, 200);
    std::string seen;
    ASSERT_TRUE(read_until(slow, "\"text\"", seen));  // it runs
    // Another request is answered while this one's client reads nothing more.
    EXPECT_EQ(live.post("/v1/chat/completions", kWhole).status, 200);
    for (std::string piece; !(piece = slow.read_chunk()).empty();) seen += piece;
    std::string text;
    for (const Json& data : sse_data(seen))
        if (data.is_object() && !data["choices"].empty()) text += data["choices"][0]["text"].get<std::string>();
    ASSERT_EQ(text.size(), kPairs * pair.size());
    for (size_t at = 0; at < text.size(); at += pair.size()) ASSERT_EQ(text.compare(at, pair.size(), pair), 0) << at;
}

TEST(Timings, RideOnEveryTokenWhereTheyAreAskedFor) {
    const ScriptedServer live(healthy(2));
    const auto timings = [&](const char* more) {
        std::vector<int64_t> written;
        const std::string body = R"({"prompt": "x", "stream": true)" + std::string(more) + "}";
        for (const Json& event : sse_data(live.post("/v1/completions", body).body))
            if (event.is_object() && event.contains("timings"))
                written.push_back(event["timings"]["predicted_n"].get<int64_t>());
        return written;
    };
    EXPECT_EQ(timings(R"(, "timings_per_token": true)"), (std::vector<int64_t>{1, 2, 2}));
    EXPECT_EQ(timings(""), (std::vector<int64_t>{2}));
}

}  // namespace
}  // namespace strata::server
