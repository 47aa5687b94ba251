#include "cli/line_buffer.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace strata::cli {
namespace {

std::vector<Key> decode(KeyDecoder& decoder, std::string_view bytes) {
    decoder.feed(bytes);
    std::vector<Key> keys;
    for (Key key; decoder.next(key);) keys.push_back(key);
    return keys;
}

std::vector<Key> decode(std::string_view bytes) {
    KeyDecoder decoder;
    return decode(decoder, bytes);
}

/// What a line holds after these bytes were typed; `|` marks the cursor.
std::string typed(std::string_view bytes, LineBuffer line = {}) {
    for (const Key& key : decode(bytes)) line.apply(key);
    std::string text = line.text();
    return text.insert(line.cursor(), "|");
}

TEST(Keys, SequencesAreOneKey) {
    const struct {
        std::string bytes;
        Key::Kind kind;
    } cases[] = {
        {"\x1b[A", Key::Kind::up},           {"\x1bOB", Key::Kind::down},
        {"\x1b[C", Key::Kind::right},        {"\x1b[1;5D", Key::Kind::word_left},
        {"\x1b[H", Key::Kind::home},         {"\x1b[4~", Key::Kind::end},
        {"\x1b[3~", Key::Kind::remove},      {"\x1b\r", Key::Kind::new_line},
        {"\n", Key::Kind::new_line},         {"\r", Key::Kind::enter},
        {"\x03", Key::Kind::interrupt},      {"\x04", Key::Kind::end_of_input},
        {"\x7f", Key::Kind::backspace},      {"\x1b\x7f", Key::Kind::kill_word},
        {"\x1b[200;9x", Key::Kind::ignored},
    };
    for (const auto& c : cases) {
        const std::vector<Key> keys = decode(c.bytes);
        ASSERT_EQ(keys.size(), 1u) << c.bytes;
        EXPECT_EQ(keys[0].kind, c.kind) << c.bytes;
    }
}

TEST(Keys, BytesMayComeOneByOne) {
    const std::string bytes = "a\xC3\xA9\x1b[1;5D\x1b[200~x\r\ny\x1b[201~\r";
    KeyDecoder decoder;
    std::vector<Key> keys;
    for (const char c : bytes)
        for (Key& key : decode(decoder, std::string(1, c))) keys.push_back(std::move(key));
    ASSERT_EQ(keys.size(), 5u);
    EXPECT_EQ(keys[0].text, "a");
    EXPECT_EQ(keys[1].text, "\xC3\xA9");
    EXPECT_EQ(keys[2].kind, Key::Kind::word_left);
    EXPECT_EQ(keys[3].text, "x\ny");
    EXPECT_EQ(keys[4].kind, Key::Kind::enter);
}

TEST(Keys, PasteKeepsLinesAndDropsControls) {
    const std::vector<Key> keys = decode("\x1b[200~one\rtwo\r\n\tthree\x1b\x07\x1b[201~");
    ASSERT_EQ(keys.size(), 1u);
    EXPECT_EQ(keys[0].text, "one\ntwo\n\tthree");
}

TEST(Keys, LoneEscapeIsGivenUp) {
    KeyDecoder decoder;
    EXPECT_TRUE(decode(decoder, "\x1b").empty());
    decoder.give_up_sequence();
    const std::vector<Key> keys = decode(decoder, "a");
    ASSERT_EQ(keys.size(), 1u);
    EXPECT_EQ(keys[0].text, "a");
}

TEST(Line, EditsAtTheCursor) {
    EXPECT_EQ(typed("helo\x1b[Dl"), "hell|o");
    EXPECT_EQ(typed("one two\x17three"), "one three|");
    EXPECT_EQ(typed("one two\x01\x0b"), "|");
    EXPECT_EQ(typed("one two\x1b[1;5D\x15"), "|two");
    EXPECT_EQ(typed("abc\x1b[H\x1b[3~"), "|bc");
    EXPECT_EQ(typed("abc\x1b[H\x04"), "|bc");
}

TEST(Line, MovesByWholeCharacters) {
    EXPECT_EQ(typed("a\xC3\xA9\x7f"), "a|");                                          // é
    EXPECT_EQ(typed("ae\xCC\x81\x7f"), "a|");                                         // e and a combining accent
    EXPECT_EQ(typed("a\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB\x7f"), "a|");      // a joined emoji
    EXPECT_EQ(typed("\xE4\xBD\xA0\xE5\xA5\xBD\x1b[D"), "\xE4\xBD\xA0|\xE5\xA5\xBD");  // two wide characters
}

TEST(Line, HistoryGivesBackTheLineBeingTyped) {
    LineBuffer line;
    line.remember("first");
    line.remember("second");
    line.remember("second");
    EXPECT_EQ(typed("thi\x1b[A", line), "second|");
    EXPECT_EQ(typed("thi\x1b[A\x1b[A\x1b[A", line), "first|");
    EXPECT_EQ(typed("thi\x1b[A\x1b[A\x1b[B\x1b[B", line), "thi|");
    EXPECT_EQ(typed("thi\x1b[B", line), "thi|");
}

TEST(Line, WidthCountsColumns) {
    EXPECT_EQ(display_width("abc"), 3);
    EXPECT_EQ(display_width("\xE4\xBD\xA0"), 2);
    EXPECT_EQ(display_width("e\xCC\x81"), 1);
    EXPECT_EQ(display_width("\xFF"), 1);
}

}  // namespace
}  // namespace strata::cli
