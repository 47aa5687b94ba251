// Text that may be sent after each token.
#include <gtest/gtest.h>
#include <random>

#include "gguf/file.h"
#include "text/detokenizer.h"
#include "tokenizer_fixtures.h"

namespace strata {
namespace {

TEST(Utf8Stream, SendsWhatTheFixtureSaysAfterEachPiece) {
    int checked = 0;
    for (const auto& entry : read_json_fixture("stream_utf8.json")) {
        Utf8Stream stream;
        for (size_t i = 0; i < entry["pieces_hex"].size(); ++i) {
            std::string text;
            stream.push(from_hex(entry["pieces_hex"][i]), text);
            EXPECT_EQ(text, entry["sent_after_each"][i].get<std::string>()) << entry["name"] << " piece " << i;
        }
        std::string rest;
        EXPECT_EQ(stream.holds_back(), !entry["sent_at_end"].get<std::string>().empty()) << entry["name"];
        stream.finish(rest);
        EXPECT_EQ(rest, entry["sent_at_end"].get<std::string>()) << entry["name"];
        EXPECT_FALSE(stream.holds_back());
        ++checked;
    }
    EXPECT_GE(checked, 19);
}

TEST(Utf8Stream, SendsTheSameTextHoweverBytesArrive) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<std::string> all;
    for (const auto& entry : read_json_fixture("stream_utf8.json")) {
        std::string bytes;
        for (const auto& piece : entry["pieces_hex"]) bytes += from_hex(piece);
        all.push_back(bytes);
    }
    for (int i = 0; i < 500; ++i) all.push_back(random_bytes(random, random() % 30) + random_text(random, 3));
    for (const std::string& bytes : all) {
        std::string whole, single, pieces;
        Utf8Stream stream;
        stream.push(bytes, whole);
        stream.finish(whole);
        for (const char byte : bytes) stream.push({&byte, 1}, single);
        stream.finish(single);
        for (size_t at = 0; at < bytes.size();) {
            const size_t size = random() % 4;
            stream.push(std::string_view(bytes).substr(at, size), pieces);
            at += size;
        }
        stream.finish(pieces);
        ASSERT_EQ(single, whole);
        ASSERT_EQ(pieces, whole);
    }
}

TEST(Detokenizer, ShowsMarkersThatItWasToldToShow) {
    auto file = gguf::File::open(fixture_path("bpe-lfm2.gguf"));
    ASSERT_TRUE(file.ok());
    auto tokenizer = Tokenizer::load(*file);
    ASSERT_TRUE(tokenizer.ok());
    const int32_t start = *tokenizer->token_id("<|tool_call_start|>"), end = *tokenizer->token_id("<|im_end|>");
    Detokenizer plain(*tokenizer), showing(*tokenizer), all(*tokenizer, true);
    showing.show(start);
    EXPECT_EQ(plain.push(start), "");
    EXPECT_EQ(showing.push(start), "<|tool_call_start|>");
    EXPECT_EQ(showing.push(end), "");
    EXPECT_EQ(all.push(end), "<|im_end|>");
}

}  // namespace
}  // namespace strata
