// The answer's side of a dialect: events in, bytes for the client out. Pure, so that it is tested without sockets.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "text/chat_answer.h"

namespace strata::server {

/// Who answers, and under which names.
struct AnswerIdentity {
    std::string id;     // 24 random characters: each dialect puts its prefix in front
    std::string model;  // that answers
    std::string asked;  // as the request named it; empty: not named
    std::time_t created = 0;
};

/// A token of the content with its probability, for clients that ask for logprobs.
struct TokenLogprob {
    struct Entry {
        std::string text;  // bytes of the piece
        double logprob = 0;
    };
    Entry token;
    std::vector<Entry> top;
};

enum class Finish { stop, stop_string, tool_calls, length };

/// Counts and times of one reply, or of several together.
struct Totals {
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t reply_tokens = 0;
    int64_t reasoning_tokens = 0;
    double prompt_ms = 0, reply_ms = 0;
    int64_t guesses = 0, guesses_right = 0;

    /// Another reply to the same prompt: the prompt counts once.
    void add_reply(const Totals& other);
    /// A reply to another prompt.
    void add(const Totals& other);
};

/// One reply, whole.
struct ReplyResult {
    Answer answer;
    std::vector<TokenLogprob> logprobs;
    Finish finish = Finish::stop;
    std::string stop_string;  // that ended it
};

/// Writes an answer. A stream is begin, events and end_reply for each reply (one after another), end; or error, after
/// which nothing follows. Without a stream: whole. Every text that comes out is ready to be sent.
class AnswerWriter {
  public:
    virtual ~AnswerWriter() = default;

    virtual std::string begin(int64_t prompt_tokens) = 0;
    /// `logprobs`: of the tokens whose text is in the events, where the request asks for them.
    virtual std::string events(int reply, std::span<const AnswerEvent> events,
                               std::span<const TokenLogprob> logprobs) = 0;
    virtual std::string end_reply(int reply, const ReplyResult& result, const Totals& totals) = 0;
    virtual std::string end(const Totals& totals) = 0;
    virtual std::string error(const ApiError& error, const std::string& request_id) = 0;
    virtual std::string ping() { return ": ping\n\n"; }
    /// Counts of the reply so far, for clients that ask for them with every token.
    virtual void so_far(const Totals& /*totals*/) {}
    virtual std::string progress(int64_t /*total*/, int64_t /*cached*/, int64_t /*read*/, double /*ms*/) { return {}; }

    virtual Json whole(std::span<const ReplyResult> replies, const Totals& totals) = 0;
};

/// An SSE event: "event: NAME" (none where it is empty) and its data.
std::string sse(std::string_view event, const Json& data);

/// An SSE event whose name stands as "type" in its data, too; then "sequence_number", where there is one.
std::string typed_sse(std::string_view type, const Json& members, std::optional<int64_t> sequence_number = {});

/// Random letters and digits for ids.
std::string random_id(size_t length);
/// OpenAI's name of the program that answered.
std::string fingerprint();
/// A token's bytes as text: what is no UTF-8 becomes U+FFFD.
std::string displayed(std::string_view bytes);
/// The OpenAI names of counts and times.
Json usage_json(const Totals& totals);
Json timings_json(const Totals& totals);
/// A call's arguments are valid JSON, whatever the model wrote: a cut call's are an empty object.
std::string arguments_text(const Answer::Call& call);

}  // namespace strata::server
