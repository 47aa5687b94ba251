// Who may use the engine: requests in order of arrival, as many at once as the engine has conversations for, the rest
// wait up to a bound. A switch of models waits for those that run and holds the others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

namespace strata::server {

class Queue {
  public:
    explicit Queue(size_t limit) : limit_(limit) {}

    /// A request's place, given back by its destructor. The queue outlives it.
    class Place {
      public:
        ~Place() { queue_.leave(*this); }
        /// Waits for its turn up to `patience`; true once it has come.
        bool wait(std::chrono::milliseconds patience) { return queue_.wait(*this, patience); }

      private:
        friend class Queue;
        explicit Place(Queue& queue) : queue_(queue) {}
        Queue& queue_;
        bool running_ = false;
    };

    /// Null when too many wait already.
    std::unique_ptr<Place> enter() {
        const std::lock_guard lock(mutex_);
        const bool must_wait = !waiting_.empty() || running_ >= slots_ || held_ > 0;
        if (must_wait && waiting_.size() >= limit_) return nullptr;
        std::unique_ptr<Place> place(new Place(*this));
        waiting_.push_back(place.get());
        return place;
    }

    void set_slots(size_t slots) {
        {
            const std::lock_guard lock(mutex_);
            slots_ = slots > 0 ? slots : 1;
        }
        changed_.notify_all();
    }

    /// Lets nobody new run and waits for those that run. False after `patience`; then everything is as before.
    bool hold(std::chrono::milliseconds patience) {
        std::unique_lock lock(mutex_);
        ++held_;
        if (changed_.wait_for(lock, patience, [&] { return running_ == 0; })) return true;
        --held_;
        lock.unlock();
        changed_.notify_all();
        return false;
    }
    void release() {
        {
            const std::lock_guard lock(mutex_);
            --held_;
        }
        changed_.notify_all();
    }

    size_t limit() const { return limit_; }
    size_t running() const {
        const std::lock_guard lock(mutex_);
        return running_;
    }
    size_t waiting() const {
        const std::lock_guard lock(mutex_);
        return waiting_.size();
    }
    size_t slots() const {
        const std::lock_guard lock(mutex_);
        return slots_;
    }

  private:
    bool wait(Place& place, std::chrono::milliseconds patience) {
        std::unique_lock lock(mutex_);
        if (place.running_) return true;
        const bool come = changed_.wait_for(
            lock, patience, [&] { return held_ == 0 && running_ < slots_ && waiting_.front() == &place; });
        if (!come) return false;
        waiting_.pop_front();
        ++running_;
        place.running_ = true;
        lock.unlock();
        changed_.notify_all();  // the next one may run too
        return true;
    }

    void leave(Place& place) {
        {
            const std::lock_guard lock(mutex_);
            if (place.running_)
                --running_;
            else
                waiting_.remove(&place);
        }
        changed_.notify_all();
    }

    const size_t limit_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Place*> waiting_;
    size_t running_ = 0;
    size_t slots_ = 1;
    int held_ = 0;
};

}  // namespace strata::server
