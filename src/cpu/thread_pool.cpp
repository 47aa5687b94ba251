#include "cpu/thread_pool.h"

#include <algorithm>
#include <chrono>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace strata::cpu {
namespace {

constexpr int kIndexBits = 20;
constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;
constexpr int kNumberShift = 2 * kIndexBits;
// Every worker adds at most twice to the word of a batch in vain; the margin keeps that out of the next field.
constexpr int kMaxTasks = (1 << kIndexBits) - (1 << 14);
constexpr std::chrono::microseconds kSpinTime{50};

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#if defined(__linux__)
void move_thread(pthread_t thread, const std::vector<int>& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus)
        if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    pthread_setaffinity_np(thread, sizeof set, &set);
}
#endif

int usable_cpus() {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Watches until ready() or the time is over.
template <class Ready>
bool spin(const Ready& ready) {
    const auto end = std::chrono::steady_clock::now() + kSpinTime;
    do {
        for (int i = 0; i < 64; ++i) {
            if (ready()) return true;
            pause();
        }
    } while (std::chrono::steady_clock::now() < end);
    return ready();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
    const int cpus = usable_cpus();
    wakes_ = std::min(threads, cpus) - 1;
    spin_ = threads <= cpus;
    workers_.reserve(static_cast<size_t>(std::max(0, threads - 1)));
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { worker(thread); });
}

ThreadPool::~ThreadPool() {
    stop_.store(true, std::memory_order_relaxed);
    start_batch(0);
    number_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::stay_on(const std::vector<int>& cpus) {
    cpus_ = cpus;
#if defined(__linux__)
    for (std::thread& worker : workers_) move_thread(worker.native_handle(), cpus_);
#endif
    moves_.store(true, std::memory_order_release);
}

void ThreadPool::run_batch(int tasks, Function function, void* context, bool ahead) {
#if defined(__linux__)
    if (moves_.load(std::memory_order_acquire)) {
        moves_.store(false, std::memory_order_relaxed);
        move_thread(pthread_self(), cpus_);
    }
#endif
    if (workers_.empty() || tasks <= 1) {
        for (int i = 0; i < tasks; ++i) function(context, i, i + 1 < tasks ? i + 1 : -1, 0);
        return;
    }
    function_ = function;
    context_ = context;
    ahead_ = ahead;
    for (first_ = 0; first_ < tasks; first_ += kMaxTasks) {
        start_batch(std::min(kMaxTasks, tasks - first_));
        take_tasks(0);
        const auto finished = [this] { return done_.load(std::memory_order_acquire) == tasks_; };
        if (spin_ && spin(finished)) continue;
        for (uint32_t done; (done = done_.load(std::memory_order_acquire)) != tasks_;)
            done_.wait(done, std::memory_order_acquire);
    }
}

void ThreadPool::start_batch(int tasks) {
    tasks_ = static_cast<uint32_t>(tasks);
    done_.store(0, std::memory_order_relaxed);
    const uint32_t number = (number_.load(std::memory_order_relaxed) + 1) & 0xffffff;
    word_.store(static_cast<uint64_t>(number) << kNumberShift | static_cast<uint64_t>(tasks) << kIndexBits,
                std::memory_order_release);
    number_.store(number, std::memory_order_release);
    const int wakes = std::min(tasks - 1, wakes_);  // the caller works, too
    if (wakes == threads() - 1)
        number_.notify_all();
    else
        for (int i = 0; i < wakes; ++i) number_.notify_one();
}

void ThreadPool::take_tasks(int thread) {
    // The next task of the open batch, -1 where all are claimed.
    const auto claim = [this] {
        const uint64_t word = word_.fetch_add(1, std::memory_order_acq_rel);
        const uint64_t index = word & kIndexMask;
        return index < (word >> kIndexBits & kIndexMask) ? static_cast<int>(index) : -1;
    };
    uint32_t done = 0;
    for (int task = claim(), next = -1; task >= 0; task = next) {
        if (ahead_) next = claim();
        function_(context_, first_ + task, next >= 0 ? first_ + next : -1, thread);
        ++done;
        if (!ahead_) next = claim();
    }
    // Nothing of the batch may be read once its last task is reported: the caller may begin the next one.
    if (done == 0) return;
    const uint32_t tasks = tasks_;
    if (done_.fetch_add(done, std::memory_order_acq_rel) + done == tasks) done_.notify_one();
}

void ThreadPool::wait_for_batch(uint64_t seen) {
    const auto changed = [&] { return word_.load(std::memory_order_acquire) >> kNumberShift != seen; };
    if (spin_ && spin(changed)) return;
    while (!changed()) number_.wait(static_cast<uint32_t>(seen), std::memory_order_acquire);
}

void ThreadPool::worker(int thread) {
    uint64_t seen = 0;
    for (;;) {
        wait_for_batch(seen);
        if (stop_.load(std::memory_order_relaxed)) return;
        seen = word_.load(std::memory_order_acquire) >> kNumberShift;
        take_tasks(thread);
    }
}

void StageGate::wait() const {
    for (int i = 0; left_.load(std::memory_order_acquire) > 0; ++i) {
        if (i < 4096)
            pause();
        else
            std::this_thread::yield();  // whoever is awaited may need this CPU
    }
}

}  // namespace strata::cpu
