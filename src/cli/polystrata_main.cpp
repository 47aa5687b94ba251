// polystrata: the program for people. One file per command; this one picks the command, prints its error and turns it
// into the exit code.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cli/command.h"

namespace {

using namespace strata;
using namespace strata::cli;

struct Command {
    const char* name;
    const char* summary;
    Run (*declare)(FlagSet&);
};

constexpr std::array kCommands = {
    Command{"chat", "Chat with a model in the terminal, or answer one prompt", declare_chat},
    Command{"serve", "Answer OpenAI and Anthropic clients over HTTP", declare_serve},
    Command{"models", "List the installed models", declare_models},
    Command{"inspect", "Say what a GGUF file is, whether it can run and what memory it takes", declare_inspect},
    Command{"synth", "Write a model with random weights and a real model's shapes, for measuring", declare_synth},
    Command{"benchmark", "Measure how fast a model reads and writes here", declare_benchmark},
    Command{"eval", "Answer the prompts of a file and count the right answers", declare_eval},
    Command{"tokenize", "Turn text into token ids, or ids into text", declare_tokenize},
    Command{"render", "Show the prompt that a chat becomes", declare_render},
    Command{"grammar", "Compile a JSON schema or a grammar for the engine", declare_grammar},
    Command{"setup", "Prepare a model and start it: what ./setup.sh does after building", declare_setup},
};

constexpr const char* kFooter =
    "\nShort forms: polystrata --model NAME (chat), polystrata --list-models.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a file was refused, 4 no such device or not enough memory, 130 "
    "interrupted.";

/// The short forms: flags in front that mean a command.
std::vector<std::string> expand(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.empty()) return words;
    if (words[0] == "--list-models") {
        words[0] = "models";
    } else if (words[0] == "--model" || words[0].starts_with("--model=") || words[0] == "-m") {
        words.insert(words.begin(), "chat");
    }
    return words;
}

int complain(const std::string& command, const std::string& message, ErrorKind kind) {
    std::fprintf(stderr, "polystrata%s%s: %s\n", command.empty() ? "" : " ", command.c_str(), message.c_str());
    return static_cast<int>(kind);
}

int run(int argc, char** argv) {
    CLI::App app("PolyStrata runs large mixture-of-experts language models from their GGUF files.", "polystrata");
    app.set_version_flag("--version", std::string("polystrata " POLYSTRATA_VERSION));
    app.footer(kFooter);
    std::vector<Run> runs;
    for (const Command& command : kCommands) {
        CLI::App* sub = app.add_subcommand(command.name, command.summary);
        sub->footer("");
        FlagSet flags(*sub);
        runs.push_back(command.declare(flags));
    }
    std::vector<std::string> words = expand(argc, argv);
    if (words.empty()) return complain("", "no command was given (--help lists what there is)", ErrorKind::usage);
    const std::string first = words[0];
    const bool known = std::ranges::any_of(kCommands, [&](const Command& c) { return first == c.name; });
    if (!known && !first.starts_with('-'))
        return complain("", "'" + first + "' is no command (--help lists what there is)", ErrorKind::usage);
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    try {
        app.parse(std::move(reversed));
    } catch (const CLI::CallForHelp& help) {
        return app.exit(help);
    } catch (const CLI::CallForVersion& version) {
        return app.exit(version);
    } catch (const CLI::ParseError& error) {
        std::string message = error.what();
        while (message.ends_with('\n')) message.pop_back();
        return complain(known ? first : "", message + " (--help lists what there is)", ErrorKind::usage);
    }
    for (size_t i = 0; i < kCommands.size(); ++i) {
        if (!app.got_subcommand(kCommands[i].name)) continue;
        const Outcome outcome = runs[i]();
        if (std::fflush(stdout) != 0 && outcome.ok())
            return complain(kCommands[i].name, "standard output cannot be written", ErrorKind::failed);
        if (outcome.ok()) return *outcome;
        const int code = complain(kCommands[i].name, outcome.error().message, outcome.error().kind);
        return outcome.error().code == "interrupted" ? 130 : code;
    }
    return complain("", "no command was given (--help lists what there is)", ErrorKind::usage);
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, not a death
    return run(argc, argv);
}
