#include "cpu/thread_pool.h"

namespace strata::cpu {

ThreadPool::ThreadPool(int threads) {
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
    stop_.store(true);
    round_.fetch_add(1);
    round_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::dispatch(int tasks, Call call, void* context) {
    tasks_ = tasks;
    call_ = call;
    context_ = context;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    take_tasks(0);
    for (int left = busy_.load(std::memory_order_acquire); left != 0; left = busy_.load(std::memory_order_acquire))
        busy_.wait(left, std::memory_order_acquire);
}

void ThreadPool::take_tasks(int thread) {
    for (int task = next_.fetch_add(1, std::memory_order_relaxed); task < tasks_;
         task = next_.fetch_add(1, std::memory_order_relaxed))
        call_(context_, task, thread);
}

void ThreadPool::work(int thread) {
    uint32_t seen = 0;
    for (;;) {
        round_.wait(seen, std::memory_order_acquire);
        seen = round_.load(std::memory_order_acquire);
        if (stop_.load()) return;
        take_tasks(thread);
        if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
}

}  // namespace strata::cpu
