// What requests do now, for /status and the monitor.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "text/json.h"

namespace strata::server {

enum class Phase { waiting, loading, reading, thinking, answering, calling };

struct Activity {
    std::string id, path, model;
    std::atomic<Phase> phase{Phase::waiting};
    std::atomic<int64_t> prompt{0}, read{0}, written{0};
    std::atomic<int64_t> first_token_ns{0};  // since `began`; 0: none yet
    const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();

    Json json() const {
        static constexpr const char* kNames[] = {"waiting",  "loading the model", "reading the prompt",
                                                 "thinking", "answering",         "writing a tool call"};
        const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        const double writing = elapsed - static_cast<double>(first_token_ns.load()) / 1e9;
        const int64_t tokens = written.load();
        return {{"id", id},
                {"path", path},
                {"model", model},
                {"phase", kNames[static_cast<int>(phase.load())]},
                {"prompt_tokens", prompt.load()},
                {"read", read.load()},
                {"generated", tokens},
                {"tokens_per_second", tokens > 1 && writing > 0 ? static_cast<double>(tokens - 1) / writing : 0.0},
                {"elapsed_s", elapsed}};
    }
};

class Activities {
  public:
    std::shared_ptr<Activity> add(std::string id, std::string path) {
        auto one = std::make_shared<Activity>();
        one->id = std::move(id);
        one->path = std::move(path);
        const std::lock_guard lock(mutex_);
        std::erase_if(all_, [](const auto& weak) { return weak.expired(); });
        all_.push_back(one);
        return one;
    }
    Json json() const {
        const std::lock_guard lock(mutex_);
        Json out = Json::array();
        for (const auto& weak : all_)
            if (const auto one = weak.lock()) out.push_back(one->json());
        return out;
    }

  private:
    mutable std::mutex mutex_;
    std::list<std::weak_ptr<Activity>> all_;
};

}  // namespace strata::server
