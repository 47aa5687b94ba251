// The transcripts of docs/api.md, run against the server.
#include <gtest/gtest.h>
#include <sstream>

#include "live_server.h"

namespace strata::server {
namespace {

struct Transcript {
    std::string command;
    std::string expected;  // "..." stands for anything
};

std::vector<Transcript> read_transcripts(const std::string& page) {
    std::vector<Transcript> all;
    std::istringstream lines(page);
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("```")) {
            inside = line == "```console";
        } else if (inside && line.starts_with("$ ")) {
            all.push_back({line.substr(2), ""});
        } else if (inside && !all.empty()) {
            all.back().expected += line + "\n";
        }
    }
    return all;
}

/// Whether the text is the pattern's pieces with anything between them.
bool fits(std::string_view text, std::string_view pattern) {
    for (bool first = true;; first = false) {
        const size_t gap = pattern.find("...");
        const std::string_view piece = pattern.substr(0, gap);
        if (gap == std::string_view::npos)
            return first ? text == piece : text.size() >= piece.size() && text.ends_with(piece);
        const size_t at = first ? (text.starts_with(piece) ? 0 : std::string_view::npos) : text.find(piece);
        if (at == std::string_view::npos) return false;
        text.remove_prefix(at + piece.size());
        pattern.remove_prefix(gap + 3);
    }
}

TEST(ApiPage, EveryTranscriptIsTrue) {
    if (test::run({"/bin/bash", "-c", "command -v curl"}).code != 0) GTEST_SKIP() << "curl is not here";
    const LiveServer live;
    const std::vector<Transcript> all =
        read_transcripts(test::read_file(std::string(POLYSTRATA_TEST_DATA) + "/../../docs/api.md"));
    ASSERT_GT(all.size(), 25u);
    for (const Transcript& one : all) {
        std::string command = one.command;
        const std::string address = "localhost:8080";
        for (size_t at = 0; (at = command.find(address, at)) != std::string::npos;)
            command.replace(at, address.size(), "127.0.0.1:" + std::to_string(live.port()));
        const std::string out = test::run({"/bin/bash", "-c", command}).out;
        // A transcript ends its last line even where the answer does not.
        EXPECT_TRUE(fits(out, one.expected) || fits(out + "\n", one.expected))
            << "$ " << one.command << "\nexpected: " << one.expected << "\ncame: " << out;
    }
}

}  // namespace
}  // namespace strata::server
