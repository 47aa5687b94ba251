// strata-poly as its users run it: a child process, its output, its exit code.
#include <cstring>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "cpu/simd.h"
#include "support/process.h"

namespace strata {
namespace {

using nlohmann::json;
using test::Finished;

const std::string kTiny = test::data("qwen35moe/tiny.gguf");

std::vector<std::string> command(const std::vector<std::string>& flags) {
    std::vector<std::string> words = {test::program("strata-poly"), "--model", kTiny, "--device", "cpu"};
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
}

Finished poly(const std::vector<std::string>& flags, std::string_view input = {}) {
    return test::run(command(flags), input);
}

/// The objects that --json prints.
std::vector<json> events(const Finished& finished) {
    EXPECT_EQ(finished.code, 0) << finished.err;
    std::vector<json> all;
    std::istringstream lines(finished.out);
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
}

std::vector<int> tokens(const std::vector<json>& events) {
    std::vector<int> ids;
    for (const json& event : events)
        if (event["event"] == "token") ids.push_back(event["token"]);
    return ids;
}

std::string list(const std::vector<int>& ids) {
    std::string text;
    for (const int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
    return text;
}

const json& reference() {
    static const json value = json::parse(test::read_file(test::data("qwen35moe/reference.json")));
    return value;
}

json reference_case(const std::string& name) {
    for (const json& c : reference()["cases"])
        if (c["name"] == name) return c;
    return {};
}

std::vector<std::vector<float>> read_logits(const std::string& path, size_t vocabulary) {
    const std::string bytes = test::read_file(path);
    EXPECT_EQ(bytes.size() % (vocabulary * sizeof(float)), 0u);
    std::vector<std::vector<float>> rows(bytes.size() / (vocabulary * sizeof(float)), std::vector<float>(vocabulary));
    for (size_t i = 0; i < rows.size(); ++i)
        std::memcpy(rows[i].data(), bytes.data() + i * vocabulary * sizeof(float), vocabulary * sizeof(float));
    return rows;
}

// ---- the fixture
// ------------------------------------------------------------------------------------------------------------

TEST(Program, GivesTheFixturesLogitsForEveryTokenEvaluated) {
    const test::TempFolder folder;
    for (const char* name : {"short", "mid", "long"}) {
        const json c = reference_case(name);
        const std::vector<int> ids = c["ids"];
        const std::string path = (folder.path() / name).string();
        const auto got = events(poly({"--tokens", list(ids), "--max-new", "24", "--logits-out", path, "--json"}));
        const std::vector<int> want = c["greedy"];
        EXPECT_EQ(tokens(got), want) << name;
        const auto rows = read_logits(path, 280);
        ASSERT_EQ(rows.size(), ids.size() + 23) << name;
        for (size_t i = 0; i < ids.size(); ++i) {
            const auto largest = std::max_element(rows[i].begin(), rows[i].end()) - rows[i].begin();
            if (c["gap"][i] > 0.1) {
                EXPECT_EQ(largest, c["argmax"][i].get<int>()) << name << " " << i;
            }
        }
        // Row 255 of the long prompt amplifies the noise of eight-bit activations (tests/models/qwen35moe_test.cpp).
        for (const auto& [place, values] : c["logits"].items())
            for (size_t v = 0; v < 280; ++v)
                EXPECT_NEAR(rows[std::stoul(place)][v], values[v].get<float>(), place == "255" ? 0.4 : 0.2)
                    << name << " " << place;
    }
}

TEST(Program, TheSameTokensInCallsOfAnySizeOnAnyThreads) {
    const json mid = reference_case("mid");
    const std::vector<int> ids = mid["ids"];
    ASSERT_EQ(ids.size(), 40u);
    const auto whole =
        events(poly({"--tokens", list(ids), "--max-new", "16", "--json", "--state-hash", "--threads", "1"}));
    for (const std::vector<std::string>& flags : {std::vector<std::string>{"--read-calls", "17,23"},
                                                  {"--read-calls", "40"},
                                                  {"--read-calls", "1,1,1,37"},
                                                  {"--read-calls", "39,1"},
                                                  {"--read-calls", "5,5"},
                                                  {"--threads", "4"},
                                                  {"--threads", "4", "--read-calls", "17,23"},
                                                  {"--prompt-batch", "32"},
                                                  {"--window", "1"},
                                                  {"--window", "8", "--guesses", "always"},
                                                  {"--no-draft"},
                                                  {"--no-repeats"},
                                                  {"--parallel", "4"}}) {
        std::vector<std::string> all = {"--tokens", list(ids), "--max-new", "16", "--json", "--state-hash"};
        all.insert(all.end(), flags.begin(), flags.end());
        const auto got = events(poly(all));
        EXPECT_EQ(tokens(got), tokens(whole)) << testing::PrintToString(flags);
        EXPECT_EQ(got.back()["state_hash"], whole.back()["state_hash"]) << testing::PrintToString(flags);
    }
}

TEST(Program, TheSameBitsOnEveryInstructionSet) {
    const test::TempFolder folder;
    std::string first_logits, first_hash;
    for (const char* simd : {"scalar", "avx2", "avx512"}) {
        if (*cpu::simd_by_name(simd) > cpu::best_simd()) continue;
        const std::string path = (folder.path() / simd).string();
        const auto got = events(poly({"--tokens", list(reference_case("mid")["ids"]), "--max-new", "8", "--json",
                                      "--state-hash", "--simd", simd, "--logits-out", path}));
        const std::string logits = test::read_file(path);
        if (first_logits.empty()) {
            first_logits = logits;
            first_hash = got.back()["state_hash"];
        }
        EXPECT_TRUE(logits == first_logits) << simd;
        EXPECT_EQ(got.back()["state_hash"], first_hash) << simd;
    }
    EXPECT_EQ(first_logits.size(), (40 + 7) * 280 * sizeof(float));
}

// ---- outputs
// ----------------------------------------------------------------------------------------------------------------

TEST(Program, PrintsTheIdsAndNothingElseWithoutJson) {
    const std::vector<int> want = reference_case("short")["greedy"];
    const Finished got = poly({"--tokens", "17,72,68,43,56", "--max-new", "3", "--quiet"});
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.out, std::to_string(want[0]) + " " + std::to_string(want[1]) + " " + std::to_string(want[2]) + "\n");
    EXPECT_EQ(got.err, "");
}

TEST(Program, JsonHasTheFixedFields) {
    const auto got =
        events(poly({"--tokens", "17,72,68,43,56", "--max-new", "3", "--json", "--top", "2", "--state-hash"}));
    ASSERT_EQ(got.size(), 5u);
    for (const char* key : {"architecture", "layers", "device", "load_ms", "experts_total", "experts_cached"})
        EXPECT_TRUE(got[0].contains(key)) << key;
    EXPECT_EQ(got[0]["event"], "ready");
    for (const char* key : {"step", "token", "p", "top", "guessed"}) EXPECT_TRUE(got[1].contains(key)) << key;
    EXPECT_EQ(got[1]["top"].size(), 2u);
    EXPECT_EQ(got[1]["top"][0][0], got[1]["token"]);
    EXPECT_EQ(got[1]["top"][0][1], got[1]["p"]);
    for (const char* key : {"prompt_tokens", "new_tokens", "read_ms", "write_ms", "read_tps", "write_tps",
                            "guesses_offered", "guesses_right", "expert_uses", "expert_hits", "state_hash", "stop"})
        EXPECT_TRUE(got[4].contains(key)) << key;
    EXPECT_EQ(got[4]["stop"], "length");
    EXPECT_EQ(got[4]["new_tokens"], 3);
    EXPECT_EQ(got[4]["expert_uses"], 3 * 6 * 3);  // rows, layers, experts of a row
}

TEST(Program, SaysHowTheAnswerEnded) {
    const auto stop = [&](const std::vector<std::string>& more) {
        std::vector<std::string> flags = {"--tokens", "17,72,68,43,56", "--max-new", "5", "--json"};
        flags.insert(flags.end(), more.begin(), more.end());
        const auto got = events(poly(flags));
        return got.back()["stop"].get<std::string>() + " " + std::to_string(got.back()["new_tokens"].get<int>());
    };
    EXPECT_EQ(stop({}), "length 5");
    EXPECT_EQ(stop({"--follow", "7,266,8"}), "eos 2");  // the file's end id
    EXPECT_EQ(stop({"--follow", "7,8,9", "--stop-ids", "8,20"}), "stop 2");
    EXPECT_EQ(stop({"--follow", "7,266,8,9,10", "--stop-ids", "20"}), "length 5");
}

TEST(Program, OnlyReadsWithNothingNew) {
    const auto got = events(poly({"--tokens", "17,72,68", "--max-new", "0", "--json", "--state-hash"}));
    EXPECT_EQ(got.size(), 2u);
    EXPECT_EQ(got[1]["new_tokens"], 0);
}

TEST(Program, TakesTokensFromAFile) {
    const test::TempFolder folder;
    const std::string file = folder.file("ids", "17, 72\n68\t43,56\n");
    EXPECT_EQ(tokens(events(poly({"--tokens-file", file, "--max-new", "4", "--json"}))),
              tokens(events(poly({"--tokens", "17,72,68,43,56", "--max-new", "4", "--json"}))));
}

TEST(Program, PenaltiesCountTheSameWithGuesses) {
    for (const std::vector<std::string>& penalty : {std::vector<std::string>{"--frequency-penalty", "0.7"},
                                                    {"--presence-penalty", "1.5"},
                                                    {"--repeat-penalty", "1.3"},
                                                    {"--temp", "0.8", "--seed", "3", "--repeat-penalty", "1.1"}}) {
        std::vector<std::string> flags = {
            "--tokens", "7,8,9,10,7,8,9,10,7,8", "--max-new", "64", "--json", "--stop-ids", "279"};
        flags.insert(flags.end(), penalty.begin(), penalty.end());
        auto with = flags;
        flags.insert(flags.end(), {"--window", "1"});
        with.insert(with.end(), {"--window", "8", "--guesses", "always"});
        const auto guessed = events(poly(with));
        EXPECT_EQ(tokens(guessed), tokens(events(poly(flags)))) << testing::PrintToString(penalty);
        EXPECT_GT(guessed.back()["guesses_offered"], 20);
    }
}

TEST(Program, GuessesAreRightWhereTheTextRepeats) {
    const auto got =
        events(poly({"--tokens", "7,8,9,10,7,8,9,10,7,8", "--follow", "9,10,7,8,9,10,7,8,9,10,7,8,9,10,7,8",
                     "--max-new", "16", "--json", "--window", "8", "--guesses", "always", "--no-draft"}));
    EXPECT_GE(got.back()["guesses_right"], 13);
    EXPECT_LE(got.back()["windows"], 3);
}

TEST(Program, SavesAConversationAndGoesOnInAnotherProcess) {
    const test::TempFolder folder;
    const std::string file = (folder.path() / "chat").string();
    const std::vector<int> prompt = reference_case("mid")["ids"];
    const auto first =
        events(poly({"--tokens", list(prompt), "--max-new", "8", "--json", "--save-conversation", file}));
    std::vector<int> more = prompt;
    for (const int id : tokens(first)) more.push_back(id);
    more.push_back(5);
    const auto there =
        events(poly({"--tokens", list(more), "--max-new", "8", "--json", "--state-hash", "--load-conversation", file}));
    const auto fresh = events(poly({"--tokens", list(more), "--max-new", "8", "--json", "--state-hash"}));
    EXPECT_EQ(there.back()["reused"], 47);
    EXPECT_EQ(tokens(there), tokens(fresh));
    EXPECT_EQ(there.back()["state_hash"], fresh.back()["state_hash"]);
    // Another model refuses it.
    const Finished other = test::run({test::program("strata-poly"), "--model", test::data("clover_moe/tiny.gguf"),
                                      "--tokens", "1", "--load-conversation", file});
    EXPECT_EQ(other.code, 3);
    EXPECT_NE(other.err.find("another model"), std::string::npos) << other.err;
}

// ---- what is refused
// --------------------------------------------------------------------------------------------------------

void expect_refusal(const Finished& got, int code, const std::string& part) {
    EXPECT_EQ(got.code, code) << got.err;
    EXPECT_TRUE(got.err.starts_with("strata-poly: ")) << got.err;
    EXPECT_EQ(std::count(got.err.begin(), got.err.end(), '\n'), 1) << got.err;
    EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
}

TEST(Program, RefusesFilesWithCodeThree) {
    const test::TempFolder folder;
    const auto open = [&](const std::string& model) {
        return test::run({test::program("strata-poly"), "--model", model, "--tokens", "1"});
    };
    expect_refusal(open("/nowhere/model.gguf"), 3, "/nowhere/model.gguf");
    const std::string whole = test::read_file(kTiny);
    expect_refusal(open(folder.file("cut.gguf", whole.substr(0, whole.size() - 4096))), 3, "cut.gguf");
    expect_refusal(open(folder.file("head.gguf", whole.substr(0, 100))), 3, "head.gguf");
    expect_refusal(open(folder.file("empty.gguf")), 3, "empty.gguf");
    expect_refusal(open(folder.file("text.gguf", "hello")), 3, "text.gguf");
    expect_refusal(open(folder.path().string()), 3, folder.path().string());
    std::string other = whole;
    for (size_t at = other.find("qwen35moe"); at != std::string::npos && at < 6000; at = other.find("qwen35moe", at))
        other.replace(at, 9, "unknown99");
    expect_refusal(open(folder.file("other.gguf", other)), 3, "unknown99");
}

TEST(Program, RefusesWrongUsageWithCodeTwo) {
    for (const auto& [flags, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--threads", "0"}, "--threads"},
             {{"--threads", "many"}, "--threads"},
             {{"--threads"}, "--threads needs a value"},
             {{"--bogus"}, "--bogus"},
             {{"stray"}, "stray"},
             {{"--json=1"}, "--json takes no value"},
             {{"--max-context", "100"}, "--max-context"},
             {{"--window", "9"}, "--window"},
             {{"--kv", "q4_0"}, "--kv"},
             {{"--device", "tpu"}, "--device"},
             {{"--tokens", ""}, "--tokens"},
             {{"--tokens", "1,two"}, "two"},
             {{"--tokens", "1,-2"}, "-2"},
             {{"--tokens", "280"}, "outside the vocabulary"},
             {{"--tokens", "1", "--follow", "280"}, "outside the vocabulary"},
             {{"--tokens", "1", "--tokens-file", "x"}, "exclude"},
             {{"--tokens", "1", "--max-new", "4088"}, "exceeds the context (4096)"},
             {{"--tokens", "1,2", "--max-context", "256", "--max-new", "247"}, "exceeds the context (256)"},
             {{"--tokens", "1", "--read-calls", "0"}, "--read-calls"},
             {{"--tokens", "1", "--read-calls", "513"}, "--read-calls"},
             {{"--tokens", "1", "--top", "65"}, "--top"},
             {{"--tokens", "1", "--top-p", "0"}, "--top-p"},
             {{"--json"}, "--json needs --tokens"}}) {
        expect_refusal(poly(flags), 2, part);
    }
    expect_refusal(test::run({test::program("strata-poly")}), 2, "--model");
}

TEST(Program, RefusesFilesOfItsFlagsWithCodeThree) {
    expect_refusal(poly({"--tokens-file", "/nowhere/ids"}), 3, "/nowhere/ids");
    expect_refusal(poly({"--tokens", "1", "--logits-out", "/nowhere/logits"}), 3, "/nowhere/logits");
    expect_refusal(poly({"--tokens", "1", "--load-conversation", "/nowhere/chat"}), 3, "/nowhere/chat");
    expect_refusal(poly({"--tokens", "1", "--max-new", "1", "--quiet", "--save-conversation", "/nowhere/chat"}), 3,
                   "/nowhere/chat");
    expect_refusal(poly({"--tokens", "1", "--draft-model", "/nowhere/draft.gguf"}), 3, "/nowhere/draft.gguf");
    expect_refusal(poly({"--tokens", "1", "--draft-model", kTiny}), 3,
                   "architecture 'qwen35moe' is no draft model for 'qwen35moe'");
}

TEST(Program, RefusesWhatNeedsACardWithCodeFour) {
    for (const std::vector<std::string>& flags : {std::vector<std::string>{"--device", "cuda"},
                                                  {"--device", "sim"},
                                                  {"--expert-vram", "2048"},
                                                  {"--expert-vram", "all"},
                                                  {"--vram-reserve-mib", "512"},
                                                  {"--sim-vram-mib", "8"},
                                                  {"--expert-profile", "x"},
                                                  {"--stage-mib", "64"},
                                                  {"--stage-ahead", "64"},
                                                  {"--cpu-share", "auto"},
                                                  {"--tail-skip", "6"},
                                                  {"--skip-weight", "0.1"},
                                                  {"--cache-bias", "1"}})
        expect_refusal(poly(flags), 4, flags[0]);
    // Values that ask for nothing are no reason to refuse.
    EXPECT_EQ(poly({"--tokens", "1", "--max-new", "1", "--expert-vram", "none", "--tail-skip", "0", "--no-swaps",
                    "--serve", "--device", "cpu"})
                  .code,
              0);
}

TEST(Program, OnTheSimulatedCardAnswersAreTheSameAndTellOfTheCache) {
    const std::vector<std::string> asked = {"--tokens", "17,72,68,43,56", "--max-new", "12", "--state-hash", "--json"};
    const auto with = [&](std::vector<std::string> flags) {
        flags.insert(flags.end(), asked.begin(), asked.end());
        return events(poly(flags));
    };
    const auto want = with({});
    for (const char* vram : {"none", "all"}) {
        const auto got = with({"--device", "sim", "--sim-vram-mib", "64", "--expert-vram", vram, "--explain"});
        EXPECT_EQ(tokens(got), tokens(want));
        EXPECT_EQ(got.back()["state_hash"], want.back()["state_hash"]);
        EXPECT_EQ(got.front()["device"], "sim");
        const bool all = std::string(vram) == "all";
        EXPECT_EQ(got.front()["experts_cached"], all ? got.front()["experts_total"] : json(0));
        EXPECT_EQ(got.back()["expert_hits"], all ? got.back()["expert_uses"] : json(0));
        EXPECT_EQ(got.back()["cpu_experts"] == 0, all);
        EXPECT_EQ(got.back()["expert_layers"].size(), 7u);  // six, and the draft block's
    }
    const Finished explained = poly({"--device", "sim", "--sim-vram-mib", "64", "--expert-vram", "none", "--tokens",
                                     "1,2,3", "--max-new", "3", "--explain"});
    EXPECT_NE(explained.err.find("experts on the CPU"), std::string::npos) << explained.err;
}

TEST(Program, TheEnvironmentsTailSkipWinsOverTheFlag) {
    const auto left_out = [&](const char* flag) {
        return events(poly({"--device", "sim", "--sim-vram-mib", "64", "--expert-vram", "none", "--tail-skip", flag,
                            "--tokens", "17,72,68", "--max-new", "3", "--json"}))
            .back()["experts_left_out"]
            .get<int>();
    };
    EXPECT_GT(left_out("1"), 0);
    EXPECT_EQ(left_out("0"), 0);
    setenv("STRATA_ROUTE_TAIL_SKIP", "0", 1);
    EXPECT_EQ(left_out("1"), 0);
    setenv("STRATA_ROUTE_TAIL_SKIP", "1", 1);
    EXPECT_GT(left_out("0"), 0);
    unsetenv("STRATA_ROUTE_TAIL_SKIP");
}

TEST(Program, ACardThatIsTooSmallIsRefusedWithCodeFour) {
    expect_refusal(poly({"--device", "sim"}), 4, "--sim-vram-mib");
    expect_refusal(poly({"--device", "sim", "--sim-vram-mib", "0"}), 4, "on the simulated card");
    const std::vector<std::string> sim = {"--device", "sim", "--sim-vram-mib", "64", "--tokens", "1"};
    const auto with = [&](std::vector<std::string> flags) {
        flags.insert(flags.begin(), sim.begin(), sim.end());
        return poly(flags);
    };
    expect_refusal(with({"--stage-ahead", "0"}), 2, "--stage-ahead");
    expect_refusal(with({"--cache-bias", "1"}), 4, "--cache-bias");
    expect_refusal(with({"--expert-vram", "much"}), 2, "--expert-vram");
    expect_refusal(with({"--cpu-share", "1.5"}), 2, "--cpu-share");
    expect_refusal(with({"--tail-skip", "-1"}), 2, "--tail-skip");
    expect_refusal(with({"--skip-weight", "x"}), 2, "--skip-weight");
    expect_refusal(with({"--stage-mib", "1.5"}), 2, "--stage-mib");
    expect_refusal(with({"--vram-reserve-mib", "-1"}), 2, "--vram-reserve-mib");
}

TEST(Program, HelpNamesEveryFlagWithItsDefault) {
    const Finished got = test::run({test::program("strata-poly"), "--help"});
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.err, "");
    for (const char* flag : {"--model",
                             "--device",
                             "--threads",
                             "--max-context",
                             "--kv",
                             "--expert-vram",
                             "--vram-reserve-mib",
                             "--sim-vram-mib",
                             "--expert-profile",
                             "--no-swaps",
                             "--expert-swaps",
                             "--draft-model",
                             "--no-draft",
                             "--no-repeats",
                             "--window",
                             "--prompt-batch",
                             "--stage-mib",
                             "--stage-ahead",
                             "--cpu-share",
                             "--tail-skip",
                             "--skip-weight",
                             "--cache-bias",
                             "--prompt-cache-every",
                             "--prompt-cache",
                             "--conversation-cache-mib",
                             "--conversation-cache-slots",
                             "--conversation-cache-min-free-mib",
                             "--simd",
                             "--quiet",
                             "--tokens",
                             "--tokens-file",
                             "--max-new",
                             "--stop-ids",
                             "--follow",
                             "--temp",
                             "--top-k",
                             "--top-p",
                             "--min-p",
                             "--repeat-penalty",
                             "--presence-penalty",
                             "--frequency-penalty",
                             "--seed",
                             "--read-calls",
                             "--top",
                             "--logits-out",
                             "--state-hash",
                             "--json"})
        EXPECT_NE(got.out.find("  " + std::string(flag) + " "), std::string::npos) << flag;
    for (const std::string& line : {std::string("(512)"), std::string("(2048)"), std::string("(f16)")})
        EXPECT_NE(got.out.find(line), std::string::npos);
}

}  // namespace
}  // namespace strata
