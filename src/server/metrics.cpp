#include "server/metrics.h"

namespace strata::server {
namespace {

constexpr size_t kKeptRecords = 500;
constexpr size_t kShownRecords = 12;

class Page {
  public:
    void head(const char* name, const char* type, const char* help) {
        text_ +=
            std::string("# HELP polystrata_") + name + " " + help + "\n# TYPE polystrata_" + name + " " + type + "\n";
    }
    void value(const std::string& name, const std::string& value) {
        text_ += "polystrata_" + name + " " + value + "\n";
    }
    void one(const char* name, const char* type, const char* help, double number) {
        head(name, type, help);
        value(name, number_text(number));
    }
    template <size_t N>
    void histogram(const char* name, const char* help, const Histogram<N>& h) {
        head(name, "histogram", help);
        uint64_t below = 0;
        for (size_t i = 0; i < N; ++i) {
            below += h.counts[i];
            value(std::string(name) + "_bucket{le=\"" + number_text(h.bounds[i]) + "\"}", std::to_string(below));
        }
        value(std::string(name) + "_bucket{le=\"+Inf\"}", std::to_string(h.count));
        value(std::string(name) + "_sum", number_text(h.sum));
        value(std::string(name) + "_count", std::to_string(h.count));
    }
    static std::string number_text(double number) {
        if (number == static_cast<double>(static_cast<int64_t>(number)))
            return std::to_string(static_cast<int64_t>(number));
        return float_text(number);
    }
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

double ratio(int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

double fact(const Gauges& gauges, std::string_view name) {
    const auto found = gauges.engine.find(name);
    if (found == gauges.engine.end()) return 0;
    char* end = nullptr;
    const double value = std::strtod(found->second.c_str(), &end);
    return end != found->second.c_str() ? value : 0;
}

Json record_json(const RequestRecord& r) {
    Json out = timings_json(r.totals);
    return {{"id", r.id},
            {"path", r.path},
            {"model", r.model},
            {"status", r.status},
            {"when", r.when},
            {"finish", r.finish},
            {"queued_ms", r.queued_ms},
            {"first_token_ms", r.first_token_ms},
            {"total_ms", r.total_ms},
            {"hit_rate", r.lookups > 0 ? Json(ratio(r.hits, r.lookups)) : Json()},
            {"timings", std::move(out)}};
}

}  // namespace

void Metrics::request(const std::string& path, int status) {
    const std::lock_guard lock(mutex_);
    ++requests_[{path, status}];
}

void Metrics::answered(const RequestRecord& record) {
    const std::lock_guard lock(mutex_);
    ++answers_;
    totals_.add(record.totals);
    hits_ += record.hits;
    lookups_ += record.lookups;
    last_.push_front(record);
    if (last_.size() > kKeptRecords) last_.pop_back();
}

void Metrics::first_token(double seconds) {
    const std::lock_guard lock(mutex_);
    first_token_.add(seconds);
    ++deliveries_;
}

void Metrics::between_tokens(double seconds) {
    const std::lock_guard lock(mutex_);
    between_.add(seconds);
    ++deliveries_;
}

void Metrics::engine_started() {
    const std::lock_guard lock(mutex_);
    ++starts_;
}

void Metrics::engine_failed() {
    const std::lock_guard lock(mutex_);
    ++failures_;
}

void Metrics::sample_hardware(int engine_pid) {
    const std::lock_guard lock(mutex_);
    hardware_.sample(engine_pid, deliveries_);
}

Json Metrics::last_request() const {
    const std::lock_guard lock(mutex_);
    return last_.empty() ? Json() : record_json(last_.front());
}

Json Metrics::hardware() const {
    const std::lock_guard lock(mutex_);
    return HardwareHistory::json(hardware_.now());
}

std::string Metrics::prometheus(const Gauges& g) const {
    const std::lock_guard lock(mutex_);
    Page page;
    page.head("requests_total", "counter", "Requests answered, by route and status.");
    for (const auto& [key, count] : requests_)
        page.value("requests_total{path=\"" + key.first + "\",code=\"" + std::to_string(key.second) + "\"}",
                   std::to_string(count));
    const auto number = [](auto value) { return static_cast<double>(value); };
    page.one("answers_total", "counter", "Answers that the engine gave.", number(answers_));
    page.one("prompt_tokens_total", "counter", "Tokens of prompts.", number(totals_.prompt_tokens));
    page.one("prompt_tokens_cached_total", "counter", "Tokens of prompts whose state was reused.",
             number(totals_.cached_tokens));
    page.one("reply_tokens_total", "counter", "Tokens written.", number(totals_.reply_tokens));
    page.one("prompt_seconds_total", "counter", "Time spent reading prompts.", totals_.prompt_ms / 1000);
    page.one("reply_seconds_total", "counter", "Time spent writing.", totals_.reply_ms / 1000);
    page.one("guesses_total", "counter", "Tokens guessed ahead.", number(totals_.guesses));
    page.one("guesses_right_total", "counter", "Guesses that were right.", number(totals_.guesses_right));
    page.one("expert_lookups_total", "counter", "Routed experts used while writing.", number(lookups_));
    page.one("expert_hits_total", "counter", "Of these, found in the card's memory.", number(hits_));
    page.one("engine_starts_total", "counter", "Starts of an engine.", number(starts_));
    page.one("engine_failures_total", "counter", "Engines that ended or hung without being asked to.",
             number(failures_));
    page.histogram("first_token_seconds", "From a request's arrival to its first token.", first_token_);
    page.histogram("inter_token_seconds", "Between deliveries of tokens of a reply.", between_);
    page.one("requests_running", "gauge", "Requests that the engine works on.", number(g.running));
    page.one("requests_waiting", "gauge", "Requests that wait for their turn.", number(g.waiting));
    page.one("slots", "gauge", "Requests that run at once.", number(g.slots));
    page.one("connections", "gauge", "Open connections.", number(g.connections));
    page.one("model_loaded", "gauge", "1 while an engine can answer.", g.loaded ? 1 : 0);
    page.one("vram_total_bytes", "gauge", "Memory of the card.", fact(g, "vram_total_mib") * (1 << 20));
    page.one("vram_free_bytes", "gauge", "Of it, free.", fact(g, "vram_free_mib") * (1 << 20));
    page.one("expert_slots", "gauge", "Experts that the card's memory holds.", fact(g, "expert_slots"));
    page.one("experts", "gauge", "Experts of the model.", fact(g, "experts_total"));
    page.one("expert_hit_rate", "gauge", "Share of the routed experts found in the card's memory, since the start.",
             ratio(hits_, lookups_));
    page.one("prompt_cache_rate", "gauge", "Share of the prompts' tokens that were reused, since the start.",
             ratio(totals_.cached_tokens, totals_.prompt_tokens));
    const HardwareSample machine = hardware_.now();
    page.one("tokens_per_second", "gauge", "Tokens written a second, over the last seconds.",
             machine.tokens_per_second);
    page.one("cpu_load", "gauge", "Share of the processors' time in use, over the last seconds.", machine.cpu_load);
    page.one("ram_total_bytes", "gauge", "RAM of the machine.", number(machine.ram_total));
    page.one("ram_available_bytes", "gauge", "Of it, free for programs.", number(machine.ram_available));
    page.one("server_resident_bytes", "gauge", "RAM of the server.", number(machine.server_resident));
    page.one("engine_resident_bytes", "gauge", "RAM of its engine, mapped files included.",
             number(machine.engine_resident));
    return page.take();
}

Json Metrics::json(const Gauges& g, bool all_requests) const {
    const std::lock_guard lock(mutex_);
    Json engine = Json::object();
    for (const auto& [key, value] : g.engine) engine[key] = value;
    Json requests = Json::array();
    for (const RequestRecord& record : last_) {
        if (!all_requests && requests.size() >= kShownRecords) break;
        requests.push_back(record_json(record));
    }
    Json codes = Json::array();
    for (const auto& [key, count] : requests_)
        codes.push_back({{"path", key.first}, {"code", key.second}, {"count", count}});
    const auto average = [](const auto& h) {
        return h.count > 0 ? Json(h.sum / static_cast<double>(h.count)) : Json();
    };
    Json machine = HardwareHistory::json(hardware_.now());
    machine["minute"] = hardware_.minute();
    machine["connections"] = g.connections;
    return {{"engine", std::move(engine)},
            {"live", g.live},
            {"requests", std::move(requests)},
            {"totals",
             {{"answers", answers_},
              {"prompt_tokens", totals_.prompt_tokens},
              {"cached_tokens", totals_.cached_tokens},
              {"reply_tokens", totals_.reply_tokens},
              {"guesses", totals_.guesses},
              {"guesses_right", totals_.guesses_right},
              {"expert_hit_rate", lookups_ > 0 ? Json(ratio(hits_, lookups_)) : Json()},
              {"cache_rate", ratio(totals_.cached_tokens, totals_.prompt_tokens)},
              {"engine_starts", starts_},
              {"engine_failures", failures_},
              {"first_token_s_mean", average(first_token_)},
              {"inter_token_s_mean", average(between_)},
              {"uptime_s", std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count()},
              {"codes", std::move(codes)}}},
            {"queue", {{"running", g.running}, {"waiting", g.waiting}, {"slots", g.slots}}},
            {"model", {{"id", g.model}, {"loaded", g.loaded}}},
            {"hardware", std::move(machine)}};
}

}  // namespace strata::server
