// A model whose engine follows a script (tests/protocol/mock_engine_main.cpp), installed in a folder of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/process.h"
#include "text/json.h"

namespace strata::test {

/// The words "polystrata COMMAND --model mock --data-dir FOLDER": the tokenizer of a model's file, the script's
/// answers.
class MockModel {
  public:
    explicit MockModel(std::string_view script, const Json& sampling = Json::object(),
                       const std::string& model = data("qwen35moe/tiny.gguf")) {
        folder_.file("script", script);
        folder_.file(
            "strata-mock.json",
            json_text({{"exe", program("mock_engine")},
                       {"args", {folder_.path() / "script", "--log", folder_.path() / "log", "--model", model}},
                       {"model_name", "mock"},
                       {"sampling", sampling}}));
    }

    std::vector<std::string> words(const std::string& command, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> all = {program("polystrata"), command,       "--model", "mock",
                                        "--data-dir",          folder_.path()};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    std::filesystem::path folder() const { return folder_.path(); }
    std::string file(const std::string& name) const { return folder_.path() / name; }
    void write(const std::string& name, std::string_view text) const { folder_.file(name, text); }
    /// The lines that the engine was sent.
    std::string log() const { return read_file(folder_.path() / "log"); }

  private:
    TempFolder folder_;
};

}  // namespace strata::test
