#include "text/utf8.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Utf8, RefusesOverlongFormsSurrogatesAndWhatLiesBeyond) {
    for (std::string_view text : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                                  "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xE2\x82"}) {
        CodePoint point = decode_utf8(text, 0);
        EXPECT_FALSE(point.valid);
        EXPECT_EQ(point.size, 1u);
    }
}

TEST(Utf8, EveryCodePointReadsBackAsWritten) {
    for (uint32_t value = 0; value < 0x110000; value += value < 0x800 ? 1 : 7) {
        if (value >= 0xD800 && value < 0xE000) continue;
        std::string text;
        append_utf8(text, value);
        CodePoint point = decode_utf8(text, 0);
        ASSERT_TRUE(point.valid);
        ASSERT_EQ(point.value, value);
        ASSERT_EQ(point.size, text.size());
    }
}

TEST(Utf8, CutCountsTheBytesOfAnUnfinishedCodePoint) {
    EXPECT_EQ(utf8_cut("abc"), 0u);
    EXPECT_EQ(utf8_cut("é"), 0u);
    EXPECT_EQ(utf8_cut("a\xC3"), 1u);
    EXPECT_EQ(utf8_cut("\xF0\x9F\x98"), 3u);
    EXPECT_EQ(utf8_cut("\xF0\x9F\x98\x80"), 0u);
    EXPECT_EQ(utf8_cut("\x80\x80\x80"), 0u);
    EXPECT_EQ(utf8_cut("\xFF"), 0u);
    EXPECT_EQ(utf8_cut(""), 0u);
}

}  // namespace
}  // namespace strata
