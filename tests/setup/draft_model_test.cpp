#include "setup/draft_model.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "support/process.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

TEST(FindDraftModel, TakesTheOneThatFitsTheModel) {
    const test::TempFolder folder;
    const auto model = gguf::File::open(test::data("gemma4/tiny.gguf"));
    const auto other = gguf::File::open(test::data("qwen35moe/tiny.gguf"));
    ASSERT_TRUE(model && other);
    EXPECT_EQ(find_draft_model(*model, folder.path()), "");
    folder.file("a-damaged.gguf", "GGUF");
    fs::copy_file(test::data("gemma4/tiny.gguf"), folder.path() / "b-model.gguf");
    fs::copy_file(test::data("gemma4/tiny-assistant.gguf"), folder.path() / "c-draft.gguf");
    EXPECT_EQ(find_draft_model(*model, folder.path()), folder.path() / "c-draft.gguf");
    EXPECT_EQ(find_draft_model(*other, folder.path()), "");
    EXPECT_EQ(find_draft_model(*model, "/nowhere"), "");
}

}  // namespace
}  // namespace strata
