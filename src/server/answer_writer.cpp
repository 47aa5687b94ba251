#include "server/answer_writer.h"

#include <random>

#include "text/detokenizer.h"

namespace strata::server {

void Totals::add_reply(const Totals& other) {
    if (prompt_tokens == 0) {
        prompt_tokens = other.prompt_tokens;
        cached_tokens = other.cached_tokens;
        prompt_ms = other.prompt_ms;
    }
    reply_tokens += other.reply_tokens;
    reasoning_tokens += other.reasoning_tokens;
    reply_ms += other.reply_ms;
    guesses += other.guesses;
    guesses_right += other.guesses_right;
}

void Totals::add(const Totals& other) {
    prompt_tokens += other.prompt_tokens;
    cached_tokens += other.cached_tokens;
    prompt_ms += other.prompt_ms;
    reply_tokens += other.reply_tokens;
    reasoning_tokens += other.reasoning_tokens;
    reply_ms += other.reply_ms;
    guesses += other.guesses;
    guesses_right += other.guesses_right;
}

std::string sse(std::string_view event, const Json& data) {
    std::string out;
    if (!event.empty()) out.append("event: ").append(event).append("\n");
    return out.append("data: ").append(json_text(data)).append("\n\n");
}

std::string typed_sse(std::string_view type, const Json& members, std::optional<int64_t> sequence_number) {
    // Written piece by piece: this is done for every token.
    std::string out;
    out.append("event: ").append(type).append("\ndata: {\"type\":\"").append(type).append("\"");
    if (sequence_number) out.append(",\"sequence_number\":").append(std::to_string(*sequence_number));
    for (const auto& [key, value] : members.items())
        out.append(",\"").append(key).append("\":").append(json_text(value));
    return out.append("}\n\n");
}

std::string random_id(size_t length) {
    static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    thread_local std::mt19937_64 random{[] {
        std::random_device device;
        return (static_cast<uint64_t>(device()) << 32) ^ device();
    }()};
    std::string out(length, ' ');
    for (char& c : out) c = kLetters[random() % 62];
    return out;
}

std::string fingerprint() {
    return "polystrata-" POLYSTRATA_VERSION;
}

std::string displayed(std::string_view bytes) {
    std::string out;
    Utf8Stream stream;
    stream.push(bytes, out);
    stream.finish(out);
    return out;
}

Json usage_json(const Totals& t) {
    return {{"prompt_tokens", t.prompt_tokens},
            {"completion_tokens", t.reply_tokens},
            {"total_tokens", t.prompt_tokens + t.reply_tokens},
            {"prompt_tokens_details", {{"cached_tokens", t.cached_tokens}}},
            {"completion_tokens_details", {{"reasoning_tokens", t.reasoning_tokens}}}};
}

Json timings_json(const Totals& t) {
    const int64_t read = t.prompt_tokens - t.cached_tokens;
    const auto per_second = [](int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) * 1000 / ms : 0.0; };
    const auto per_token = [](int64_t n, double ms) { return n > 0 ? ms / static_cast<double>(n) : 0.0; };
    return {{"cache_n", t.cached_tokens},
            {"prompt_n", read},
            {"prompt_ms", t.prompt_ms},
            {"prompt_per_token_ms", per_token(read, t.prompt_ms)},
            {"prompt_per_second", per_second(read, t.prompt_ms)},
            {"predicted_n", t.reply_tokens},
            {"predicted_ms", t.reply_ms},
            {"predicted_per_token_ms", per_token(t.reply_tokens, t.reply_ms)},
            {"predicted_per_second", per_second(t.reply_tokens, t.reply_ms)},
            {"draft_n", t.guesses},
            {"draft_n_accepted", t.guesses_right}};
}

std::string arguments_text(const Answer::Call& call) {
    return call.arguments.empty() ? "{}" : call.arguments;
}

}  // namespace strata::server
