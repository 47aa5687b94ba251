#include "engine/answer_once.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/numbers.h"
#include "engine/state_copy.h"
#include "engine/system_memory.h"

namespace strata {
namespace {

/// Numbers of a JSON line: three decimals are enough for times and speeds.
std::string decimal(double value) {
    return number_text(static_cast<double>(static_cast<int64_t>(value * 1000 + 0.5)) / 1000);
}

std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) >= ' ') out += c;
    }
    return out + "\"";
}

double per_second(int count, double ms) {
    return ms > 0 ? count / ms * 1000 : 0;
}

/// What the expert cache did: totals, and hits and lookups of every layer.
std::string experts_json(const ExpertCounters& c) {
    std::string line = ",\"swaps\":" + number_text(c.swaps) + ",\"experts_staged\":" + number_text(c.staged) +
                       ",\"expert_mib_copied\":" + number_text(c.copied_bytes >> 20) +
                       ",\"cpu_experts\":" + number_text(c.cpu_experts) + ",\"cpu_expert_ms\":" + decimal(c.cpu_ms) +
                       ",\"card_wait_ms\":" + decimal(c.card_ms) +
                       ",\"uploads_failed\":" + number_text(c.failed_uploads) +
                       ",\"experts_left_out\":" + number_text(c.left_out) + ",\"expert_layers\":[";
    for (const ExpertCounters::Layer& layer : c.layers)
        line += (line.back() == '[' ? "[" : ",[") + number_text(layer.hits) + "," + number_text(layer.lookups) + "]";
    return line + "]";
}

class OnceAnswer : public Answer {
  public:
    OnceAnswer(const PolyOptions& options, std::FILE* logits) : options_(options), logits_(logits) {}

    void logits(int, std::span<const float> values) override {
        if (std::fwrite(values.data(), sizeof(float), values.size(), logits_) != values.size()) write_failed_ = true;
    }

    void token(const AnswerToken& token) override {
        if (!options_.json) {
            std::printf("%s%d", token.step > 0 ? " " : "", token.id);
            return;
        }
        std::string line =
            "{\"event\":\"token\",\"step\":" + number_text(token.step) + ",\"token\":" + number_text(token.id);
        if (token.p) line += ",\"p\":" + number_text(*token.p);
        if (!token.top.empty()) {
            line += ",\"top\":[";
            for (const TokenProbability& t : token.top) {
                if (line.back() != '[') line += ',';
                line += "[" + number_text(t.id) + "," + number_text(t.p) + "]";
            }
            line += "]";
        }
        line += std::string(",\"guessed\":") + (token.guessed ? "true" : "false") + "}";
        std::puts(line.c_str());
    }

    void round_ended() override { std::fflush(stdout); }

    void done(const AnswerSummary& s) override {
        summary_ = s;
        if (options_.json) return print_json(s);
        std::printf("\n");
        if (s.state_hash) std::printf("state hash %s\n", hash_text(*s.state_hash).c_str());
        if (options_.quiet) return;
        std::fprintf(stderr,
                     "read %d tokens (%d reused) in %s ms, wrote %d in %s ms (%s tokens/s), %d of %d guesses right\n",
                     s.prompt_tokens, s.reused, decimal(s.prompt_ms).c_str(), s.generated, decimal(s.decode_ms).c_str(),
                     decimal(per_second(s.generated, s.decode_ms)).c_str(), s.accepted, s.offered);
    }

    void failed(const Error& error) override { error_ = error; }

    const std::optional<AnswerSummary>& summary() const { return summary_; }
    const std::optional<Error>& error() const { return error_; }
    bool write_failed() const { return write_failed_; }

  private:
    void print_json(const AnswerSummary& s) const {
        const char* stop = "length";
        if (s.finish == AnswerSummary::Finish::stop) stop = options_.stop_ids.empty() ? "eos" : "stop";
        if (s.finish == AnswerSummary::Finish::cancel) stop = "error";
        const int read = s.prompt_tokens - s.reused;
        std::string line =
            "{\"event\":\"done\",\"prompt_tokens\":" + number_text(s.prompt_tokens) +
            ",\"new_tokens\":" + number_text(s.generated) + ",\"read_ms\":" + decimal(s.prompt_ms) +
            ",\"write_ms\":" + decimal(s.decode_ms) + ",\"read_tps\":" + decimal(per_second(read, s.prompt_ms)) +
            ",\"write_tps\":" + decimal(per_second(s.generated, s.decode_ms)) +
            ",\"guesses_offered\":" + number_text(s.offered) + ",\"guesses_right\":" + number_text(s.accepted) +
            ",\"expert_uses\":" + number_text(s.expert_uses) + ",\"expert_hits\":" + number_text(s.expert_hits);
        if (!s.experts.layers.empty()) line += experts_json(s.experts);
        if (s.state_hash) line += ",\"state_hash\":\"" + hash_text(*s.state_hash) + "\"";
        line += ",\"stop\":\"" + std::string(stop) + "\",\"reused\":" + number_text(s.reused) +
                ",\"read_calls\":" + number_text(s.read_calls) + ",\"windows\":" + number_text(s.windows) +
                ",\"seed\":" + number_text(s.seed) + ",\"memory_mib\":" + number_text(own_memory().now >> 20) + "}";
        std::puts(line.c_str());
    }

    const PolyOptions& options_;
    std::FILE* logits_;
    bool write_failed_ = false;
    std::optional<AnswerSummary> summary_;
    std::optional<Error> error_;
};

void print_ready(const OpenedEngine& opened) {
    const ModelFacts& facts = opened.engine->facts();
    const DeviceFacts& device = opened.device->facts();
    std::string line =
        "{\"event\":\"ready\",\"architecture\":" + json_text(facts.architecture) +
        ",\"layers\":" + number_text(facts.layers) + ",\"device\":" + json_text(device.name) +
        ",\"load_ms\":" + decimal(opened.load_ms) + ",\"experts_total\":" + number_text(opened.experts_total()) +
        ",\"experts_cached\":" + number_text(opened.experts_cached()) +
        ",\"vocabulary\":" + number_text(facts.vocabulary) +
        ",\"max_context\":" + number_text(opened.engine->limits().max_context) +
        ",\"threads\":" + number_text(device.threads) + ",\"draft\":" + json_text(opened.draft_kind()) +
        ",\"kv\":" + json_text(opened.kv) + ",\"scratch_mib\":" + number_text(opened.scratch_bytes >> 20) +
        ",\"conversation_mib\":" + number_text(opened.conversation_bytes >> 20);
    if (opened.on_card())
        line += ",\"card\":" + json_text(device.description) +
                ",\"vram_total_mib\":" + number_text(device.memory_total >> 20) +
                ",\"vram_taken_mib\":" + number_text(opened.device->memory_taken() >> 20);
    if (opened.experts)
        line += ",\"expert_slots\":" + number_text(opened.experts->slots()) +
                ",\"expert_cache_mib\":" + number_text(opened.experts->bytes() >> 20);
    line += "}";
    std::puts(line.c_str());
    std::fflush(stdout);
}

int complain(const Error& error) {
    std::fprintf(stderr, "strata-poly: %s\n", error.message.c_str());
    return static_cast<int>(error.kind);
}

}  // namespace

int answer_once(OpenedEngine& opened, const PolyOptions& options, const CancelFlag& interrupt) {
    auto request = options.request();
    if (!request) return complain(request.error());
    if (const auto constrained = opened.constrain(*request); !constrained) return complain(constrained.error());
    std::FILE* logits = nullptr;
    if (!options.logits_out.empty() && !(logits = std::fopen(options.logits_out.c_str(), "wbe")))
        return complain(file_error(options.logits_out + ": cannot be written: " + std::strerror(errno), "write"));
    if (!options.load.empty())
        if (const auto loaded = opened.engine->load_conversation(options.load, opened.model_id()); !loaded)
            return complain(loaded.error());

    if (options.json) print_ready(opened);
    OnceAnswer answer(options, logits);
    opened.engine->submit(std::move(*request), answer, interrupt, options.state_hash);
    const auto ran = opened.engine->run();
    if (logits && (std::fclose(logits) != 0 || answer.write_failed()))
        return complain(file_error(options.logits_out + ": cannot be written: " + std::strerror(errno), "write"));
    if (answer.error()) return complain(*answer.error());
    if (!ran) return complain(ran.error());
    if (opened.experts) {
        if (const auto saved = opened.experts->save_profile(); !saved && !options.quiet)
            std::fprintf(stderr, "the expert profile is not kept: %s\n", saved.error().message.c_str());
        if (options.explain)
            std::fprintf(
                stderr, "%s\n",
                answer.summary()->experts.explain(answer.summary()->prompt_ms + answer.summary()->decode_ms).c_str());
    }
    for (const std::string& note : opened.engine->take_notes())
        if (!options.quiet) std::fprintf(stderr, "%s\n", note.c_str());
    if (!options.save.empty())
        if (const auto saved = opened.engine->save_conversation(options.save, opened.model_id()); !saved)
            return complain(saved.error());
    if (std::fflush(stdout) != 0) return complain(failure(std::string("standard output: ") + std::strerror(errno)));
    return answer.summary()->finish == AnswerSummary::Finish::cancel ? 130 : 0;
}

}  // namespace strata
