// strata-poly with a draft model from a file of its own, and with pictures whose rows see each other.
#include <cstring>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/process.h"

namespace strata {
namespace {

using nlohmann::json;

const std::string kModel = test::data("gemma4/tiny.gguf"), kDraft = test::data("gemma4/tiny-assistant.gguf");

test::Finished poly(const std::vector<std::string>& flags) {
    std::vector<std::string> words = {test::program("strata-poly"), "--model", kModel, "--device", "cpu", "--json"};
    words.insert(words.end(), flags.begin(), flags.end());
    return test::run(words);
}

struct Said {
    json ready, done;
    std::vector<int> tokens;
};

Said answer(const std::vector<std::string>& flags) {
    const test::Finished finished = poly(flags);
    EXPECT_EQ(finished.code, 0) << finished.err;
    Said said;
    std::istringstream lines(finished.out);
    for (std::string line; std::getline(lines, line);) {
        const json event = json::parse(line);
        if (event["event"] == "ready") said.ready = event;
        if (event["event"] == "token") said.tokens.push_back(event["token"]);
        if (event["event"] == "done") said.done = event;
    }
    return said;
}

json reference(const std::string& name) {
    static const json all = json::parse(test::read_file(test::data("gemma4/reference.json")));
    for (const json& c : all["cases"])
        if (c["name"] == name) return c;
    return {};
}

std::string list(const std::vector<int>& ids) {
    std::string text;
    for (const int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
    return text;
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST(DraftModel, GuessesChangeNeitherTokensNorState) {
    const std::string prompt = list(reference("mid")["segments"][0]["tokens"]);
    const std::vector<int> greedy = reference("mid")["greedy"];
    for (const std::vector<std::string>& sampling :
         {std::vector<std::string>{}, {"--temp", "0.9", "--seed", "11"}, {"--temp", "1.5", "--seed", "5"}}) {
        const std::vector<std::string> flags =
            std::vector<std::string>{"--tokens", prompt, "--max-new", "24", "--state-hash"} + sampling;
        const Said plain = answer(flags + std::vector<std::string>{"--no-repeats"});
        if (sampling.empty()) {
            EXPECT_EQ(plain.tokens, greedy);
        }
        int right = 0;
        for (const char* window : {"2", "4", "8"})
            for (const std::vector<std::string>& more : {std::vector<std::string>{"--no-repeats"}, {}}) {
                const Said guessed = answer(
                    flags + more +
                    std::vector<std::string>{"--draft-model", kDraft, "--guesses", "always", "--window", window});
                EXPECT_EQ(guessed.tokens, plain.tokens);
                EXPECT_EQ(guessed.done["state_hash"], plain.done["state_hash"]);
                EXPECT_GT(guessed.done["guesses_offered"], 0);
                right += guessed.done["guesses_right"].get<int>();
            }
        EXPECT_GT(right, 0);
    }
}

TEST(DraftModel, IsNamedWhereTheEngineSaysWhatItIs) {
    const std::vector<std::string> flags = {"--tokens", "2,5", "--max-new", "1", "--draft-model", kDraft};
    EXPECT_EQ(answer(flags).ready["draft"], "model");
    EXPECT_EQ(answer(flags + std::vector<std::string>{"--no-draft"}).ready["draft"], "none");
    EXPECT_EQ(answer({"--tokens", "2,5", "--max-new", "1"}).ready["draft"], "none");
}

TEST(DraftModel, ThatFitsAnotherModelIsRefusedWithCodeThree) {
    for (const std::string& other : {kModel, test::data("qwen35moe/tiny.gguf")}) {
        const test::Finished got = poly({"--tokens", "2,5", "--draft-model", other});
        EXPECT_EQ(got.code, 3);
        EXPECT_NE(got.err.find("is no draft model for 'gemma4'"), std::string::npos) << got.err;
    }
}

// ---- pictures that go through in one call
// -------------------------------------------------------------------------------------

struct PicturePrompt {
    std::string tokens;
    std::string rows;  // file
};

/// The fixture's prompt, with the placeholder 3 for every row of its picture.
PicturePrompt picture_prompt(const test::TempFolder& folder) {
    const json segments = reference("picture")["segments"];
    std::vector<int> ids = segments[0]["tokens"];
    const uint32_t rows = segments[1]["rows"];
    ids.insert(ids.end(), rows, 3);
    for (const int id : segments[2]["tokens"]) ids.push_back(id);
    const uint32_t head[5] = {0x31455653, rows, rows, 1, 96};
    std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
    bytes += test::read_file(test::data("gemma4/picture.f32"));
    return {list(ids), folder.file("rows", bytes)};
}

TEST(WholePictures, GiveTheFixturesLogitsInCallsOfAnySize) {
    const test::TempFolder folder;
    const PicturePrompt prompt = picture_prompt(folder);
    const json c = reference("picture");
    std::string whole, hash;
    for (const char* calls : {"512", "9,30,8", "3,17,5,9", "20,20,20"}) {
        const std::string path = (folder.path() / "logits").string();
        const Said got = answer({"--tokens", prompt.tokens, "--picture-rows", prompt.rows, "--image-pad", "3",
                                 "--max-new", "24", "--logits-out", path, "--state-hash", "--read-calls", calls,
                                 "--draft-model", kDraft, "--guesses", "always"});
        EXPECT_EQ(got.tokens, c["greedy"].get<std::vector<int>>()) << calls;
        const std::string bytes = test::read_file(path);
        std::vector<float> logits(bytes.size() / sizeof(float));
        std::memcpy(logits.data(), bytes.data(), bytes.size());
        ASSERT_GE(logits.size(), size_t{47} * 291);
        for (const auto& [place, values] : c["logits"].items())
            for (size_t v = 0; v < 291; ++v)
                EXPECT_NEAR(logits[std::stoul(place) * 291 + v], values[v].get<float>(), 0.08) << place;
        const std::string prompt_bytes = bytes.substr(0, size_t{47} * 291 * sizeof(float));
        if (whole.empty()) {
            whole = prompt_bytes;
            hash = got.done["state_hash"];
        }
        EXPECT_TRUE(prompt_bytes == whole) << calls;
        EXPECT_EQ(got.done["state_hash"], hash) << calls;
    }
}

TEST(WholePictures, LargerThanACallAreRefused) {
    const test::TempFolder folder;
    const uint32_t head[5] = {0x31455653, 33, 33, 1, 96};
    std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
    bytes.resize(bytes.size() + size_t{33} * 96 * sizeof(float));
    std::vector<int> ids(35, 3);
    ids.front() = ids.back() = 5;
    const test::Finished got = poly({"--tokens", list(ids), "--picture-rows", folder.file("rows", bytes), "--image-pad",
                                     "3", "--max-new", "1", "--prompt-batch", "32"});
    EXPECT_EQ(got.code, 2);
    EXPECT_NE(got.err.find("an image of 33 rows does not fit a call of 32 rows (--prompt-batch)"), std::string::npos)
        << got.err;
}

}  // namespace
}  // namespace strata
