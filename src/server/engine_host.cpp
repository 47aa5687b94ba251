#include "server/engine_host.h"

#include <algorithm>

namespace strata::server {

using namespace std::chrono_literals;
using protocol::EngineProcess;

namespace {

constexpr auto kRegistryAge = 5s;
constexpr int kMostFailures = 3;  // without an answer between them; then requests are told at once

}  // namespace

std::string_view to_string(EngineHost::State state) {
    switch (state) {
        case EngineHost::State::none: return "none";
        case EngineHost::State::unloaded: return "unloaded";
        case EngineHost::State::loading: return "loading";
        case EngineHost::State::ready: return "loaded";
        case EngineHost::State::failed: return "failed";
    }
    return "none";
}

EngineHost::EngineHost(HostOptions options, Queue& queue, Metrics& metrics, Log& log)
    : options_(std::move(options)), queue_(queue), metrics_(metrics), log_(log) {
    supervisor_ = std::thread([this] { supervise(); });
}

EngineHost::~EngineHost() {
    shut_down();
}

void EngineHost::shut_down() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    if (supervisor_.joinable()) supervisor_.join();
    std::shared_ptr<EngineProcess> engine;
    {
        const std::lock_guard lock(mutex_);
        engine = std::move(engine_);
        state_ = State::unloaded;
    }
    if (engine) engine->quit();
}

Result<void> EngineHost::choose(const ModelEntry& entry) {
    STRATA_TRY_ASSIGN(auto text, ModelText::open(entry));
    for (const std::string& warning : text->tokenizer().warnings()) log_.debug(entry.id + ": " + warning);
    if (!text->chat()) log_.warning(entry.id + ": cannot chat: " + text->chat_problem());
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
    state_ = State::unloaded;
    failures_ = 0;
    return {};
}

Result<std::shared_ptr<const Registry>> EngineHost::registry(bool fresh) {
    const std::lock_guard lock(registry_mutex_);
    if (fresh || !registry_ || Clock::now() - registry_read_ > kRegistryAge) {
        STRATA_TRY_ASSIGN(Registry read, Registry::read(options_.home));
        registry_ = std::make_shared<const Registry>(std::move(read));
        registry_read_ = Clock::now();
    }
    return registry_;
}

void EngineHost::wish_loaded() {
    {
        const std::lock_guard lock(mutex_);
        if (state_ == State::none) return;
        wanted_ = true;
    }
    changed_.notify_all();
}

EngineHost::State EngineHost::state() const {
    const std::lock_guard lock(mutex_);
    return state_;
}

Serving EngineHost::serving() const {
    const std::lock_guard lock(mutex_);
    return {text_, state_ == State::ready ? engine_ : nullptr};
}

int64_t EngineHost::context() const {
    const std::lock_guard lock(mutex_);
    if (state_ == State::ready && engine_) return engine_->ready().max_context;
    return text_ ? text_->entry().context() : 0;
}

std::optional<Api<Serving>> EngineHost::wait_ready(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    const auto settled = [&] {
        return ending_.load() || state_ == State::none || (state_ == State::ready && engine_->alive()) ||
               (state_ == State::failed && Clock::now() < retry_at_);
    };
    last_used_ = Clock::now();
    if (!settled()) {
        wanted_ = true;
        changed_.notify_all();
        if (!changed_.wait_for(lock, patience, settled)) return std::nullopt;
    }
    if (ending_) return Api<Serving>(unavailable("the server is shutting down", "shutting_down"));
    if (state_ == State::none) return Api<Serving>(unavailable("no model is loaded", "no_model"));
    if (state_ == State::failed) {
        ApiError error = unavailable("the model cannot be loaded: " + problem_, "no_model");
        error.retry_after = static_cast<int>(std::max<int64_t>(
            1, std::chrono::duration_cast<std::chrono::seconds>(retry_at_ - Clock::now()).count() + 1));
        return Api<Serving>(std::move(error));
    }
    return Api<Serving>(Serving{text_, engine_});
}

void EngineHost::answered() {
    const std::lock_guard lock(mutex_);
    failures_ = 0;
    last_used_ = Clock::now();
}

void EngineHost::engine_ended(const std::shared_ptr<EngineProcess>& engine) {
    {
        const std::lock_guard lock(mutex_);
        if (engine_ == engine) last_used_ = Clock::now();
    }
    changed_.notify_all();  // the supervisor looks at once
}

std::chrono::seconds EngineHost::back_off() const {
    // The first start after an end is at once: a crash costs the requests that ran, no more.
    if (failures_ <= 1) return 0s;
    return std::chrono::seconds(std::min(60, 1 << std::min(failures_ - 1, 6)));
}

void EngineHost::note_failure(const std::string& why) {
    ++failures_;
    problem_ = why;
    retry_at_ = Clock::now() + back_off();
    metrics_.engine_failed();
}

Result<std::shared_ptr<EngineProcess>> EngineHost::launch(const ModelEntry& entry) {
    protocol::EngineOptions options;
    const std::filesystem::path engine = entry.config.engine.empty() ? options_.engine : entry.config.engine;
    options.process.command = {engine.string()};
    for (const auto* arguments : {&entry.config.arguments, &options_.engine_arguments})
        options.process.command.insert(options.process.command.end(), arguments->begin(), arguments->end());
    options.process.directory = entry.config.folder.string();
    options.process.environment = entry.config.environment;
    options.log = [&log = log_](const std::string& line) { log.info("engine: " + line); };
    STRATA_TRY_ASSIGN(auto process, EngineProcess::start(std::move(options), [this] { return ending_.load(); }));
    return std::shared_ptr<EngineProcess>(std::move(process));
}

/// Starts the engine of the model in use. The lock is open meanwhile.
Result<void> EngineHost::start_engine(std::unique_lock<std::mutex>& lock) {
    state_ = State::loading;
    const ModelEntry entry = text_->entry();
    lock.unlock();
    log_.info("loading " + entry.id);
    const auto began = Clock::now();
    auto started = launch(entry);
    lock.lock();
    if (!started) return started.error();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count();
    engine_ = std::move(*started);
    metrics_.engine_started();
    const protocol::Facts facts = engine_->facts();
    const auto parallel = facts.find("parallel");
    queue_.set_slots(parallel != facts.end() ? static_cast<size_t>(std::max(1, std::atoi(parallel->second.c_str())))
                                             : 1);
    state_ = State::ready;
    problem_.clear();
    last_used_ = Clock::now();
    log_.info("loaded " + entry.id + " in " + std::to_string(ms) + " ms, context " +
              std::to_string(engine_->ready().max_context) + ", " + std::to_string(queue_.slots()) + " at once");
    return {};
}

/// Keeps an engine running while one is wanted.
void EngineHost::supervise() {
    std::unique_lock lock(mutex_);
    Clock::time_point next_look{};
    while (!ending_) {
        if (Clock::now() >= next_look) {
            next_look = Clock::now() + HardwareHistory::kInterval;
            metrics_.sample_hardware(engine_ ? engine_->pid() : 0);
        }
        changed_.wait_for(lock, 250ms);
        if (ending_ || switching_) continue;
        if (state_ == State::ready) {
            const auto engine = engine_;
            const bool hung = options_.silence_limit.count() > 0 && engine->silence() > options_.silence_limit;
            const bool idle = options_.idle_unload.count() > 0 && queue_.running() == 0 && queue_.waiting() == 0 &&
                              Clock::now() - last_used_ > options_.idle_unload;
            if (engine->alive() && !hung && !idle) continue;
            engine_.reset();
            state_ = State::unloaded;
            if (idle) {
                wanted_ = false;
                log_.info("unloading " + text_->entry().id + ": not used for a while");
                lock.unlock();
                engine->quit();
                lock.lock();
                continue;
            }
            const std::vector<std::string> words = engine->log_tail();
            lock.unlock();
            const int code = engine->quit(0ms);
            lock.lock();
            const std::string how =
                hung ? "it said nothing for " + seconds_text(options_.silence_limit) + " and was ended"
                     : "it ended with code " + std::to_string(code) + (code == 137 ? " (killed: out of memory?)" : "") +
                           (words.empty() ? "" : ": " + words.back());
            log_.error("the engine of " + text_->entry().id + " failed: " + how);
            note_failure("the engine failed: " + how);
            if (failures_ >= kMostFailures) state_ = State::failed;
            changed_.notify_all();
        }
        const bool may_start = wanted_ && (state_ == State::unloaded || state_ == State::failed) && text_;
        if (!may_start || Clock::now() < retry_at_) continue;
        if (auto started = start_engine(lock); !started) {
            if (ending_) break;
            log_.error("cannot load " + text_->entry().id + ": " + started.error().message);
            note_failure(started.error().message);
            retry_at_ = std::max(retry_at_, Clock::now() + 2s);
            state_ = State::failed;
            wanted_ = false;  // the next request tries again
        }
        changed_.notify_all();
    }
}

Api<void> EngineHost::hold_requests() {
    if (queue_.hold(options_.switch_patience)) return {};
    ApiError error;
    error.status = 409;
    error.code = "busy";
    error.message =
        "a request still runs after " + std::to_string(options_.switch_patience.count()) + " s; try again later";
    return error;
}

Api<void> EngineHost::load(const ModelEntry& entry) {
    const std::lock_guard one_at_a_time(switch_mutex_);
    if (!entry.available()) return unavailable(entry.problem, "no_model");
    auto text = ModelText::open(entry);
    if (!text) return unavailable(text.error().message, "no_model");
    STRATA_TRY(hold_requests());
    std::unique_lock lock(mutex_);
    switching_ = true;
    changed_.wait(lock, [&] { return state_ != State::loading; });
    const auto earlier_text = text_;
    const auto earlier_engine = std::move(engine_);
    engine_.reset();
    const bool was_loaded = earlier_engine != nullptr;
    text_ = std::move(*text);
    state_ = State::loading;
    lock.unlock();
    if (earlier_engine) {
        log_.info("unloading " + earlier_text->entry().id);
        earlier_engine->quit();
    }
    lock.lock();
    Result<void> started = start_engine(lock);
    Api<void> result;
    if (!started) {
        std::string sentence = entry.id + " cannot be loaded: " + started.error().message;
        log_.error(sentence);
        metrics_.engine_failed();
        text_ = earlier_text;
        state_ = text_ ? State::unloaded : State::none;
        if (was_loaded && text_ && !ending_) {
            if (start_engine(lock))
                sentence += "; " + text_->entry().id + " is loaded again";
            else
                state_ = State::unloaded;
        }
        result = unavailable(sentence, "no_model");
    } else {
        failures_ = 0;
        wanted_ = true;
    }
    retry_at_ = {};
    switching_ = false;
    lock.unlock();
    changed_.notify_all();
    queue_.release();
    return result;
}

Api<void> EngineHost::unload() {
    const std::lock_guard one_at_a_time(switch_mutex_);
    STRATA_TRY(hold_requests());
    std::unique_lock lock(mutex_);
    switching_ = true;
    changed_.wait(lock, [&] { return state_ != State::loading; });
    const auto engine = std::move(engine_);
    engine_.reset();
    if (state_ != State::none) state_ = State::unloaded;
    wanted_ = false;
    lock.unlock();
    if (engine) {
        log_.info("unloading " + text_->entry().id);
        engine->quit();
    }
    lock.lock();
    switching_ = false;
    failures_ = 0;
    retry_at_ = {};
    lock.unlock();
    changed_.notify_all();
    queue_.release();
    return {};
}

Api<protocol::Facts> EngineHost::vram(std::optional<int64_t> reserve_mib) {
    const std::lock_guard one_at_a_time(switch_mutex_);
    const Serving now = serving();
    ApiError error;
    if (!now.engine) {
        error.status = 409;
        error.code = "not_loaded";
        error.message = "no model is loaded";
        return error;
    }
    STRATA_TRY(hold_requests());
    auto facts = now.engine->command("VRAM " + (reserve_mib ? std::to_string(*reserve_mib) : "default"), 30s);
    queue_.release();
    if (!facts) {
        error.code = "unsupported_value";
        error.message = facts.error().message;
        return error;
    }
    return std::move(*facts);
}

}  // namespace strata::server
