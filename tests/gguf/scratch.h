// A folder for a test's files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace strata::gguf {

/// A new empty folder that is gone after the test.
class Scratch {
  public:
    Scratch() {
        std::string pattern = (std::filesystem::temp_directory_path() / "strata-gguf-XXXXXX").string();
        path_ = ::mkdtemp(pattern.data());
    }
    ~Scratch() { std::filesystem::remove_all(path_); }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace strata::gguf
