// The threads of the CPU device. A batch of tasks is one atomic word: threads claim the next task by adding one to it,
// so a thread that comes late, or is held up by the system, costs nothing as long as it has claimed nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace strata::cpu {

/// Runs batches of tasks on `threads` threads, the caller's own included. Workers wait for the next batch by watching
/// the word for about 50 us, then sleep. With more threads than usable CPUs nobody spins and only as many are woken as
/// can run.
class ThreadPool {
  public:
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    /// From now on the threads run on these processors only; the caller's from its next batch on. From any thread,
    /// once; what the system refuses stays as it is.
    void stay_on(const std::vector<int>& cpus);

    /// work(task, thread) for every task in [0, tasks), claimed in ascending order; returns when all are done. `thread`
    /// in [0, threads()) names the thread, the caller is 0. Work on a task may wait for tasks with lower numbers, never
    /// for higher ones. From one thread at a time, and not from inside of work; work does not throw. Which thread takes
    /// a task is left to timing, so no result may depend on it.
    template <class Work>
    void run(int tasks, Work&& work) {
        run_batch(
            tasks,
            [](void* context, int task, int, int thread) {
                (*static_cast<std::remove_reference_t<Work>*>(context))(task, thread);
            },
            const_cast<void*>(static_cast<const void*>(&work)), false);
    }

    /// The same for work(task, next, thread): `next` is the task that this thread will do after this one, -1 where it
    /// has none, so that its memory can be asked for early. Threads claim one task more than they work on: for short
    /// tasks.
    template <class Work>
    void run_ahead(int tasks, Work&& work) {
        run_batch(
            tasks,
            [](void* context, int task, int next, int thread) {
                (*static_cast<std::remove_reference_t<Work>*>(context))(task, next, thread);
            },
            const_cast<void*>(static_cast<const void*>(&work)), true);
    }

  private:
    using Function = void (*)(void* context, int task, int next, int thread);

    void run_batch(int tasks, Function function, void* context, bool ahead);
    void start_batch(int tasks);
    void take_tasks(int thread);
    void wait_for_batch(uint64_t seen);
    void worker(int thread);

    int wakes_ = 0;     // sleeping workers that a batch may wake
    bool spin_ = true;  // waits begin by watching the word

    // Batch number (24 bits), tasks (20), next task (20). Whoever adds one and finds next < tasks owns that task; until
    // it is done the batch stays open, so the fields below keep their values for its owner.
    alignas(64) std::atomic<uint64_t> word_{0};
    Function function_ = nullptr;
    void* context_ = nullptr;
    bool ahead_ = false;  // tasks are claimed one ahead
    int first_ = 0;       // task of the batch's task 0
    uint32_t tasks_ = 0;

    alignas(64) std::atomic<uint32_t> done_{0};    // tasks of the open batch that are done
    alignas(64) std::atomic<uint32_t> number_{0};  // of the batch: sleeping workers wait for its change
    std::atomic<bool> stop_{false};
    std::vector<int> cpus_;           // that threads stay on
    std::atomic<bool> moves_{false};  // the caller has yet to go there
    std::vector<std::thread> workers_;
};

/// Lets tasks of one batch wait until `count` earlier tasks of it have arrived.
class StageGate {
  public:
    explicit StageGate(int count) : left_(count) {}
    void arrive() { left_.fetch_sub(1, std::memory_order_release); }
    void wait() const;

  private:
    alignas(64) std::atomic<int> left_;
};

}  // namespace strata::cpu
