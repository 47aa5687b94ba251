// What the thread pool costs: a dispatch of empty tasks while the threads are warm, and the same work on more threads
// than the machine has processors.
//     pool_speed [threads] [many threads]
// A dispatch is run() with a task a thread that ends when all threads have come, from call to return, 300,000 in a row:
// their median and their mean. The work: 400 batches of 64 tasks of about 20 us, as a token's matrices make them; ratio
// to the time on `threads`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cpu/thread_pool.h"

namespace {

using strata::cpu::ThreadPool;

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void dispatches(int threads) {
    ThreadPool pool(threads);
    constexpr int kRuns = 300'000;
    std::vector<float> times;
    times.reserve(kRuns);
    const double start = seconds();
    for (int i = 0; i < kRuns; ++i) {
        const double from = seconds();
        strata::cpu::StageGate all(threads);
        pool.run(threads, [&](int, int) {
            all.arrive();
            all.wait();
        });
        times.push_back(static_cast<float>(seconds() - from));
    }
    const double all = seconds() - start;
    std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
    std::printf("%d threads: a dispatch %.2f us (median), %.2f us (mean)\n", threads, times[kRuns / 2] * 1e6,
                all / kRuns * 1e6);
}

/// About 20 us of arithmetic.
void work() {
    volatile float x = 1;
    for (int i = 0; i < 8'000; ++i) x = x * 0.999f + 0.001f;
}

double batches(int threads) {
    ThreadPool pool(threads);
    double best = 1e9;
    for (int run = 0; run < 5; ++run) {
        const double start = seconds();
        for (int i = 0; i < 400; ++i) pool.run(64, [](int, int) { work(); });
        best = std::min(best, seconds() - start);
    }
    return best;
}

}  // namespace

int main(int argc, char** argv) {
    const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
    const int many = argc > 2 ? std::max(1, std::atoi(argv[2])) : 20;
    dispatches(threads);
    const double few = batches(threads), more = batches(many);
    std::printf("400 batches of 64 tasks: %d threads %.1f ms, %d threads %.1f ms, %.2f times\n", threads, few * 1e3,
                many, more * 1e3, more / few);
}
