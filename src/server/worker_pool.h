// Threads for work that may wait. Grows to a limit, keeps what it has grown.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace strata::server {

class WorkerPool {
  public:
    explicit WorkerPool(size_t most) : most_(most) {}
    ~WorkerPool() { join(); }

    void run(std::function<void()> task) {
        {
            const std::lock_guard lock(mutex_);
            if (ended_) return;
            tasks_.push_back(std::move(task));
            if (tasks_.size() > idle_ && threads_.size() < most_) threads_.emplace_back([this] { work(); });
        }
        changed_.notify_one();
    }

    /// Takes no more, finishes what there is.
    void join() {
        {
            const std::lock_guard lock(mutex_);
            ended_ = true;
        }
        changed_.notify_all();
        for (std::thread& thread : threads_)
            if (thread.joinable()) thread.join();
    }

  private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            ++idle_;
            changed_.wait(lock, [&] { return ended_ || !tasks_.empty(); });
            --idle_;
            if (tasks_.empty()) return;
            const std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    const size_t most_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::vector<std::thread> threads_;
    size_t idle_ = 0;
    bool ended_ = false;
};

}  // namespace strata::server
