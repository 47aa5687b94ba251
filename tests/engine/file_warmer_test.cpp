#include "engine/file_warmer.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "gguf/mapping.h"

namespace strata {
namespace {

constexpr size_t kBytes = size_t{9} << 20;

class FileWarmerTest : public testing::Test {
  protected:
    FileWarmerTest() : path_(std::filesystem::temp_directory_path() / ("polystrata-warm-" + std::to_string(getpid()))) {
        std::ofstream(path_) << std::string(kBytes, 'x');
    }
    ~FileWarmerTest() override { std::filesystem::remove(path_); }

    /// Bytes of the mapping at `data` whose pages are in this process.
    static uint64_t mapped_bytes(const std::byte* data) {
        char start[32];
        std::snprintf(start, sizeof start, "%lx-", reinterpret_cast<unsigned long>(data));
        std::ifstream maps("/proc/self/smaps");
        bool found = false;
        for (std::string line; std::getline(maps, line);) {
            found = found || line.starts_with(start);
            if (found && line.starts_with("Rss:")) return std::stoull(line.substr(4)) << 10;
        }
        return 0;
    }

    std::filesystem::path path_;
};

TEST_F(FileWarmerTest, TouchesEveryPageBeforeItCallsBack) {
    const auto file = gguf::Mapping::open(path_);
    ASSERT_TRUE(file.ok());
    const std::byte* data = file->bytes().data();
    ASSERT_EQ(mapped_bytes(data), 0u);
    uint64_t when_called = 0;
    FileWarmer warmer({file->bytes()}, [&] { when_called = mapped_bytes(data); });
    warmer.wait();
    EXPECT_EQ(when_called, kBytes);
}

// What lies at these addresses may not be read at all.
TEST_F(FileWarmerTest, TouchesNothingOfMoreThanTheMachineHas) {
    constexpr size_t kTooMuch = size_t{1} << 44;
    void* memory = mmap(nullptr, kTooMuch, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) GTEST_SKIP() << "no address space of 16 TiB";
    std::atomic<bool> called = false;
    {
        FileWarmer warmer({{static_cast<const std::byte*>(memory), kTooMuch}}, [&] { called = true; });
        warmer.wait();
    }
    munmap(memory, kTooMuch);
    EXPECT_FALSE(called);
}

}  // namespace
}  // namespace strata
