// The engine's own reading of a vocabulary (grammar/vocabulary.h) against the tokenizer's.
#include <filesystem>
#include <gtest/gtest.h>

#include "gguf/file.h"
#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace strata {
namespace {

TEST(TokenPieces, AreTheTokenizersBytesInEveryVocabulary) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(POLYSTRATA_TEST_DATA) / "tokenizer")) {
        if (entry.path().extension() != ".gguf") continue;
        SCOPED_TRACE(entry.path().filename());
        ++files;
        const auto file = gguf::File::open(entry.path());
        ASSERT_TRUE(file.ok()) << file.error().message;
        const auto pieces = token_pieces(*file);
        ASSERT_TRUE(pieces.ok()) << pieces.error().message;
        const auto tokenizer = Tokenizer::load(*file);
        ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
        ASSERT_EQ(pieces->size(), static_cast<size_t>(tokenizer->vocab_size()));
        for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
            // Whatever ends a reply is control for the tokenizer; a mask is told which ids those are.
            if (tokenizer->is_end_of_generation(id)) continue;
            EXPECT_EQ((*pieces)[static_cast<size_t>(id)], tokenizer->piece(id)) << "id " << id;
        }
    }
    EXPECT_GT(files, 10);
}

}  // namespace
}  // namespace strata
