// What the engine's own work between two calls of a model costs, on the sizes of Qwen3.6-35B-A3B (vocabulary 248,320):
// choosing a token, and the suffix index at 128K tokens.
//     engine_speed
// Times are processor time, so that other programs on the machine do not count.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <random>
#include <vector>

#include "engine/sampler.h"
#include "engine/suffix_index.h"

namespace {

using namespace strata;

double seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Median microseconds of one of `n` calls.
double median_us(int n, const std::function<void()>& call) {
    std::vector<double> times;
    for (int i = 0; i < n; ++i) {
        const double begin = seconds();
        call();
        times.push_back((seconds() - begin) * 1e6);
    }
    std::nth_element(times.begin(), times.begin() + n / 2, times.end());
    return times[static_cast<size_t>(n / 2)];
}

void measure_sampler() {
    constexpr int kVocabulary = 248320;
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits(kVocabulary);
    for (float& x : logits) x = normal(random);
    std::vector<float> row = logits;
    Sampler sampler(kVocabulary);
    const auto measure = [&](const char* name, const Sampling& sampling, int history) {
        sampler.begin(sampling, 1, history + 8);
        for (int i = 0; i < history; ++i) sampler.accept(static_cast<int32_t>(random() % 5000));
        uint64_t step = 0;
        std::printf("%-52s %8.1f us\n", name, median_us(101, [&] { sampler.sample(row, step++); }));
    };
    measure("sample: greedy", {}, 0);
    Sampling chat;
    chat.temperature = 0.8f;
    chat.top_k = 40;
    chat.top_p = 0.95f;
    chat.min_p = 0.05f;
    measure("sample: 0.8, top_k 40, top_p 0.95, min_p 0.05", chat, 0);
    chat.penalty_last_n = 4096;
    chat.penalty_freq = 0.1f;
    measure("sample: the same, penalties over 4,096 tokens", chat, 32768);
    chat.dry_multiplier = 0.8f;
    measure("sample: the same, DRY over 32,768 tokens", chat, 32768);
    std::vector<TokenProbability> top(20);
    std::printf("%-52s %8.1f us\n", "probabilities: one token and the 20 likeliest",
                median_us(51, [&] { probabilities(logits, 7, top); }));
}

void measure_index(const char* name, int tokens, const std::function<int32_t(int)>& token) {
    SuffixIndex index;
    std::vector<double> appends;
    for (int i = 0; i < tokens; ++i) {
        const double begin = seconds();
        index.append(token(i));
        appends.push_back((seconds() - begin) * 1e6);
    }
    double sum = 0;
    for (const double us : appends) sum += us;
    std::sort(appends.begin(), appends.end());
    std::array<int32_t, 7> guesses;
    const double match = median_us(1001, [&] { index.guess(guesses); });
    const double begin = seconds();
    index.cut(tokens / 2);
    std::printf(
        "index, %s: append %.2f us mean, %.2f us of 999 in 1,000, %.0f us at most; match and 7 guesses %.2f us; cut to "
        "half %.1f ms\n",
        name, sum / tokens, appends[appends.size() * 999 / 1000], appends.back(), match, (seconds() - begin) * 1e3);
}

}  // namespace

int main() {
    measure_sampler();
    constexpr int kTokens = 131072;
    std::mt19937 random(2);
    // Words by a Zipf-like law, passages that come again, one token alone, and a period.
    std::vector<int32_t> text;
    for (int i = 0; i < kTokens; ++i) {
        const double u = (random() + 1.0) / 4294967296.0;
        text.push_back(static_cast<int32_t>(1.0 / u) % 150000);
        if (i > 2000 && random() % 400 == 0)
            for (int j = 0, from = static_cast<int>(random() % 1000); j < 200; ++j, ++i)
                text.push_back(text[static_cast<size_t>(from + j)]);
    }
    measure_index("131,072 tokens of text with repeats", kTokens, [&](int i) { return text[static_cast<size_t>(i)]; });
    measure_index("131,072 times one token, then another", kTokens, [](int i) { return i < kTokens - 1 ? 7 : 8; });
    measure_index("131,072 tokens of period 1,000", kTokens, [](int i) { return i % 1000; });
    measure_index("131,072 random tokens of two kinds", kTokens,
                  [&](int) { return static_cast<int32_t>(random() % 2); });
}
