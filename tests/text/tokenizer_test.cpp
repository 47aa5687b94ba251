// Tokenizers against the fixtures, and the rules that hold for every vocabulary.
#include "text/tokenizer.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>

#include "gguf/file.h"
#include "text/detokenizer.h"
#include "text/unicode.h"
#include "tokenizer_fixtures.h"

namespace strata {
namespace {

Tokenizer load(const std::string& name) {
    auto file = gguf::File::open(fixture_path(name + ".gguf"));
    if (!file.ok()) throw std::runtime_error(file.error().message);
    auto tokenizer = Tokenizer::load(*file);
    if (!tokenizer.ok()) throw std::runtime_error(tokenizer.error().message);
    return std::move(tokenizer).value();
}

const std::vector<std::string> vocabularies = {"bpe-deepseek-llm", "bpe-deepseek-v3", "bpe-glm4",   "bpe-gpt-2",
                                               "bpe-joyai-llm",    "bpe-kolibri1",    "bpe-laguna", "bpe-lfm2",
                                               "bpe-llama-bpe",    "bpe-qwen2",       "bpe-qwen35", "gemma4"};

class Fixture : public testing::TestWithParam<std::string> {
  protected:
    const Tokenizer tokenizer = load(GetParam());
    const nlohmann::json expected = read_json_fixture(GetParam() + ".json");
};

std::string text_of(const nlohmann::json& entry) {
    return entry.contains("hex") ? from_hex(entry["hex"]) : entry["text"].get<std::string>();
}

TEST_P(Fixture, IdsEqualInEveryCase) {
    int checked = 0;
    for (const auto& entry : expected["cases"]) {
        const EncodeOptions options = {.parse_special = entry["parse_special"],
                                       .add_special = entry["add_special"] ? AddSpecial::always : AddSpecial::none};
        EXPECT_EQ(tokenizer.encode(text_of(entry), options), entry["ids"].get<std::vector<int32_t>>())
            << entry["name"] << ": " << text_of(entry);
        ++checked;
    }
    EXPECT_EQ(checked, 86);
}

TEST_P(Fixture, TextOfIdsEqualsInEveryCase) {
    for (const auto& entry : expected["cases"]) {
        const std::vector<int32_t> ids = entry["ids"];
        const std::string text = unicode::replace_invalid(text_of(entry));
        EXPECT_EQ(tokenizer.decode(ids, true), entry.value("detok_all", text)) << entry["name"];
        EXPECT_EQ(tokenizer.decode(ids), entry.value("detok_visible", entry.value("detok_all", text))) << entry["name"];
    }
}

TEST_P(Fixture, PiecesEqualForEveryId) {
    const std::vector<std::string> pieces = expected["pieces_hex"];
    const std::map<std::string, std::string> differing = expected["visible_pieces_differ"];
    ASSERT_EQ(tokenizer.vocab_size(), static_cast<int32_t>(pieces.size()));
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        const std::string shown = from_hex(pieces[static_cast<size_t>(id)]);
        const auto visible = differing.find(std::to_string(id));
        EXPECT_EQ(tokenizer.piece(id, true), shown) << id;
        EXPECT_EQ(tokenizer.piece(id), visible == differing.end() ? shown : from_hex(visible->second)) << id;
    }
}

TEST_P(Fixture, BeginningAndEndsEqual) {
    const auto id = [&](const char* key) {
        return expected[key].is_null() ? std::optional<int32_t>() : expected[key].get<int32_t>();
    };
    EXPECT_EQ(tokenizer.bos(), id("bos"));
    EXPECT_EQ(tokenizer.eos(), id("eos"));
    EXPECT_EQ(tokenizer.adds_bos(), expected["add_bos"].get<bool>());
    EXPECT_EQ(tokenizer.adds_eos(), expected["add_eos"].get<bool>());
    EXPECT_EQ(tokenizer.end_of_generation(), expected["end_of_generation"].get<std::vector<int32_t>>());
    for (const int32_t end : tokenizer.end_of_generation()) EXPECT_TRUE(tokenizer.is_end_of_generation(end));
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Fixture, testing::ValuesIn(vocabularies), [](const auto& parameter) {
    std::string name = parameter.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

}  // namespace
}  // namespace strata
