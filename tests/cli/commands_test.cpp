// What holds for every command: help, wrong usage, exit codes, one line of error.
#include <algorithm>
#include <gtest/gtest.h>

#include "support/process.h"

namespace strata::test {
namespace {

/// The commands that --help lists.
std::vector<std::string> commands() {
    std::istringstream help(run({program("polystrata"), "--help"}).out);
    std::vector<std::string> names;
    bool listed = false;
    for (std::string line; std::getline(help, line);) {
        if (line.starts_with("Subcommands:")) {
            listed = true;
        } else if (listed && line.empty()) {
            break;
        } else if (listed && line.starts_with("  ") && line[2] != ' ') {
            names.push_back(line.substr(2, line.find(' ', 2) - 2));
        }
    }
    return names;
}

void expect_wrong_usage(std::vector<std::string> words) {
    words.insert(words.begin(), program("polystrata"));
    std::string shown;
    for (const std::string& word : words) shown += word + " ";
    const Finished done = run(words);
    EXPECT_EQ(done.code, 2) << shown;
    EXPECT_EQ(done.out, "") << shown;
    EXPECT_TRUE(done.err.starts_with("polystrata")) << shown << done.err;
    EXPECT_EQ(std::ranges::count(done.err, '\n'), 1) << shown << done.err;
}

TEST(Commands, EveryOneHasHelp) {
    const std::vector<std::string> names = commands();
    EXPECT_GE(names.size(), 2u);
    for (const std::string& name : names) {
        const Finished done = run({program("polystrata"), name, "--help"});
        EXPECT_EQ(done.code, 0) << name;
        EXPECT_NE(done.out.find("Usage: polystrata " + name), std::string::npos) << done.out;
    }
}

TEST(Commands, WrongUsageIsOneLineAndCode2) {
    expect_wrong_usage({});
    expect_wrong_usage({"no-such-command"});
    expect_wrong_usage({"--no-such-flag"});
    for (const std::string& name : commands()) expect_wrong_usage({name, "--no-such-flag"});
    expect_wrong_usage({"inspect"});
    expect_wrong_usage({"models", "info"});
}

TEST(Commands, VersionIsOneLine) {
    const Finished done = run({program("polystrata"), "--version"});
    EXPECT_EQ(done.code, 0);
    EXPECT_TRUE(done.out.starts_with("polystrata ")) << done.out;
}

TEST(Commands, ListModelsIsTheShortFormOfModels) {
    TempFolder folder;
    const Finished shortly = run({program("polystrata"), "--list-models", "--data-dir", folder.path()});
    const Finished plainly = run({program("polystrata"), "models", "--data-dir", folder.path()});
    EXPECT_EQ(shortly.code, 0) << shortly.err;
    EXPECT_EQ(shortly.out, plainly.out);
}

}  // namespace
}  // namespace strata::test
