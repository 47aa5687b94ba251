// The lines between a server and the engine, as values: docs/protocol.md. Both ends use these functions, so that they
// agree. Texts have no line break at their end. All functions are pure and safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "protocol/request.h"

namespace strata::protocol {

/// Longest line that an engine reads; a prompt of a million tokens fits.
inline constexpr size_t kMaxLine = size_t{16} << 20;

// ---- to the engine
// ----------------------------------------------------------------------------------------------------------

struct Generate {
    GenerateRequest request;
};
struct Stop {};
struct Vram {
    std::optional<int64_t> reserve_mib;  // absent: the rule of the start
};
struct SaveProfile {};
struct SaveConversation {
    std::string path;
};
struct LoadConversation {
    std::string path;
};
struct Quit {};
struct Nothing {};  // an empty line

struct Command {
    std::variant<Nothing, Generate, Stop, Vram, SaveProfile, SaveConversation, LoadConversation, Quit> what;
    std::optional<uint64_t> id;        // names the request
    std::optional<std::string> error;  // why the line is refused: the text after ERR
};

/// A command from its line; never fails, refusals are in Command::error.
Command parse_command(std::string_view line);
std::string format_generate(const GenerateRequest& request, std::optional<uint64_t> id = {});
std::string format_stop(std::optional<uint64_t> id = {});

// ---- from the engine
// --------------------------------------------------------------------------------------------------------

using Facts = std::map<std::string, std::string, std::less<>>;

struct Info {
    Facts facts;
};
struct Ready {
    int64_t max_context = 0;
    std::vector<std::string> capabilities;  // "stop", "vram", "pictures", "top", ...
};
struct Progress {
    int64_t read = 0;
    int64_t total = 0;
};
struct Reused {
    int64_t rows = 0;
};
struct TokenProbability {
    int32_t id = 0;
    float p = 0;
    bool operator==(const TokenProbability&) const = default;
};
struct Token {
    int32_t id = 0;
    std::optional<float> p;
    std::vector<TokenProbability> top;
};
struct Done {
    int64_t generated = 0;
    int64_t prompt_tokens = 0;
    double prompt_ms = 0;
    double decode_ms = 0;
    std::string finish;  // stop, length, cancel, context
    int64_t accepted = 0;
    int64_t offered = 0;
    int64_t reused = 0;
    int64_t hits = 0;
    int64_t lookups = 0;
    Facts more;  // seed, window_mean, read_calls, stop_id, ...
};
struct Failed {
    std::string message;
};
struct Unknown {  // a line of a newer engine, or no protocol line at all
    std::string line;
};

struct Reply {
    std::variant<Unknown, Info, Ready, Progress, Reused, Token, Done, Failed> what;
    std::optional<uint64_t> id;
};

Reply parse_reply(std::string_view line);
std::string format_reply(const Reply& reply);

}  // namespace strata::protocol
