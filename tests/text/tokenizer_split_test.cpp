// The split rules and the character classes under them.
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "text/pretokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "tokenizer_fixtures.h"

namespace strata {
namespace {

TEST(UnicodeClasses, EqualTheListOfUnicode15_1) {
    std::vector<uint8_t> wanted(unicode::last_code_point + 1, 0);
    std::istringstream lines(read_fixture("unicode_classes.txt"));
    std::string line;
    int ranges = 0;
    while (std::getline(lines, line)) {
        if (line.empty() || line[0] == '#') continue;
        uint32_t first = 0, last = 0;
        char category = 0;
        ASSERT_EQ(std::sscanf(line.c_str(), "%x-%x %c", &first, &last, &category), 3) << line;
        const size_t bit = std::string("LMNPS").find(category);
        if (bit == std::string::npos) continue;
        ++ranges;
        for (uint32_t c = first; c <= last; ++c) wanted[c] = static_cast<uint8_t>(1u << bit);
    }
    EXPECT_GT(ranges, 1000);
    constexpr uint8_t categories = 31;
    for (uint32_t c = 0; c <= unicode::last_code_point; ++c)
        ASSERT_EQ(unicode::classes()[c] & categories, wanted[c]) << "U+" << std::hex << c;
}

TEST(UnicodeClasses, WhiteSpaceIsTheSetOfTheSplitRules) {
    std::vector<uint32_t> found;
    for (uint32_t c = 0; c <= unicode::last_code_point; ++c)
        if (unicode::classes()[c] & unicode::white_space) found.push_back(c);
    const std::vector<uint32_t> wanted = {0x09,   0x0A,   0x0B,   0x0C,   0x0D,   0x20,   0x85,   0xA0,   0x1680,
                                          0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                          0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    EXPECT_EQ(found, wanted);
}

/// Piece lengths in code points.
std::vector<int64_t> lengths(SplitRule rule, const std::string& text) {
    std::vector<int64_t> result;
    size_t begin = 0;
    for (const size_t end : split(rule, text)) {
        result.push_back(static_cast<int64_t>(utf8_length(std::string_view(text).substr(begin, end - begin))));
        begin = end;
    }
    return result;
}

TEST(Split, GivesThePiecesOfTheFixturesUnderEveryRule) {
    const nlohmann::json fixture = read_json_fixture("splits.json");
    const std::vector<std::string> kinds = fixture["kinds"];
    int checked = 0;
    for (const auto& row : fixture["cases"]) {
        const std::string text = row[0];
        for (size_t k = 0; k < kinds.size(); ++k) {
            if (kinds[k] == "gemma4") continue;  // no split rule of this kind: tokenizer_test.cpp
            const PreTokenizer* pre = find_pre_tokenizer(kinds[k]);
            ASSERT_NE(pre, nullptr) << kinds[k];
            EXPECT_EQ(lengths(pre->rule, text), row[k + 1].get<std::vector<int64_t>>()) << kinds[k] << ": " << text;
            ++checked;
        }
    }
    EXPECT_EQ(checked, 8 * 298);
}

TEST(Split, TakesEveryByteOfAnyInput) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int round = 0; round < 300; ++round) {
        const std::string text = round % 2 ? random_bytes(random, random() % 80) : random_text(random, 30);
        for (const SplitRule rule : {SplitRule::qwen2, SplitRule::qwen35, SplitRule::llama_bpe, SplitRule::deepseek_v3,
                                     SplitRule::deepseek_llm, SplitRule::gpt2, SplitRule::laguna}) {
            size_t last = 0;
            for (const size_t end : split(rule, text)) {
                ASSERT_GT(end, last);
                last = end;
            }
            ASSERT_EQ(last, text.size());
        }
    }
}

TEST(Split, GivesTheSamePiecesOfATextCutAtACertainEdge) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    int cuts = 0;
    for (int round = 0; round < 2000; ++round) {
        const std::string text = random_text(random, 12) + (round % 2 ? "\nx" : " \n\nx") + random_text(random, 3);
        for (const SplitRule rule : {SplitRule::qwen2, SplitRule::qwen35, SplitRule::llama_bpe, SplitRule::deepseek_v3,
                                     SplitRule::deepseek_llm, SplitRule::gpt2, SplitRule::laguna}) {
            const size_t edge = certain_edge(rule, text, random() % text.size());
            std::vector<size_t> ends = split(rule, text.substr(0, edge));
            for (const size_t end : split(rule, text.substr(edge))) ends.push_back(edge + end);
            ASSERT_EQ(ends, split(rule, text)) << text << " cut at " << edge;
            cuts += edge < text.size();
        }
    }
    EXPECT_GT(cuts, 2000);
}

TEST(Split, AddsToWhatTheCallerHas) {
    std::vector<size_t> ends = {99}, scratch;
    split(SplitRule::deepseek_v3, "ab 12", ends, scratch);
    EXPECT_EQ(ends, (std::vector<size_t>{99, 2, 3, 5}));
    split(SplitRule::qwen2, "", ends, scratch);
    EXPECT_EQ(ends.size(), 4u);
}

TEST(Split, NamesInMessagesAreTheNamesThatAreFound) {
    std::istringstream names(pre_tokenizer_names());
    std::string name;
    int count = 0;
    while (std::getline(names >> std::ws, name, ',')) {
        EXPECT_NE(find_pre_tokenizer(name), nullptr) << name;
        ++count;
    }
    EXPECT_GE(count, 28);
    EXPECT_EQ(find_pre_tokenizer("qwen"), nullptr);
    EXPECT_EQ(find_pre_tokenizer(""), nullptr);
}

}  // namespace
}  // namespace strata
