#include <cstdio>

#include "cli/benchmark.h"

namespace strata::cli {
namespace {

double per_second(int64_t tokens, double ms) {
    return ms > 0 ? static_cast<double>(tokens) / (ms / 1000) : 0;
}

int64_t tokens_read(const protocol::Done& done) {
    return done.prompt_tokens - done.reused;
}

/// part / whole, or null where there is no whole.
Json share(int64_t part, int64_t whole) {
    return whole > 0 ? Json(static_cast<double>(part) / static_cast<double>(whole)) : Json();
}

std::string percent(int64_t part, int64_t whole) {
    if (whole <= 0) return "-";
    char text[16];
    std::snprintf(text, sizeof text, "%.0f%%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
    return text;
}

const Json* find_run(const Json& result, const Json& name) {
    for (const Json& run : result["runs"])
        if (run.is_object() && run.value("name", Json()) == name) return &run;
    return nullptr;
}

}  // namespace

bool is_benchmark_result(const Json& json) {
    return json.is_object() && json.contains("program") && json.contains("runs") && json["runs"].is_array();
}

Json run_json(const BenchmarkRun& run) {
    const protocol::Done& done = run.done;
    return {{"name", run.name},
            {"prompt_tokens", done.prompt_tokens},
            {"reused", done.reused},
            {"first_token_s", run.first_token_s},
            {"read_tps", per_second(tokens_read(done), done.prompt_ms)},
            {"new_tokens", done.generated},
            {"write_tps", per_second(done.generated, done.decode_ms)},
            {"hit_rate", share(done.hits, done.lookups)},
            {"guesses_offered", done.offered},
            {"guesses_right", done.accepted},
            {"vram_mib_peak", run.load.vram_peak_mib ? Json(*run.load.vram_peak_mib) : Json()},
            {"ram_gib_peak", static_cast<double>(run.load.ram_peak) / (1 << 30)},
            {"gpu_load", run.load.gpu ? Json(*run.load.gpu) : Json()},
            {"cpu_load", run.load.cpu},
            {"text_sha256", run.text_sha256}};
}

std::string compare_results(const Json& now, const Json& before) {
    std::string text;
    for (const Json& run : now["runs"]) {
        const Json* earlier = find_run(before, run["name"]);
        if (!earlier) continue;
        char line[160];
        const auto ratio = [&](const char* key) {
            const Json old = earlier->value(key, Json());
            const double value = old.is_number() ? old.get<double>() : 0;
            return value > 0 ? run[key].get<double>() / value : 0.0;
        };
        const bool same_text = run["text_sha256"] == earlier->value("text_sha256", Json());
        std::snprintf(line, sizeof line, "%-8s read %.2fx, write %.2fx, %s\n", run["name"].get<std::string>().c_str(),
                      ratio("read_tps"), ratio("write_tps"), same_text ? "the same answer" : "another answer");
        text += line;
    }
    return text;
}

std::string runs_table(const std::vector<BenchmarkRun>& runs) {
    char line[200];
    std::snprintf(line, sizeof line, "%-8s %8s %12s %12s %13s %10s %8s %9s %8s %5s %5s\n", "prompt", "tokens",
                  "first token", "read tok/s", "write tok/s", "from VRAM", "guessed", "VRAM MiB", "RAM GiB", "CPU",
                  "GPU");
    std::string text = line;
    for (const BenchmarkRun& run : runs) {
        const protocol::Done& done = run.done;
        const std::string vram = run.load.vram_peak_mib ? std::to_string(*run.load.vram_peak_mib) : "-";
        const std::string gpu = run.load.gpu ? percent(static_cast<int64_t>(*run.load.gpu * 1000), 1000) : "-";
        std::snprintf(line, sizeof line, "%-8s %8lld %10.2f s %12.1f %13.2f %10s %8s %9s %8.1f %5s %5s\n",
                      run.name.c_str(), static_cast<long long>(done.prompt_tokens), run.first_token_s,
                      per_second(tokens_read(done), done.prompt_ms), per_second(done.generated, done.decode_ms),
                      percent(done.hits, done.lookups).c_str(), percent(done.accepted, done.offered).c_str(),
                      vram.c_str(), static_cast<double>(run.load.ram_peak) / (1 << 30),
                      percent(static_cast<int64_t>(run.load.cpu * 1000), 1000).c_str(), gpu.c_str());
        text += line;
    }
    return text;
}

}  // namespace strata::cli
