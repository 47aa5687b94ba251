// Threads that share the tasks of one operation after another.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace strata::cpu {

/// The calling thread and threads - 1 workers. Which thread takes a task is left to timing, so no result may depend on
/// it.
class ThreadPool {
  public:
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    /// work(task, thread) for every task of [0, tasks); returns when all are done. thread is in [0, threads()).
    /// From one thread at a time, and not from inside of work.
    template <class Work>
    void run(int tasks, Work&& work) {
        if (tasks <= 0) return;
        if (tasks == 1 || workers_.empty()) {
            for (int task = 0; task < tasks; ++task) work(task, 0);
            return;
        }
        dispatch(
            tasks,
            [](void* context, int task, int thread) {
                (*static_cast<std::remove_reference_t<Work>*>(context))(task, thread);
            },
            const_cast<void*>(static_cast<const void*>(&work)));
    }

  private:
    using Call = void (*)(void* context, int task, int thread);
    void dispatch(int tasks, Call call, void* context);
    void take_tasks(int thread);
    void work(int thread);

    std::vector<std::thread> workers_;
    std::atomic<uint32_t> round_{0};
    std::atomic<int> next_{0}, busy_{0};
    std::atomic<bool> stop_{false};
    int tasks_ = 0;
    Call call_ = nullptr;
    void* context_ = nullptr;
};

}  // namespace strata::cpu
