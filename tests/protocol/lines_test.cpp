#include "protocol/lines.h"

#include <gtest/gtest.h>
#include <random>

namespace strata::protocol {
namespace {

GenerateRequest request_of(const Command& command) {
    EXPECT_FALSE(command.error) << command.error.value_or("");
    const auto* generate = std::get_if<Generate>(&command.what);
    EXPECT_NE(generate, nullptr);
    return generate ? generate->request : GenerateRequest{};
}

std::string error_of(std::string_view line) {
    return parse_command(line).error.value_or("(accepted)");
}

TEST(Lines, GenerateTakesTheIdListWhereverTheKeysStand) {
    const GenerateRequest request = request_of(parse_command("GEN 32 temperature=0.7 1,2,3 top_k=5"));
    EXPECT_EQ(request.max_new, 32);
    EXPECT_EQ(request.prompt, (std::vector<int32_t>{1, 2, 3}));
    EXPECT_FLOAT_EQ(request.sampling.temperature, 0.7f);
    EXPECT_EQ(request.sampling.top_k, 5);
}

TEST(Lines, DefaultsAreThoseOfTheProtocol) {
    const GenerateRequest request = request_of(parse_command("GEN 1 5"));
    EXPECT_EQ(request.sampling.temperature, 0);
    EXPECT_EQ(request.sampling.top_k, 20);
    EXPECT_EQ(request.sampling.top_p, 1);
    EXPECT_EQ(request.sampling.penalty_last_n, 0);
    EXPECT_TRUE(request.draft && request.repeats && request.cache);
    EXPECT_FALSE(request.stop_ids);
}

TEST(Lines, CarriageReturnsAndBlanksAroundALineAreIgnored) {
    EXPECT_EQ(request_of(parse_command("  GEN  2   7,8 \r")).prompt, (std::vector<int32_t>{7, 8}));
    EXPECT_TRUE(std::holds_alternative<Nothing>(parse_command(" \r").what));
}

TEST(Lines, UnknownKeysAreSkipped) {
    EXPECT_EQ(request_of(parse_command("GEN 2 colour=blue 7")).prompt, (std::vector<int32_t>{7}));
}

TEST(Lines, AKnownKeyWhoseValueDoesNotParseIsABadRequest) {
    for (const char* key :
         {"temperature=warm", "temperature=-1", "temperature=nan",  "top_p=0",    "top_p=1.5",
          "min_p=2",          "top_k=-1",       "penalty_repeat=0", "seed=-1",    "seed=18446744073709551616",
          "top=65",           "draft=2",        "cache=",           "turn_at=-1", "stop_ids=1,,2",
          "follow=1,x",       "bias=1",         "bias=1:x",         "id=x",       "typical=0",
          "dry_base=0.5"})
        EXPECT_TRUE(error_of(std::string("GEN 2 ") + key + " 7").starts_with("bad request: ")) << key;
}

TEST(Lines, RefusesMaxNewBelowOneAndBrokenIdLists) {
    for (const char* line :
         {"GEN", "GEN 0 1", "GEN -1 1", "GEN x 1", "GEN 5", "GEN 5 1,", "GEN 5 ,1", "GEN 5 1,-2", "GEN 5 1 2",
          "GEN 5 99999999999", "GEN 5 top_k=3", "GENI 5 rows.bin 1,2", "GENI 5 image_pad=1 1,2"})
        EXPECT_TRUE(error_of(line).starts_with("bad request: ")) << line;
}

TEST(Lines, GarbageIsRefusedInPrintableWords) {
    const std::string error = error_of("\x01\xff\xfeGARBAGE with spaces");
    EXPECT_TRUE(error.starts_with("bad request: unknown command"));
    for (const char c : error) EXPECT_TRUE(c >= ' ' && c < 127);
}

TEST(Lines, ARefusedRequestKeepsItsId) {
    const Command command = parse_command("GEN 0 id=17 1,2");
    ASSERT_TRUE(command.error);
    EXPECT_EQ(command.id, 17u);
}

TEST(Lines, EveryParameterSurvivesTheWayThroughALine) {
    GenerateRequest request;
    request.max_new = 9;
    request.prompt = {1, 2, 2147483647};
    request.sampling = {0.7f,
                        12,
                        0.9f,
                        0.05f,
                        0.8f,
                        1.1f,
                        0.2f,
                        -0.3f,
                        64,
                        0.8f,
                        1.5f,
                        3,
                        100,
                        {4, 5},
                        {{6, -100.0f}, {7, 0.1f}},
                        18446744073709551615u};
    request.stop_ids = {{3, 4}};
    request.follow = {8, 9};
    request.grammar = "v2:0:34>1;!0-33>1,@0>0|!";
    request.top = 5;
    request.state_hash = true;
    request.draft = request.repeats = request.cache = false;
    request.turn_at = 2;
    const Command command = parse_command(format_generate(request, 5));
    EXPECT_EQ(request_of(command), request);
    EXPECT_EQ(command.id, 5u);

    request.stop_ids = std::vector<int32_t>{};  // no id ends the answer: not the same as the file's own
    request.rows_file = "/tmp/rows.bin";
    request.image_pad = 2;
    EXPECT_EQ(request_of(parse_command(format_generate(request))), request);
}

TEST(Lines, CommandsWithArguments) {
    EXPECT_EQ(std::get<Vram>(parse_command("VRAM 2048").what).reserve_mib, 2048);
    EXPECT_EQ(std::get<Vram>(parse_command("VRAM default").what).reserve_mib, std::nullopt);
    EXPECT_EQ(parse_command("STOP id=4").id, 4u);
    EXPECT_EQ(std::get<SaveConversation>(parse_command("SAVE /a file with blanks").what).path, "/a file with blanks");
    for (const char* line : {"VRAM", "VRAM -1", "VRAM lots", "STOP 4", "PROFILE", "PROFILE load", "SAVE", "LOAD "})
        EXPECT_TRUE(parse_command(line).error) << line;
}

TEST(Lines, RepliesSurviveTheWayThroughALine) {
    Token token{7, 0.8125f, {{7, 0.8125f}, {9, 0.04710000f}}};
    Done done{24, 40, 51.2, 310.004, "length", 9, 12, 0, 3, 7680, {{"seed", "5"}, {"window_mean", "1.5"}}};
    const std::vector<Reply> replies = {{Info{{{"engine", "1"}, {"kv", "f16"}}}, {}},
                                        {Ready{32768, {"stop", "top"}}, {}},
                                        {Progress{10, 20}, 3},
                                        {Reused{9}, 3},
                                        {token, 3},
                                        {done, 3},
                                        {Failed{"bad request: top_k is 'x'"}, 3}};
    for (const Reply& reply : replies) {
        const std::string line = format_reply(reply);
        const Reply back = parse_reply(line);
        EXPECT_EQ(format_reply(back), line);
        EXPECT_EQ(back.what.index(), reply.what.index()) << line;
        EXPECT_EQ(back.id, reply.id) << line;
    }
    EXPECT_EQ(format_reply(replies[4]), "T 7 p=0.8125 top=7:0.8125,9:0.0471 id=3");
    EXPECT_EQ(format_reply(replies[5]), "DONE 24 40 51.2 310.004 length 9 12 0 3 7680 seed=5 window_mean=1.5 id=3");
}

TEST(Lines, AMessageNeverBreaksTheFrame) {
    EXPECT_EQ(format_reply({Failed{"one\ntwo"}, {}}), "ERR one two");
}

TEST(Lines, TheReaderSkipsWhatItDoesNotKnow) {
    EXPECT_TRUE(std::holds_alternative<Unknown>(parse_reply("HELLO 5").what));
    EXPECT_TRUE(std::holds_alternative<Unknown>(parse_reply("T x").what));
    EXPECT_TRUE(std::holds_alternative<Unknown>(parse_reply("DONE 1 2 3").what));
    EXPECT_TRUE(std::holds_alternative<Token>(parse_reply("T 5 colour=blue").what));
}

TEST(Lines, RandomBytesNeverCrashEitherEnd) {
    const uint32_t seed = 1234;
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::string alphabet = "GENISTOP DONE T ERR 0123456789,,==:.-e\t\x01\xff_abc id=top=";
    for (int i = 0; i < 20000; ++i) {
        std::string line = i % 3 == 0 ? "GEN 5 " : i % 3 == 1 ? "DONE " : "";
        for (int n = static_cast<int>(random() % 60); n > 0; --n) line += alphabet[random() % alphabet.size()];
        const Command command = parse_command(line);
        EXPECT_NE(command.error, "");
        parse_reply(line);
    }
}

}  // namespace
}  // namespace strata::protocol
