// The model in use and its engine: starts it when the first request needs it, starts it again when it ends, ends it
// when it hangs, switches to another model and back when that one does not start. docs/server.md, "The engine".
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "protocol/client.h"
#include "server/api_error.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/model_text.h"
#include "server/queue.h"
#include "setup/registry.h"

namespace strata::server {

struct HostOptions {
    std::filesystem::path home;                 // run configs and models/
    std::filesystem::path engine;               // for models whose run config names none
    std::vector<std::string> engine_arguments;  // behind the run config's
    std::chrono::milliseconds silence_limit{
        300'000};                               // an engine that is silent so long inside a request hangs; 0: none
    std::chrono::seconds switch_patience{120};  // for the requests that run
    std::chrono::seconds idle_unload{0};        // without requests; 0: never
};

/// What answers a request.
struct Serving {
    std::shared_ptr<const ModelText> text;
    std::shared_ptr<protocol::EngineProcess> engine;  // null: not loaded
};

class EngineHost {
  public:
    EngineHost(HostOptions options, Queue& queue, Metrics& metrics, Log& log);
    ~EngineHost();

    /// The model to begin with; reads its text and starts nothing.
    Result<void> choose(const ModelEntry& entry);
    /// Begins to load, if it is not loaded.
    void wish_loaded();

    enum class State { none, unloaded, loading, ready, failed };
    State state() const;
    /// The model in use and, when it is loaded, its engine.
    Serving serving() const;
    /// Waits up to `patience` for a loaded engine; nothing: not yet. A model that cannot be loaded is an error.
    std::optional<Api<Serving>> wait_ready(std::chrono::milliseconds patience);
    /// A request got its first token, or its end: the engine works.
    void answered();
    /// A request failed because its engine ended.
    void engine_ended(const std::shared_ptr<protocol::EngineProcess>& engine);

    /// To another installed model, or to the same one again. Waits for requests that run.
    Api<void> load(const ModelEntry& entry);
    Api<void> unload();
    /// The card's memory to leave free; absent: the start's rule.
    Api<protocol::Facts> vram(std::optional<int64_t> reserve_mib);

    /// The installed models; read anew where that was not done within the last seconds.
    Result<std::shared_ptr<const Registry>> registry(bool fresh = false);
    int64_t context() const;  // rows of a conversation of the model in use

    /// Ends the engine, for good.
    void shut_down();

  private:
    using Clock = std::chrono::steady_clock;

    void supervise();
    Result<void> start_engine(std::unique_lock<std::mutex>& lock);
    void note_failure(const std::string& why);
    Result<std::shared_ptr<protocol::EngineProcess>> launch(const ModelEntry& entry);
    std::chrono::seconds back_off() const;
    Api<void> hold_requests();

    const HostOptions options_;
    Queue& queue_;
    Metrics& metrics_;
    Log& log_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    State state_ = State::none;
    std::shared_ptr<const ModelText> text_;
    std::shared_ptr<protocol::EngineProcess> engine_;
    bool wanted_ = false;     // an engine should run
    bool switching_ = false;  // load or unload work on it
    std::string problem_;     // of the last start or end
    int failures_ = 0;        // since the last answer
    Clock::time_point retry_at_{};
    Clock::time_point last_used_ = Clock::now();
    std::atomic<bool> ending_{false};
    std::mutex switch_mutex_;  // one switch at a time
    std::mutex registry_mutex_;
    std::shared_ptr<const Registry> registry_;
    Clock::time_point registry_read_{};
    std::thread supervisor_;
};

std::string_view to_string(EngineHost::State state);

}  // namespace strata::server
