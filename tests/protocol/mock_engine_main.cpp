// A scripted engine: speaks the line protocol without a model, for tests of whoever talks to engines.
//
//     mock_engine SCRIPT [--log FILE]
//
// The script is lines. Those before the first "on" are printed at the start. "on WORD" begins what happens when a
// command whose first word is WORD arrives; each block is used once, in order, and a command that fits no remaining
// block is answered by ERR. In a block a line is printed as it is (with the request's id=N added where the command had
// one and the line is a reply to a request without one), or is one of
//     @wait WORD        go on when a command WORD arrives (STOP)
//     @sleep N          milliseconds
//     @stderr TEXT      a line on standard error
//     @exit N           end with this code
//     @raise N          end by this signal
//     @close            close the standard output and stay
//     @repeat N TEXT    print TEXT N times
// QUIT and the end of input end it with code 0. --log writes every line that arrives to FILE.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

struct Block {
    std::string command;
    std::vector<std::string> lines;
    bool used = false;
};

std::ofstream log_file;

std::string first_word(const std::string& line) {
    return line.substr(0, line.find_first_of(" \r\n"));
}

std::string id_of(const std::string& command) {
    const size_t at = command.find(" id=");
    return at == std::string::npos ? "" : command.substr(at, command.find(' ', at + 1) - at);
}

bool read_command(std::string& line) {
    if (!std::getline(std::cin, line)) return false;
    if (log_file.is_open()) log_file << line << std::endl;
    return first_word(line) != "QUIT";
}

void print(const std::string& line, const std::string& id) {
    const std::string word = first_word(line);
    const bool of_request = word == "PP" || word == "REUSED" || word == "T" || word == "DONE" || word == "ERR";
    const bool named = line.find(" id=") != std::string::npos;
    std::cout << line << (of_request && !named ? id : "") << std::endl;
}

void run(const std::vector<std::string>& lines, const std::string& id) {
    for (const std::string& line : lines) {
        std::istringstream words(line);
        std::string word, rest;
        int number = 0;
        words >> word;
        if (word == "@wait") {
            words >> rest;
            std::string command;
            do
                if (!read_command(command)) std::exit(0);
            while (first_word(command) != rest);
        } else if (word == "@sleep") {
            words >> number;
            std::this_thread::sleep_for(std::chrono::milliseconds(number));
        } else if (word == "@stderr") {
            std::cerr << line.substr(8) << std::endl;
        } else if (word == "@exit") {
            words >> number;
            std::exit(number);
        } else if (word == "@raise") {
            words >> number;
            std::raise(number);
        } else if (word == "@close") {
            close(STDOUT_FILENO);
        } else if (word == "@repeat") {
            words >> number;
            std::getline(words >> std::ws, rest);
            for (int i = 0; i < number; ++i) print(rest, id);
        } else {
            print(line, id);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::cerr << "usage: mock_engine SCRIPT [--log FILE]\n";
        return 2;
    }
    std::ifstream script(argv[1]);
    if (!script) {
        std::cerr << argv[1] << ": no such script\n";
        return 3;
    }
    if (argc >= 4 && std::string(argv[2]) == "--log") log_file.open(argv[3], std::ios::app);
    std::vector<std::string> start;
    std::vector<Block> blocks;
    for (std::string line; std::getline(script, line);) {
        if (line.starts_with("on "))
            blocks.push_back({line.substr(3), {}});
        else if (!line.empty())
            (blocks.empty() ? start : blocks.back().lines).push_back(line);
    }
    run(start, "");
    for (std::string line; read_command(line);) {
        const std::string word = first_word(line);
        bool found = word == "STOP" || word.empty();  // STOP while idle does nothing
        for (Block& block : blocks) {
            if (block.used || block.command != word) continue;
            block.used = found = true;
            run(block.lines, id_of(line));
            break;
        }
        if (!found) print("ERR the script has no answer to " + word, id_of(line));
    }
    return 0;
}
