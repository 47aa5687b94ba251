// What any of the generating routes asks for, whatever dialect it was said in: openai_chat.h, openai_completions.h,
// responses.h and anthropic.h turn bodies into this, and are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/request.h"
#include "server/fields.h"
#include "text/chat.h"

namespace strata::server {

/// Sampling as far as the request says; the rest is the model's (model_text.h).
struct SamplingFields {
    std::optional<float> temperature, top_p, min_p, typical, penalty_repeat, penalty_present, penalty_freq;
    std::optional<int> top_k, penalty_last_n;
    std::optional<float> dry_multiplier, dry_base;
    std::optional<int> dry_allowed_length, dry_last_n;
    std::optional<uint64_t> seed;
    std::vector<std::pair<int32_t, float>> bias;

    /// Takes from `other` what is not set here; never its bias.
    void fill_from(const SamplingFields& other);
};

/// The form that the content must have.
struct OutputFormat {
    enum class Kind { text, json_object, json_schema } kind = Kind::text;
    Json schema;
    bool strict = false;
};

/// A prompt that is not a chat.
using RawPrompt = std::variant<std::string, std::vector<int32_t>>;

struct AnswerRequest {
    std::string model;  // as the request names it; empty: not named
    bool stream = false;

    ChatRequest chat;            // for chats
    std::vector<RawPrompt> raw;  // for completions; then the chat is not used
    std::optional<std::string> suffix;

    std::optional<int64_t> max_tokens;  // 0: read the prompt only; absent: to the end of the context
    SamplingFields sampling;
    std::vector<std::string> stop;
    bool stop_in_reasoning = false;
    int n = 1;
    int logprobs = -1;  // likeliest tokens told with each; below 0: none at all
    OutputFormat format;
    std::optional<int64_t> reasoning_budget;  // tokens of reasoning before it is closed
    bool ignore_eos = false;
    bool cache = true;

    // Of the answer's form.
    bool include_usage = false;
    bool progress = false;
    bool timings_per_token = false;
    std::vector<std::string> notes;  // what was left out, for the log

    size_t replies() const { return (raw.empty() ? 1 : raw.size()) * static_cast<size_t>(n); }
};

inline constexpr int64_t kMostMessages = 10'000;
inline constexpr int64_t kMostTools = 1'024;
inline constexpr size_t kMostStops = 16;
inline constexpr size_t kLongestStop = 256;  // bytes

/// Reads a body as an object.
Api<Json> parse_body(std::string_view body);

// Parts that dialects share.
Api<void> read_sampling(const Fields& body, SamplingFields& out);
/// A string or a list of strings; empty ones are dropped.
Api<std::vector<std::string>> read_stop(const Fields& body, const char* name);
/// The OpenAI form: {"type": "json_schema", "json_schema": {"schema": ..}} or, flat, {"type", "schema"}.
Api<OutputFormat> read_format(const Json& format, const std::string& path, bool flat);
Api<void> check_sizes(const ChatRequest& chat);

}  // namespace strata::server
