#include "protocol/client.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>

namespace strata::protocol {
namespace {

/// A mock engine with a script of its own.
class Client : public testing::Test {
  protected:
    void SetUp() override {
        folder_ =
            std::filesystem::temp_directory_path() / ("strata_client_" + std::to_string(getpid()) + "_" +
                                                      testing::UnitTest::GetInstance()->current_test_info()->name());
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    EngineOptions options(const std::string& script) {
        std::ofstream(folder_ / "script") << script;
        EngineOptions o;
        o.process.command = {std::string(POLYSTRATA_BIN) + "/mock_engine", (folder_ / "script").string(), "--log", log_path()};
        return o;
    }
    Result<std::unique_ptr<EngineProcess>> start(const std::string& script) {
        return EngineProcess::start(options(script));
    }
    std::string log_path() const { return (folder_ / "log").string(); }
    std::string received() const {
        std::ifstream file(log_path());
        return {std::istreambuf_iterator<char>(file), {}};
    }

    std::filesystem::path folder_;
};

GenerateRequest prompt(std::vector<int32_t> ids) {
    GenerateRequest request;
    request.max_new = 8;
    request.prompt = std::move(ids);
    return request;
}

TEST_F(Client, StartsAndReadsWhatTheEngineSaysOfItself) {
    auto engine = start("INFO engine=9 arch=mock\nINFO layers=3\nREADY 4096 stop top\n");
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ((*engine)->ready().max_context, 4096);
    EXPECT_TRUE((*engine)->can("stop") && (*engine)->can("top") && !(*engine)->can("pictures"));
    EXPECT_EQ((*engine)->facts().at("arch"), "mock");
    EXPECT_EQ((*engine)->facts().at("layers"), "3");
    EXPECT_EQ((*engine)->quit(), 0);
}

TEST_F(Client, SilenceCountsOnlyWhileARequestRuns) {
    auto engine = start("READY 4096 stop\non GEN\nT 5\n@wait STOP\nDONE 1 3 1 1 cancel 0 0 0 0 0\n");
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ((*engine)->silence().count(), 0);
    const auto generation = (*engine)->submit(prompt({1, 2, 3}));
    ASSERT_TRUE(generation->next());
    while ((*engine)->silence().count() < 2) {
    }
    generation->stop();
    while (!std::holds_alternative<Done>(*generation->next())) {
    }
    EXPECT_EQ((*engine)->silence().count(), 0);
}

TEST_F(Client, StreamsARequestInOrder) {
    auto engine = start(
        "READY 4096 stop\non GEN\nPP 1 3\nPP 3 3\nREUSED 1\nT 5\nT 6 p=0.5 top=6:0.5,7:0.25\nDONE 2 3 1.5 2.5 length 0 "
        "0 1 0 0 seed=4\n");
    ASSERT_TRUE(engine) << engine.error().message;
    std::string story;
    const auto done = (*engine)->generate(
        prompt({1, 2, 3}), {.progress = [&](const Progress& p) { story += "P" + std::to_string(p.read); },
                            .reused = [&](const Reused& r) { story += "R" + std::to_string(r.rows); },
                            .token =
                                [&](const Token& t) {
                                    story += "T" + std::to_string(t.id);
                                    return true;
                                }});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(story, "P1P3R1T5T6");
    EXPECT_EQ(done->finish, "length");
    EXPECT_EQ(done->more.at("seed"), "4");
    EXPECT_NE(received().find("GEN 8 id=1 1,2,3\n"), std::string::npos) << received();
}

TEST_F(Client, StopEndsARequestAndTheNextOneRuns) {
    auto engine = start(
        "READY 4096 stop\non GEN\nT 5\n@wait STOP\nDONE 1 1 0 0 cancel 0 0 0 0 0\non GEN\nT 9\nDONE 1 1 0 0 stop 0 0 0 "
        "0 0\n");
    ASSERT_TRUE(engine) << engine.error().message;
    const auto first = (*engine)->generate(prompt({1}), {.token = [](const Token&) { return false; }});
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_EQ(first->finish, "cancel");
    const auto second = (*engine)->generate(prompt({1}), {});
    ASSERT_TRUE(second);
    EXPECT_EQ(second->finish, "stop");
}

TEST_F(Client, OverlappingRequestsGetTheirOwnReplies) {
    auto engine = start(
        "READY 4096 stop\non GEN\n@wait GEN\nT 20 id=2\nDONE 1 1 0 0 stop 0 0 0 0 0 id=2\nT 10\nDONE 1 1 0 0 stop 0 0 "
        "0 0 0\n");
    ASSERT_TRUE(engine) << engine.error().message;
    auto a = (*engine)->submit(prompt({1}));
    auto b = (*engine)->submit(prompt({2}));
    const auto token_of = [](Generation& g) { return std::get<Token>(*g.next()).id; };
    EXPECT_EQ(token_of(*b), 20);
    EXPECT_EQ(token_of(*a), 10);
    EXPECT_TRUE(std::holds_alternative<Done>(*a->next()));
    EXPECT_TRUE(std::holds_alternative<Done>(*b->next()));
    EXPECT_TRUE(a->ended());
}

TEST_F(Client, RepliesWithoutIdsBelongToTheOldestRequest) {
    auto engine = start(
        "READY 4096 stop\non GEN\n@wait GEN\nT 1 x id=\nDONE 1 1 0 0 stop 0 0 0 0 0 x id=\nT 2 x id=\nDONE 1 1 0 0 "
        "stop 0 0 0 0 0 x id=\n");
    ASSERT_TRUE(engine) << engine.error().message;
    auto a = (*engine)->submit(prompt({1}));
    auto b = (*engine)->submit(prompt({2}));
    EXPECT_EQ(std::get<Token>(*a->next()).id, 1);
    EXPECT_EQ(std::get<Token>(*b->next()).id, 2);
}

TEST_F(Client, ADroppedRequestIsStoppedAndItsRepliesAreNobodys) {
    auto engine = start(
        "READY 4096 stop\non GEN\nT 5\n@wait STOP\nT 6\nDONE 2 1 0 0 cancel 0 0 0 0 0\non GEN\nT 9\nDONE 1 1 0 0 stop "
        "0 0 0 0 0\n");
    ASSERT_TRUE(engine) << engine.error().message;
    {
        auto dropped = (*engine)->submit(prompt({1}));
        ASSERT_TRUE(dropped->next());
    }
    std::vector<int32_t> tokens;
    const auto done = (*engine)->generate(prompt({1}), {.token = [&](const Token& t) {
                                              tokens.push_back(t.id);
                                              return true;
                                          }});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(tokens, (std::vector<int32_t>{9}));
}

TEST_F(Client, NextGivesNothingWhileTheEngineIsSilent) {
    auto engine = start("READY 4096 stop\non GEN\n@wait STOP\nDONE 0 1 0 0 cancel 0 0 0 0 0\n");
    ASSERT_TRUE(engine) << engine.error().message;
    auto generation = (*engine)->submit(prompt({1}));
    EXPECT_FALSE(generation->next(std::chrono::milliseconds(1)));
    EXPECT_FALSE(generation->ended());
    generation->stop();
    EXPECT_TRUE(std::holds_alternative<Done>(*generation->next()));
}

TEST_F(Client, AnErrorLineIsTheRequestsErrorAndTheEngineLives) {
    auto engine = start(
        "READY 4096 stop\non GEN\nERR a token id is outside the vocabulary\non GEN\nDONE 0 1 0 0 length 0 0 0 0 0\n");
    ASSERT_TRUE(engine) << engine.error().message;
    const auto refused = (*engine)->generate(prompt({1}), {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "a token id is outside the vocabulary");
    EXPECT_TRUE((*engine)->generate(prompt({1}), {}));
}

TEST_F(Client, AnEngineThatDiesInARequestEndsItWithItsLastWords) {
    auto engine = start("READY 4096 stop\non GEN\nT 5\n@stderr the card is gone\n@exit 4\n");
    ASSERT_TRUE(engine) << engine.error().message;
    const auto result = (*engine)->generate(prompt({1}), {});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::device);
    EXPECT_EQ(result.error().code, "engine-ended");
    EXPECT_NE(result.error().message.find("the card is gone"), std::string::npos) << result.error().message;
    EXPECT_FALSE((*engine)->alive());
    const auto after = (*engine)->generate(prompt({1}), {});
    EXPECT_FALSE(after);
}

TEST_F(Client, AnEngineKilledByASignalIsNamedSo) {
    auto engine = start("READY 4096 stop\non GEN\n@raise 9\n");
    ASSERT_TRUE(engine) << engine.error().message;
    const auto result = (*engine)->generate(prompt({1}), {});
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("signal 9"), std::string::npos) << result.error().message;
}

TEST_F(Client, AnEngineThatEndsBeforeReadyDidNotStart) {
    const auto engine = start("@stderr model.gguf: no such file\n@exit 3\n");
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().kind, ErrorKind::file);
    EXPECT_NE(engine.error().message.find("model.gguf: no such file"), std::string::npos) << engine.error().message;
}

TEST_F(Client, AProgramThatIsNotThereIsAnErrorAtOnce) {
    EngineOptions missing;
    missing.process.command = {"/nowhere/strata-poly"};
    const auto engine = EngineProcess::start(missing);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().kind, ErrorKind::file);
}

TEST_F(Client, AStartCanBeCancelled) {
    const auto engine = EngineProcess::start(options("@wait NEVER\n"), [] { return true; });
    ASSERT_FALSE(engine);
    EXPECT_NE(engine.error().message.find("cancelled"), std::string::npos);
}

TEST_F(Client, CommandsBetweenRequestsAreAnswered) {
    auto engine = start("READY 4096 stop vram\non VRAM\nINFO expert_slots=7\non VRAM\nERR no such card\n");
    ASSERT_TRUE(engine) << engine.error().message;
    const auto info = (*engine)->command("VRAM 100", std::chrono::seconds(20));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->at("expert_slots"), "7");
    const auto refused = (*engine)->command("VRAM 100", std::chrono::seconds(20));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "no such card");
}

TEST_F(Client, QuitEndsAnEngineThatDoesNotListen) {
    auto engine = start("READY 4096 stop\non GEN\n@sleep 100000\n");
    ASSERT_TRUE(engine) << engine.error().message;
    auto generation = (*engine)->submit(prompt({1}));
    EXPECT_EQ((*engine)->quit(std::chrono::milliseconds(0)), 128 + SIGKILL);
    EXPECT_TRUE(std::holds_alternative<Error>(*generation->next()));
}

}  // namespace
}  // namespace strata::protocol
