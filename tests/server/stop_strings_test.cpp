#include "server/stop_strings.h"

#include <gtest/gtest.h>

namespace strata::server {
namespace {

struct Outcome {
    std::string text, found;
    bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
    StopStrings reader(stops);
    Outcome out;
    for (const std::string& piece : pieces)
        if (reader.push(piece, out.text)) {
            out.found = reader.found();
            return out;
        }
    out.text += reader.finish();
    return out;
}

TEST(StopStrings, EveryCutOfTheTextGivesTheSame) {
    const std::string text = "one two three END four";
    for (size_t size = 1; size <= text.size(); ++size) {
        std::vector<std::string> pieces;
        for (size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
        EXPECT_EQ(run({"END", "never"}, pieces), (Outcome{"one two three ", "END"})) << size;
    }
}

TEST(StopStrings, EarliestEndWinsThenTheLongest) {
    EXPECT_EQ(run({"bcd", "c"}, {"abcd"}), (Outcome{"ab", "c"}));
    EXPECT_EQ(run({"c", "bc"}, {"abcd"}), (Outcome{"a", "bc"}));
}

TEST(StopStrings, WhatOnlyBeganIsTextAtTheEnd) {
    EXPECT_EQ(run({"END"}, {"the EN"}), (Outcome{"the EN", ""}));
    EXPECT_EQ(run({"aab"}, {"aa", "aa"}), (Outcome{"aaaa", ""}));
    EXPECT_EQ(run({"aab"}, {"aa", "ab", "x"}), (Outcome{"a", "aab"}));
}

TEST(StopStrings, NothingIsHeldBackThatCannotBecomeOne) {
    StopStrings reader({"END"});
    std::string out;
    reader.push("a E b", out);
    EXPECT_EQ(out, "a E b");
}

}  // namespace
}  // namespace strata::server
