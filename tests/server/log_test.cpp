#include "server/log.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "support/process.h"

namespace strata::server {
namespace {

TEST(Log, FileIsRotatedAndTheOldestGoes) {
    const test::TempFolder folder;
    const auto file = folder.path() / "server.log";
    {
        auto log = Log::open({.level = LogLevel::info, .file = file, .file_bytes = 2000, .files = 2});
        ASSERT_TRUE(log);
        for (int i = 0; i < 200; ++i) (*log)->info("line " + std::to_string(i) + " of many");
    }
    std::string all;
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        EXPECT_LE(entry.file_size(), 2000u) << entry.path();
        all += test::read_file(entry.path());
        ++files;
    }
    EXPECT_EQ(files, 3u);  // the newest and two older ones
    EXPECT_NE(test::read_file(file).find("line 199 of many"), std::string::npos);
    EXPECT_EQ(all.find("line 0 of many"), std::string::npos);
}

TEST(Log, LinesCannotForgeOthersAndLevelsAreKept) {
    const test::TempFolder folder;
    const auto file = folder.path() / "server.log";
    {
        auto log = Log::open({.level = LogLevel::warning, .file = file});
        ASSERT_TRUE(log);
        (*log)->info("not told");
        (*log)->warning("first\n2026-01-01 error second");
    }
    const std::string text = test::read_file(file);
    EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
    EXPECT_EQ(text.find("not told"), std::string::npos);
}

TEST(Log, FileThatCannotBeWrittenIsSaid) {
    const auto log = Log::open({.file = "/proc/none/server.log"});
    ASSERT_FALSE(log);
    EXPECT_NE(log.error().message.find("/proc/none/server.log"), std::string::npos);
}

}  // namespace
}  // namespace strata::server
