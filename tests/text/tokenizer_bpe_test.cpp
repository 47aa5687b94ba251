// Merging: the fast ways against the rule itself.
#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <string>

#include "text/bpe.h"
#include "text/bpe_joints.h"

namespace strata {
namespace {

std::vector<Symbol> symbols_of(const std::vector<int32_t>& ids) {
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < ids.size(); ++i) symbols.push_back({ids[i], static_cast<uint32_t>(i)});
    return symbols;
}

std::vector<std::pair<int32_t, uint32_t>> plain(const std::vector<Symbol>& symbols) {
    std::vector<std::pair<int32_t, uint32_t>> result;
    for (const Symbol& symbol : symbols) result.emplace_back(symbol.id, symbol.begin);
    return result;
}

/// The rule as it is stated: the lowest rank, the leftmost of equal ones, one after another.
void merge_by_the_rule(const MergeTable& table, std::vector<Symbol>& symbols) {
    while (true) {
        uint32_t lowest = MergeTable::no_rank;
        size_t best = 0;
        for (size_t i = 0; i + 1 < symbols.size(); ++i) {
            const uint32_t rank = table.find(symbols[i].id, symbols[i + 1].id).rank;
            if (rank < lowest) lowest = rank, best = i;
        }
        if (lowest == MergeTable::no_rank) return;
        symbols[best].id = table.find(symbols[best].id, symbols[best + 1].id).joined;
        symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
}

/// Merges of random pairs in random order: new symbols may be used by merges of lower rank than those that make them,
/// and several merges may make one symbol, as real vocabularies have it.
MergeTable random_table(std::mt19937& random, int32_t letters, int32_t merges) {
    MergeTable table(static_cast<size_t>(merges));
    std::vector<uint32_t> ranks(static_cast<size_t>(merges));
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<uint32_t>(i);
    if (random() % 2) std::shuffle(ranks.begin(), ranks.end(), random);
    int32_t symbols = letters;
    for (const uint32_t rank : ranks) {
        const auto left = static_cast<int32_t>(random() % static_cast<uint32_t>(symbols));
        const auto right = static_cast<int32_t>(random() % static_cast<uint32_t>(symbols));
        const bool new_symbol = symbols == letters || random() % 4 != 0;
        const int32_t joined =
            new_symbol ? symbols : letters + static_cast<int32_t>(random() % static_cast<uint32_t>(symbols - letters));
        if (table.add(left, right, rank, joined) && new_symbol) ++symbols;
    }
    return table;
}

TEST(Merging, EveryWayGivesWhatTheRuleGives) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Merger merger;
    int equal_merged = 0;
    for (int round = 0; round < 3000; ++round) {
        const auto letters = static_cast<int32_t>(1 + random() % 4);
        const MergeTable table = random_table(random, letters, static_cast<int32_t>(1 + random() % 40));
        std::vector<int32_t> ids(2 + random() % 120);
        for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(letters));
        if (letters > 2 && random() % 4 == 0) ids[random() % ids.size()] = -1;  // a character that is no symbol

        auto expected = symbols_of(ids), by_short = expected, by_long = expected, by_choice = expected;
        merge_by_the_rule(table, expected);
        Merger::merge_short(table, by_short);
        merger.merge_long(table, by_long);
        merger.merge(table, by_choice);
        ASSERT_EQ(plain(by_short), plain(expected));
        ASSERT_EQ(plain(by_long), plain(expected));
        ASSERT_EQ(plain(by_choice), plain(expected));

        auto equal = symbols_of(std::vector<int32_t>(ids.size(), 0)), by_runs = equal;
        merge_by_the_rule(table, equal);
        if (Merger::merge_equal(table, by_runs)) {
            ++equal_merged;
            ASSERT_EQ(plain(by_runs), plain(equal));
        }
    }
    EXPECT_GT(equal_merged, 1000);
}

TEST(Merging, FirstOfTwoMergesOfOnePairCounts) {
    MergeTable table(2);
    EXPECT_TRUE(table.add(1, 2, 0, 3));
    EXPECT_FALSE(table.add(1, 2, 1, 4));
    EXPECT_EQ(table.find(1, 2).joined, 3);
    EXPECT_EQ(table.find(2, 1).rank, MergeTable::no_rank);
    EXPECT_EQ(table.find(-1, -1).rank, MergeTable::no_rank);
}

bool may_join(const Joints& joints, const std::string& left, const std::string& right) {
    const std::string text = left + right;
    const char* at = text.data() + left.size();
    return joints.may_join(decode_utf8(text, 0), decode_utf8(at, text.data() + text.size()), at);
}

TEST(Joints, ArePlacesThatSomeMergeCrosses) {
    Joints joints;
    joints.add("he", "l");
    joints.add("\xE4\xBD\xA0", "\xE5\xA5\xBD");  // two whole characters
    joints.add("x\xE5", "\xA5\xBD");             // joins inside a character: crosses no place between two
    EXPECT_TRUE(may_join(joints, "e", "l"));
    EXPECT_FALSE(may_join(joints, "l", "e"));
    EXPECT_FALSE(may_join(joints, "x", "\xE5\xA5\xBD"));
    EXPECT_TRUE(may_join(joints, "\xE4\xBD\xA0", "\xE5\xA5\xBD"));
    EXPECT_FALSE(may_join(joints, "\xE5\xA5\xBD", "\xE4\xBD\xA0"));
}

TEST(Joints, KnowSymbolsThatHoldOnlyAPartOfACharacter) {
    Joints joints;
    joints.add("\xA0", "\xE5\xA5\xBD");  // the end of any character that ends with A0
    joints.add(" ", "\xF0\x9F");
    EXPECT_TRUE(may_join(joints, "\xE4\xBD\xA0", "\xE5\xA5\xBD"));
    EXPECT_FALSE(may_join(joints, "\xE4\xBD\xA1", "\xE5\xA5\xBD"));
    EXPECT_TRUE(may_join(joints, " ", "\xF0\x9F\x98\x80"));
    EXPECT_FALSE(may_join(joints, "x", "\xF0\x9F\x98\x80"));
}

TEST(Joints, BytesThatAreNotUtf8AreNeverCutOff) {
    const Joints joints;
    EXPECT_TRUE(may_join(joints, "\xFF", "a"));
    EXPECT_TRUE(may_join(joints, "\xFF", "\x80"));
    EXPECT_FALSE(may_join(joints, "b", "a"));
}

TEST(Joints, ManyPairsAreAllFound) {
    Joints joints;
    const auto character = [](uint32_t c) {
        std::string text;
        append_utf8(text, c);
        return text;
    };
    for (uint32_t c = 0x4E00; c < 0x4E00 + 5000; ++c) joints.add(character(c), character(c + 1));
    for (uint32_t c = 0x4E00; c < 0x4E00 + 5000; ++c) {
        ASSERT_TRUE(may_join(joints, character(c), character(c + 1)));
        ASSERT_FALSE(may_join(joints, character(c), character(c + 2)));
    }
}

}  // namespace
}  // namespace strata
