// strata-poly's end of the line protocol, line by line on its pipes.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <random>
#include <regex>
#include <set>
#include <signal.h>
#include <unistd.h>

#include "base/numbers.h"
#include "gguf/file.h"
#include "grammar/grammar_text.h"
#include "grammar/vocabulary.h"
#include "protocol/client.h"
#include "support/process.h"

namespace strata {
namespace {

using namespace protocol;

const std::string kTiny = test::data("qwen35moe/tiny.gguf");

/// An engine and its pipes.
class Wire {
  public:
    explicit Wire(const std::vector<std::string>& flags = {}, const std::string& model = kTiny) {
        ignore_broken_pipes();
        ProcessOptions options;
        options.command = {
            test::program("strata-poly"), "--model", model, "--device", "cpu", "--threads", "1", "--quiet"};
        options.command.insert(options.command.end(), flags.begin(), flags.end());
        auto started = Process::start(options);
        EXPECT_TRUE(started);
        process = std::move(started).value();
        std::string line;
        while (!(line = next()).empty() && !line.starts_with("READY")) hello.push_back(line);
        ready = line;
    }

    void send(const std::string& lines) { EXPECT_TRUE(write_all(process.input.get(), lines + "\n")); }

    /// The next line; empty at the end of the output.
    std::string next() {
        for (size_t end; (end = pending_.find('\n')) == std::string::npos;) {
            char buffer[65536];
            const ssize_t got = read(process.output.get(), buffer, sizeof buffer);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return {};
            pending_.append(buffer, static_cast<size_t>(got));
        }
        const size_t end = pending_.find('\n');
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        return line;
    }

    struct Story {
        std::vector<int32_t> tokens;
        std::vector<std::string> progress;
        std::optional<int64_t> reused;
        std::optional<Done> done;
        std::string error;
    };
    /// Lines up to the end of a request.
    Story story(std::optional<uint64_t> id = {}) {
        Story s;
        for (std::string line = next(); !line.empty(); line = next()) {
            const Reply reply = parse_reply(line);
            EXPECT_EQ(reply.id, id) << line;
            if (line.starts_with("PP")) {
                EXPECT_TRUE(s.tokens.empty() && !s.reused) << line;
                s.progress.push_back(line);
            } else if (const auto* reused = std::get_if<Reused>(&reply.what)) {
                EXPECT_FALSE(s.reused);
                s.reused = reused->rows;
            } else if (const auto* token = std::get_if<Token>(&reply.what)) {
                EXPECT_TRUE(s.reused);
                s.tokens.push_back(token->id);
            } else if (const auto* done = std::get_if<Done>(&reply.what)) {
                s.done = *done;
                return s;
            } else if (const auto* failed = std::get_if<Failed>(&reply.what)) {
                s.error = failed->message;
                return s;
            } else {
                ADD_FAILURE() << "unexpected line " << line;
            }
        }
        return s;
    }
    Story ask(const std::string& line) {
        send(line);
        return story();
    }

    /// Waits for the end; its exit code.
    int finish() {
        EXPECT_TRUE(process.wait(60000));
        return process.exit_code();
    }

    Process process;
    std::vector<std::string> hello;
    std::string ready;

  private:
    std::string pending_;
};

std::string ids(int count, int seed = 1) {
    std::string text;
    for (int i = 0; i < count; ++i) text += (i ? "," : "") + std::to_string((i * 37 + i / 5 * seed * 11 + seed) % 266);
    return text;
}

TEST(Serve, SaysWhatItIsThenReady) {
    Wire wire;
    EXPECT_EQ(wire.ready.substr(0, 15), "READY 4096 stop");
    ASSERT_EQ(wire.hello.size(), 1u);
    const Facts facts = std::get<Info>(parse_reply(wire.hello[0]).what).facts;
    for (const char* key : {"engine", "arch", "device", "layers", "experts_total", "expert_slots", "kv", "draft",
                            "window", "ram_file_mib", "threads", "pictures", "profile"})
        EXPECT_TRUE(facts.count(key)) << key;
    wire.send("QUIT");
    EXPECT_EQ(wire.finish(), 0);
}

TEST(Serve, AnswersARequestAndCountsIt) {
    Wire wire;
    const auto got = wire.ask("GEN 5 stop_ids=279 17,72,68,43,56");
    ASSERT_TRUE(got.done);
    EXPECT_EQ(got.tokens, (std::vector<int32_t>{43, 128, 159, 212, 50}));
    EXPECT_EQ(got.reused, 0);
    EXPECT_EQ(got.progress.back(), "PP 4 5");
    EXPECT_EQ(got.done->generated, 5);
    EXPECT_EQ(got.done->prompt_tokens, 5);
    EXPECT_EQ(got.done->finish, "length");
    EXPECT_EQ(got.done->lookups, 5 * 6 * 3);
    EXPECT_TRUE(got.done->more.count("seed") && got.done->more.count("read_calls"));
}

TEST(Serve, RefusesABadRequestAndServesTheNextOne) {
    Wire wire;
    const std::string good = "GEN 3 17,72,68,43,56";
    const auto want = wire.ask(good).tokens;
    for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
             {"GEN 0 1,2", "bad request: max_new"},
             {"GEN 5", "bad request: the list of token ids is missing"},
             {"GEN 5 1,280", "a token id is outside the vocabulary"},
             {"GEN 5 top_k=x 1", "bad request: top_k is 'x'"},
             {"GEN 4000 " + ids(89), "prompt (89 tokens) + max_new (4000) exceeds the context (4096)"},
             {"GENI 5 rows.bin 1,2", "bad request: GENI needs image_pad"},
             {"\x01\xfe garbage", "bad request: unknown command"},
             {"gen 5 1", "bad request: unknown command"},
             {"VRAM 100", "this engine runs on the CPU"},
             {"VRAM much", "bad request: VRAM"}}) {
        EXPECT_NE(wire.ask(line).error.find(part), std::string::npos) << line;
        EXPECT_EQ(wire.ask(good).tokens, want) << "after " << line;
    }
    EXPECT_TRUE(wire.ask("GEN 3 unknown_key=5 17,72,68,43,56").done);
}

TEST(Serve, TheExpertCacheIsResizedBetweenRequestsAndItsUseIsKept) {
    const test::TempFolder folder;
    const std::string profile = (folder.path() / "profile").string();
    const std::string ask = "GEN 12 state_hash=1 17,72,68,43,56";
    const auto want = Wire().ask(ask);
    ASSERT_TRUE(want.done);
    const std::vector<std::string> flags = {"--device",           "sim", "--sim-vram-mib",   "64",
                                            "--vram-reserve-mib", "1",   "--expert-profile", profile};
    Wire wire(flags);
    EXPECT_NE(wire.ready.find(" vram"), std::string::npos) << wire.ready;
    const auto facts_of = [&](const std::string& command) {
        wire.send(command);
        const std::string line = wire.next();
        const Reply reply = parse_reply(line);
        const auto* info = std::get_if<Info>(&reply.what);
        EXPECT_TRUE(info) << line;
        return info ? info->facts : Facts{};
    };
    const auto same = [&] {
        const auto got = wire.ask(ask + " cache=0");
        EXPECT_EQ(got.tokens, want.tokens);
        ASSERT_TRUE(got.done);
        EXPECT_EQ(got.done->more.at("state_hash"), want.done->more.at("state_hash"));
        EXPECT_EQ(got.done->lookups, want.done->lookups);
        EXPECT_TRUE(got.done->more.count("swaps") && got.done->more.count("cpu_experts"));
    };
    same();
    EXPECT_EQ(facts_of("VRAM 64")["expert_slots"], "0");
    same();
    const Facts all = facts_of("VRAM default");
    EXPECT_EQ(all.at("vram_reserve_mib"), "1");
    EXPECT_GT(std::stoi(all.at("expert_slots")), 0);
    same();
    EXPECT_GT(std::stoll(facts_of("PROFILE save")["profile"]), 0);
    wire.send("QUIT");
    EXPECT_EQ(wire.finish(), 0);
    Wire again(flags);
    EXPECT_TRUE(std::any_of(again.hello.begin(), again.hello.end(), [](const std::string& line) {
        return line.find(" profile=") != std::string::npos && line.find(" profile=0") == std::string::npos;
    }));
}

TEST(Serve, ReadsLongLinesAndRefusesOverlongOnes) {
    Wire wire;
    // A list of a megabyte is read whole: it is the context that is too small.
    std::string many = "1";
    for (int i = 1; i < 350000; ++i) many += ",22";
    EXPECT_NE(wire.ask("GEN 1 " + many).error.find("prompt (350000 tokens)"), std::string::npos);
    std::string line = "GEN 1 ";
    line.append((17u << 20), '7');
    EXPECT_NE(wire.ask(line).error.find("longer than"), std::string::npos);
    EXPECT_TRUE(wire.ask("GEN 1 1\r").done);
}

TEST(Serve, AContinuedACutAndARepeatedPromptReuseWhatTheyCan) {
    Wire wire;
    const std::string a = ids(300);
    EXPECT_EQ(wire.ask("GEN 2 " + a).reused, 0);
    EXPECT_EQ(wire.ask("GEN 2 " + a).reused, 299);
    EXPECT_EQ(wire.ask("GEN 2 " + a + ",5,6").reused, 299);
    EXPECT_EQ(wire.ask("GEN 2 " + ids(100)).reused, 0);
    EXPECT_EQ(wire.ask("GEN 2 cache=0 " + ids(100)).reused, 0);
}

TEST(Serve, TheSameRequestGivesTheSameTokensWhateverIsCached) {
    Wire wire({"--window", "8", "--guesses", "always"});
    const std::string request = "GEN 40 temperature=0.9 top_k=0 seed=7 penalty_last_n=30 penalty_freq=0.2 " + ids(200);
    const auto fresh = wire.ask(request);
    EXPECT_EQ(fresh.tokens.size(), static_cast<size_t>(fresh.done->generated));
    EXPECT_EQ(wire.ask(request).tokens, fresh.tokens);
    wire.ask("GEN 1 " + ids(50, 3));
    EXPECT_EQ(wire.ask(request).tokens, fresh.tokens);
    Wire plain({"--window", "1"});
    EXPECT_EQ(plain.ask(request).tokens, fresh.tokens);
}

TEST(Serve, TellsProbabilitiesWhenAsked) {
    Wire wire;
    wire.send("GEN 2 top=3 17,72,68,43,56");
    int tokens = 0;
    for (std::string line = wire.next(); !line.starts_with("DONE"); line = wire.next()) {
        const Reply reply = parse_reply(line);
        const auto* token = std::get_if<Token>(&reply.what);
        if (!token) continue;
        ++tokens;
        ASSERT_EQ(token->top.size(), 3u);
        EXPECT_EQ(token->top[0].id, token->id);
        EXPECT_EQ(token->p, token->top[0].p);
        EXPECT_GE(token->top[0].p, token->top[1].p);
    }
    EXPECT_EQ(tokens, 2);
}

TEST(Serve, AForcedStopIdEndsTheAnswer) {
    Wire wire;
    const auto got = wire.ask("GEN 10 follow=5,6,7 stop_ids=6 17,72");
    EXPECT_EQ(got.tokens, (std::vector<int32_t>{5, 6}));
    EXPECT_EQ(got.done->finish, "stop");
    EXPECT_EQ(got.done->more.at("stop_id"), "6");
}

TEST(Serve, StopEndsAReadAndTheNextRequestRuns) {
    Wire wire;
    wire.send("GEN 5 " + ids(4000));
    wire.send("STOP");
    const auto stopped = wire.story();
    ASSERT_TRUE(stopped.done);
    EXPECT_EQ(stopped.done->finish, "cancel");
    EXPECT_TRUE(stopped.tokens.empty());
    wire.send("STOP");  // idle: does nothing
    EXPECT_EQ(wire.ask("GEN 5 stop_ids=279 17,72,68,43,56").tokens, (std::vector<int32_t>{43, 128, 159, 212, 50}));
}

TEST(Serve, StopEndsAnAnswer) {
    Wire wire;
    wire.send("GEN 3000 stop_ids=279 17,72,68,43,56");
    std::string line;
    while (!(line = wire.next()).starts_with("T ")) ASSERT_FALSE(line.empty());
    wire.send("STOP");
    const auto rest = [&] {
        Wire::Story s;
        for (line = wire.next(); !line.starts_with("DONE"); line = wire.next()) EXPECT_TRUE(line.starts_with("T "));
        return std::get<Done>(parse_reply(line).what);
    }();
    EXPECT_EQ(rest.finish, "cancel");
    EXPECT_LT(rest.generated, 3000);
}

TEST(Serve, ASecondCommandWaitsForTheFirst) {
    Wire wire;
    wire.send("GEN 3 17,72,68\nGEN 2 5,6\nVRAM default\nGEN 1 9");
    EXPECT_EQ(wire.story().done->prompt_tokens, 3);
    EXPECT_EQ(wire.story().done->prompt_tokens, 2);
    EXPECT_FALSE(wire.story().error.empty());
    EXPECT_EQ(wire.story().done->prompt_tokens, 1);
}

TEST(Serve, StopMeansTheOldestRequestWithoutAName) {
    Wire wire;
    wire.send("GEN 3000 stop_ids=279 17,72,68,43,56\nGEN 2 stop_ids=279 5,6\nSTOP");
    EXPECT_EQ(wire.story().done->finish, "cancel");
    EXPECT_EQ(wire.story().done->finish, "length");
}

TEST(Serve, NamedRequestsRunBesideEachOtherAndGiveWhatTheyGiveAlone) {
    std::vector<std::string> requests;
    for (int i = 1; i <= 6; ++i)
        requests.push_back("GEN 40 stop_ids=279 temperature=0.8 seed=" + std::to_string(i) +
                           " id=" + std::to_string(i) + " " + ids(20 * i, i));
    std::vector<std::vector<int32_t>> alone(7);
    {
        Wire wire({"--window", "1"});
        for (int i = 1; i <= 6; ++i) {
            wire.send(requests[static_cast<size_t>(i - 1)]);
            alone[static_cast<size_t>(i)] = wire.story(static_cast<uint64_t>(i)).tokens;
        }
    }
    Wire wire({"--parallel", "4", "--window", "8", "--guesses", "always"});
    for (const std::string& request : requests) wire.send(request);
    std::vector<std::vector<int32_t>> got(7);
    std::set<uint64_t> open, together;
    for (int ends = 0; ends < 6;) {
        const Reply reply = parse_reply(wire.next());
        ASSERT_TRUE(reply.id && *reply.id >= 1 && *reply.id <= 6);
        if (const auto* token = std::get_if<Token>(&reply.what)) {
            got[*reply.id].push_back(token->id);
            open.insert(*reply.id);
            if (open.size() >= 4) together = open;
        }
        ASSERT_FALSE(std::holds_alternative<Failed>(reply.what));
        if (std::holds_alternative<Done>(reply.what)) {
            open.erase(*reply.id);
            ++ends;
        }
    }
    EXPECT_EQ(got, alone);
    EXPECT_EQ(together.size(), 4u);  // four were written at the same time
}

TEST(Serve, OneOfSeveralCanBeStopped) {
    Wire wire({"--parallel", "2"});
    wire.send("GEN 3000 stop_ids=279 id=7 17,72,68,43,56\nGEN 20 stop_ids=279 id=8 17,72\nSTOP id=7\nSTOP id=99");
    std::map<uint64_t, std::string> finish;
    while (finish.size() < 2) {
        const Reply reply = parse_reply(wire.next());
        if (const auto* done = std::get_if<Done>(&reply.what)) finish[*reply.id] = done->finish;
    }
    EXPECT_EQ(finish[7], "cancel");
    EXPECT_EQ(finish[8], "length");
}

TEST(Serve, AConversationIsSavedAndLoaded) {
    const test::TempFolder folder;
    const std::string file = (folder.path() / "my chat").string();
    Wire first;
    first.send("SAVE " + file);
    EXPECT_NE(first.story().error.find("no conversation"), std::string::npos);
    first.ask("GEN 3 " + ids(100));
    first.send("SAVE " + file);
    EXPECT_EQ(first.next(), "INFO saved_rows=102");
    Wire second;
    second.send("LOAD " + file);
    EXPECT_EQ(second.next(), "INFO loaded_rows=102");
    EXPECT_EQ(second.ask("GEN 3 " + ids(100)).reused, 99);
    second.send("LOAD /nowhere/chat");
    EXPECT_NE(second.story().error.find("/nowhere/chat"), std::string::npos);
}

// ---- pictures
// ---------------------------------------------------------------------------------------------------------------

/// A file of picture rows: a picture is {nx, ny, values}.
struct PictureRows {
    uint32_t nx, ny;
    std::vector<float> values;
};

std::string picture_file(const test::TempFolder& folder, const std::vector<PictureRows>& pictures,
                         uint32_t width = 64) {
    std::string bytes;
    for (const PictureRows& p : pictures) {
        const uint32_t head[5] = {0x31455653, p.nx * p.ny, p.nx, p.ny, width};
        bytes.append(reinterpret_cast<const char*>(head), sizeof head);
        bytes.append(reinterpret_cast<const char*>(p.values.data()), p.values.size() * sizeof(float));
    }
    return folder.file("rows" + std::to_string(pictures.size()) + "_" + std::to_string(bytes.size() + width), bytes);
}

PictureRows picture(uint32_t nx, uint32_t ny, float seed) {
    PictureRows p{nx, ny, {}};
    for (uint32_t i = 0; i < nx * ny * 64; ++i) p.values.push_back(std::sin(seed + static_cast<float>(i)));
    return p;
}

TEST(Pictures, GiveTheFixturesLogits) {
    const test::TempFolder folder;
    const auto reference = nlohmann::json::parse(test::read_file(test::data("qwen35moe/reference.json")));
    const auto c = *std::find_if(reference["cases"].begin(), reference["cases"].end(),
                                 [](const auto& x) { return x["name"] == "picture"; });
    PictureRows p{c["nx"], c["ny"], {}};
    for (const auto& row : c["rows"])
        for (const auto& value : row) p.values.push_back(value);
    std::vector<int> prompt = c["before"];
    prompt.insert(prompt.end(), p.nx * p.ny, 3);
    for (const int id : c["after"]) prompt.push_back(id);
    std::string list;
    for (const int id : prompt) list += (list.empty() ? "" : ",") + std::to_string(id);
    const std::string rows = picture_file(folder, {p});

    std::string whole, whole_hash;
    for (const char* calls : {"512", "7,3,9,7", "1,1,1,1,1,1,1,1,1,1,1,16"}) {
        const std::string path = (folder.path() / "logits").string();
        const auto got = test::run({test::program("strata-poly"), "--model", kTiny, "--device", "cpu", "--tokens", list,
                                    "--picture-rows", rows, "--image-pad", "3", "--max-new", "6", "--logits-out", path,
                                    "--json", "--state-hash", "--read-calls", calls});
        ASSERT_EQ(got.code, 0) << got.err;
        const std::string bytes = test::read_file(path);
        std::vector<float> logits(bytes.size() / sizeof(float));
        std::memcpy(logits.data(), bytes.data(), bytes.size());
        ASSERT_EQ(logits.size(), (prompt.size() + 5) * 280);
        for (const auto& [place, values] : c["logits"].items())
            for (size_t v = 0; v < 280; ++v)
                EXPECT_NEAR(logits[std::stoul(place) * 280 + v], values[v].get<float>(), 0.2) << place;
        const std::string hash = got.out.substr(got.out.find("state_hash"), 30);
        if (whole.empty()) {
            whole = bytes;
            whole_hash = hash;
        }
        EXPECT_TRUE(bytes == whole) << calls;  // cut anywhere, inside the picture too
        EXPECT_EQ(hash, whole_hash) << calls;
    }
}

TEST(Pictures, AreRefusedWhereTheyDoNotFitThePrompt) {
    const test::TempFolder folder;
    Wire wire;
    const std::string one = picture_file(folder, {picture(2, 3, 1)}),
                      two = picture_file(folder, {picture(2, 1, 1), picture(1, 2, 2)});
    const auto error = [&](const std::string& rows, const std::string& prompt) {
        return wire.ask("GENI 2 image_pad=3 " + rows + " " + prompt).error;
    };
    EXPECT_EQ(error(one, "1,3,3,3,3,3,2"), "image 1 has 6 rows but fewer placeholders");
    EXPECT_EQ(error(one, "1,3,3,3,3,3,3,3,2"), "the prompt has more images than the embeddings file");
    EXPECT_EQ(error(two, "1,3,3,2"), "the embeddings file has more images than the prompt");
    EXPECT_EQ(error(one, "1,3,3,3,3,3,3"), "the prompt cannot end in an image");
    EXPECT_NE(error(folder.file("cut", test::read_file(one).substr(0, 100)), "1,3,3,3,3,3,3,2").find("cut short"),
              std::string::npos);
    EXPECT_NE(error(folder.file("text", "hello, this is no file of rows"), "1,3,2").find("no file of picture rows"),
              std::string::npos);
    EXPECT_NE(error(picture_file(folder, {{1, 1, std::vector<float>(32)}}, 32), "1,3,2").find("rows of 32 values"),
              std::string::npos);
    EXPECT_NE(error("/nowhere/rows", "1,3,2").find("/nowhere/rows"), std::string::npos);
    EXPECT_TRUE(wire.ask("GENI 2 image_pad=3 " + one + " 1,3,3,3,3,3,3,2").done);
    EXPECT_TRUE(wire.ask("GENI 2 image_pad=3 " + two + " 1,3,3,3,3,2").done);  // one right after the other
    Wire clover({}, test::data("clover_moe/tiny.gguf"));
    EXPECT_EQ(clover.ask("GENI 2 image_pad=3 " + one + " 1,3,3,3,3,3,3,2").error, "this model reads no pictures");
    EXPECT_EQ(clover.ready.find("pictures"), std::string::npos);
    EXPECT_NE(wire.ready.find("pictures"), std::string::npos);
}

TEST(Pictures, AreComparedByTheirRows) {
    const test::TempFolder folder;
    const std::string a = picture_file(folder, {picture(2, 3, 1)});
    const std::string prompt = "1,2,3,3,3,3,3,3,4,5,6";
    Wire wire;
    const auto first = wire.ask("GENI 4 image_pad=3 stop_ids=279 " + a + " " + prompt);
    EXPECT_EQ(first.reused, 0);
    EXPECT_EQ(wire.ask("GENI 4 image_pad=3 stop_ids=279 " + a + " " + prompt).reused, 10);
    const test::TempFolder other;
    const std::string b = picture_file(other, {picture(2, 3, 2)}),
                      turned = picture_file(folder, {{3, 2, picture(2, 3, 1).values}});
    for (const std::string& file : {b, turned}) {
        const auto got = wire.ask("GENI 4 image_pad=3 stop_ids=279 " + file + " " + prompt);
        EXPECT_EQ(got.reused, 0);
        EXPECT_EQ(got.tokens, wire.ask("GENI 4 cache=0 image_pad=3 stop_ids=279 " + file + " " + prompt).tokens);
    }
    EXPECT_EQ(wire.ask("GEN 4 stop_ids=279 " + prompt).reused, 0);  // the ids alone are another prompt
    // A conversation goes on behind a picture, whose positions are not its rows.
    std::string more = prompt;
    wire.ask("GENI 4 cache=0 image_pad=3 stop_ids=279 " + a + " " + prompt);
    for (const int32_t id : first.tokens) more += "," + std::to_string(id);
    const auto there = wire.ask("GENI 4 image_pad=3 stop_ids=279 " + a + " " + more + ",9");
    EXPECT_EQ(there.reused, 14);
    EXPECT_EQ(there.tokens, wire.ask("GENI 4 cache=0 image_pad=3 stop_ids=279 " + a + " " + more + ",9").tokens);
}

// ---- grammars
// ---------------------------------------------------------------------------------------------------------------

/// A list of numbers of one to three digits in brackets, and an end if `closed`.
std::string numbers_grammar() {
    GrammarBuilder builder;
    const int32_t number = builder.rule("number"), list = builder.rule("list");
    const auto n0 = builder.state(), n1 = builder.state(), n2 = builder.state(), n3 = builder.state();
    builder.byte(n0, '0', '9', n1);
    builder.byte(n1, '0', '9', n2);
    builder.byte(n2, '0', '9', n3);
    builder.link(n1, n3);
    builder.link(n2, n3);
    builder.set_rule(number, n0, n3);
    const auto start = builder.state();
    const auto item = builder.literal(start, "["), after = builder.call(item, number);
    builder.byte(after, ',', ',', item);
    const auto end = builder.literal(after, "]");
    builder.set_rule(list, start, end);
    auto grammar = builder.build(list);
    EXPECT_TRUE(grammar) << grammar.error().message;
    return grammar_text(*grammar);
}

std::string spelled(const std::vector<int32_t>& tokens) {
    static const auto pieces = *token_pieces(*gguf::File::open(kTiny));
    std::string text;
    for (const int32_t id : tokens) text += pieces[static_cast<size_t>(id)];
    return text;
}

TEST(Serve, AGrammarHoldsTheAnswerAndGuessesDoNotChangeIt) {
    const std::string grammar = " grammar=" + numbers_grammar();
    const std::string prompt = " 17,72,68,43,56,17,72,68";
    const std::vector<std::string> requests = {
        "GEN 40" + grammar + " stop_ids=279" + prompt, "GEN 40 temperature=1.2 top_k=0 seed=7" + grammar + prompt,
        "GEN 40 temperature=0.9 seed=8 penalty_last_n=9 penalty_repeat=1.3" + grammar + " stop_ids=" + prompt};
    std::vector<std::vector<int32_t>> plain;
    int right = 0;
    const std::vector<std::vector<std::string>> ways = {{"--window", "1"},
                                                        {"--window", "8", "--guesses", "always"},
                                                        {"--window", "8", "--guesses", "always", "--no-draft"},
                                                        {"--window", "4", "--guesses", "always", "--no-repeats"},
                                                        {}};
    for (const auto& flags : ways) {
        Wire wire(flags);
        EXPECT_NE(wire.ready.find(" grammar"), std::string::npos);
        for (size_t i = 0; i < requests.size(); ++i) {
            const auto got = wire.ask(requests[i]);
            ASSERT_TRUE(got.done) << got.error;
            right += static_cast<int>(got.done->accepted);
            if (&flags == &ways[0]) plain.push_back(got.tokens);
            EXPECT_EQ(got.tokens, plain[i]);
            EXPECT_TRUE(std::regex_match(spelled(got.tokens), std::regex("\\[([0-9]{1,3},)*([0-9]{1,3}\\]?)?")))
                << spelled(got.tokens);
            EXPECT_EQ(got.done->finish == "stop", spelled(got.tokens).ends_with("]"));
        }
    }
    EXPECT_GT(right, 0);
}

TEST(Serve, AnAnswerEndsWithItsGrammar) {
    Wire wire({"--parallel", "2"});
    // Forced tokens come first, whatever they are; the grammar begins behind them.
    const std::string two = " grammar=v2:0:48-49>1;48-49>2;!";
    const auto got = wire.ask("GEN 40 follow=5,6,7" + two + " stop_ids= 17,72,68");
    ASSERT_TRUE(got.done);
    EXPECT_EQ(got.done->finish, "stop");
    ASSERT_GT(got.tokens.size(), 3u);
    EXPECT_EQ(got.tokens[2], 7);
    EXPECT_TRUE(std::regex_match(spelled({got.tokens.begin() + 3, got.tokens.end()}), std::regex("[01]{2}")));
    // The same grammar twice at once, and none beside them.
    wire.send("GEN 40 id=1" + two + " 17,72\nGEN 40 id=2" + two + " 17,72\nSTOP id=9");
    std::map<uint64_t, std::vector<int32_t>> tokens;
    for (int ended = 0; ended < 2;) {
        const Reply reply = parse_reply(wire.next());
        if (const auto* token = std::get_if<Token>(&reply.what)) tokens[*reply.id].push_back(token->id);
        ended += std::holds_alternative<Done>(reply.what);
    }
    EXPECT_EQ(tokens[1], tokens[2]);
    EXPECT_EQ(wire.ask("GEN 5 grammar=v2:0:! 17,72").done->generated, 0);
}

TEST(Serve, DamagedGrammarsAreRefused) {
    Wire wire;
    for (const char* grammar :
         {"", "x", "v2:", "v2:1:!", "v2:0:", "v2:0:9>0", "v2:0:300>0", "v2:0:1>1;!x", "v2:0:@0>0;!", "v2:0:@7>1;!",
          "v2:0:5-3>1;!", "v1:0:!", "v2:0:~4.1~!", "v2:0:~0~!", "v2:0:~0.x~!", "v2:0:1>99999999999;!"}) {
        const auto got = wire.ask(std::string("GEN 5 grammar=") + grammar + " 17,72");
        EXPECT_TRUE(got.error.starts_with("bad request: ")) << grammar << ": " << got.error;
    }
    EXPECT_TRUE(wire.ask("GEN 1 17,72").done);
}

// ---- ends
// -------------------------------------------------------------------------------------------------------------------

TEST(Serve, TheEndOfInputStopsARequestAndEndsCleanly) {
    for (const bool quit : {true, false}) {
        Wire wire;
        wire.send("GEN 3000 stop_ids=279 17,72,68,43,56");
        std::string line;
        while (!(line = wire.next()).starts_with("T ")) ASSERT_FALSE(line.empty());
        if (quit)
            wire.send("QUIT");
        else
            wire.process.input.close();
        while (!(line = wire.next()).starts_with("DONE")) ASSERT_FALSE(line.empty());
        EXPECT_EQ(std::get<Done>(parse_reply(line).what).finish, "cancel");
        EXPECT_EQ(wire.finish(), 0);
    }
}

TEST(Serve, AReaderThatIsGoneEndsIt) {
    Wire wire;
    wire.send("GEN 3000 stop_ids=279 17,72,68,43,56");
    ASSERT_FALSE(wire.next().empty());
    wire.process.output.close();
    EXPECT_EQ(wire.finish(), 0);
}

TEST(Serve, AKilledParentTakesItAlong) {
    int life[2];  // the parent and, as its child, the engine hold the writing end: its last copy closes when both are
                  // gone
    ASSERT_EQ(pipe(life), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        close(life[0]);
        EngineOptions options;
        options.process.command = {
            test::program("strata-poly"), "--model", kTiny, "--device", "cpu", "--threads", "1", "--quiet"};
        auto engine = EngineProcess::start(options);
        if (!engine) _exit(1);
        GenerateRequest request;
        request.prompt = {17, 72, 68};
        request.max_new = 4000;
        request.stop_ids = std::vector<int32_t>{};
        auto generation = (*engine)->submit(request);
        generation->next();
        if (write(life[1], "x", 1) != 1) _exit(1);
        kill(getpid(), SIGKILL);
    }
    close(life[1]);
    char byte;
    ASSERT_EQ(read(life[0], &byte, 1), 1) << "the parent did not come so far";
    EXPECT_EQ(read(life[0], &byte, 1), 0);  // waits for the end of both
    int status = 0;
    waitpid(parent, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    close(life[0]);
}

TEST(Serve, AnInterruptEndsItWithItsCode) {
    Wire wire;
    kill(wire.process.pid(), SIGINT);
    EXPECT_EQ(wire.finish(), 130);
}

TEST(Serve, RandomLinesNeverEndIt) {
    const uint32_t seed = 5;
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Wire wire({"--parallel", "2"});
    const std::vector<std::string> pieces = {
        "GEN",      "GENI",           "STOP",        "VRAM",    "PROFILE",  " save",   " 3",  " 0",
        " id=4",    " id=x",          " 1,2,3",      " top=2",  " top_k=",  "=",       ",",   "\t",
        "\x80\xff", " temperature=1", " follow=1,2", " 999999", " default", "LOAD /x", "SAVE"};
    for (int i = 0; i < 300; ++i) {
        std::string line;
        for (int n = static_cast<int>(random() % 5); n > 0; --n) line += pieces[random() % pieces.size()];
        wire.send(line);
    }
    // A request at the end: all before it were answered.
    wire.send("STOP\nGEN 1 seed=12345 1,2");
    std::string line;
    while (!(line = wire.next()).empty())
        if (line.starts_with("DONE") && line.find("seed=12345") != std::string::npos) break;
    EXPECT_FALSE(line.empty());
    wire.send("QUIT");
    EXPECT_EQ(wire.finish(), 0);
}

}  // namespace
}  // namespace strata
