#include "engine/suffix_index.h"

#include <gtest/gtest.h>
#include <random>

namespace strata {
namespace {

/// The longest end of a text that occurs earlier, by comparing everything.
int64_t longest_by_hand(const std::vector<int32_t>& text) {
    int64_t best = 0;
    const auto n = static_cast<int64_t>(text.size());
    for (int64_t end = n - 1; end > 0; --end) {
        int64_t length = 0;
        while (length < end && text[static_cast<size_t>(end - 1 - length)] == text[static_cast<size_t>(n - 1 - length)])
            ++length;
        best = std::max(best, length);
    }
    return best;
}

void check(const SuffixIndex& index, const std::vector<int32_t>& text) {
    const SuffixIndex::Match match = index.longest_match();
    ASSERT_EQ(match.length, longest_by_hand(text));
    if (match.length == 0) return;
    ASSERT_LT(match.next, static_cast<int64_t>(text.size()));
    for (int64_t i = 1; i <= match.length; ++i)
        ASSERT_EQ(text[static_cast<size_t>(match.next - i)], text[text.size() - static_cast<size_t>(i)]);
}

TEST(SuffixIndex, FindsTheLongestMatchAtEveryStep) {
    for (const uint32_t kinds : {1u, 2u, 3u, 8u}) {
        std::mt19937 random(kinds);
        SuffixIndex index;
        std::vector<int32_t> text;
        for (int i = 0; i < 300; ++i) {
            text.push_back(static_cast<int32_t>(random() % kinds));
            index.append(text.back());
            check(index, text);
        }
    }
}

TEST(SuffixIndex, ACutLeavesNoTrace) {
    const uint32_t seed = 17;
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SuffixIndex index;
    std::vector<int32_t> text;
    for (int trial = 0; trial < 400; ++trial) {
        for (int n = static_cast<int>(random() % 12); n > 0; --n) {
            text.push_back(static_cast<int32_t>(random() % 3));
            index.append(text.back());
            check(index, text);
        }
        const size_t keep = random() % 3 == 0 ? random() % (text.size() + 1) : text.size();
        text.resize(keep);
        index.cut(static_cast<int64_t>(keep));
        ASSERT_EQ(index.size(), static_cast<int64_t>(keep));
        check(index, text);
        // As good as a new one, places included.
        SuffixIndex fresh;
        for (const int32_t token : text) fresh.append(token);
        ASSERT_EQ(fresh.longest_match().next, index.longest_match().next);
    }
}

TEST(SuffixIndex, ThousandsOfTokensComeAndGo) {
    const uint32_t seed = 23;
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SuffixIndex index;
    std::vector<int32_t> text;
    for (const size_t size : {3000, 900, 7000, 6999, 2, 5000, 0, 1500, 9000}) {
        while (text.size() < size) {
            // New words, and passages that come again.
            const size_t from = text.empty() ? 0 : random() % text.size();
            for (size_t i = 0; i < 20 && text.size() < size; ++i) {
                const bool again = !text.empty() && from % 2 == 0;
                text.push_back(again ? text[from + i] : static_cast<int32_t>(random() % 3000));
                index.append(text.back());
            }
            ASSERT_NO_FATAL_FAILURE(check(index, text));
        }
        text.resize(size);
        index.cut(static_cast<int64_t>(size));
        check(index, text);
        SuffixIndex fresh;
        for (const int32_t token : text) fresh.append(token);
        ASSERT_EQ(fresh.longest_match().next, index.longest_match().next);
    }
}

TEST(SuffixIndex, GuessesWhatCameAfterTheLastPlace) {
    SuffixIndex index;
    for (const int32_t token : {1, 2, 3, 4, 1, 2, 3, 9, 1, 2, 3}) index.append(token);
    std::array<int32_t, 3> guesses{};
    ASSERT_EQ(index.guess(guesses), 3);
    // 1 2 3 occurs twice before; the place that was matched last is the second one.
    EXPECT_EQ(guesses, (std::array<int32_t, 3>{9, 1, 2}));
}

TEST(SuffixIndex, APeriodContinuesBeyondTheText) {
    SuffixIndex index;
    for (const int32_t token : {5, 1, 2, 1, 2}) index.append(token);
    std::array<int32_t, 7> guesses{};
    ASSERT_EQ(index.guess(guesses), 7);
    EXPECT_EQ(guesses, (std::array<int32_t, 7>{1, 2, 1, 2, 1, 2, 1}));
}

TEST(SuffixIndex, WithoutAMatchThereIsNoGuess) {
    SuffixIndex index;
    std::array<int32_t, 2> guesses{};
    EXPECT_EQ(index.guess(guesses), 0);
    for (const int32_t token : {1, 2, 3}) index.append(token);
    EXPECT_EQ(index.guess(guesses), 0);
}

}  // namespace
}  // namespace strata
