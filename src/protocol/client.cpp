#include "protocol/client.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <unistd.h>

#include "base/numbers.h"

namespace strata::protocol {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLogLines = 50;

/// Calls `line` for every line that arrives at `fd`, until its end.
template <class Line>
void read_lines(int fd, Line line) {
    std::string pending;
    char buffer[16384];
    while (true) {
        const ssize_t got = read(fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        std::string_view piece(buffer, static_cast<size_t>(got));
        for (size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
            pending += piece.substr(0, end);
            line(std::string_view(pending));
            pending.clear();
            piece.remove_prefix(end + 1);
        }
        pending += piece;
        if (pending.size() > kMaxLine) pending.clear();  // nobody's protocol
    }
    if (!pending.empty()) line(std::string_view(pending));
}

bool is_last(const Event& event) {
    return std::holds_alternative<Done>(event) || std::holds_alternative<Error>(event);
}

}  // namespace

// ---- a request
// --------------------------------------------------------------------------------------------------------------

Generation::~Generation() {
    engine_.drop(*this);
}

std::optional<Event> Generation::next(std::chrono::milliseconds timeout) {
    std::unique_lock lock(engine_.mutex_);
    const auto has_event = [&] { return !events_.empty() || ended_; };
    if (timeout.count() < 0)
        arrived_.wait(lock, has_event);
    else
        arrived_.wait_for(lock, timeout, has_event);
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    ended_ = is_last(event);
    return event;
}

bool Generation::pending() const {
    const std::lock_guard lock(engine_.mutex_);
    return !events_.empty();
}

void Generation::stop() {
    {
        const std::lock_guard lock(engine_.mutex_);
        if (stopped_ || closed_) return;
        stopped_ = true;
    }
    engine_.send(format_stop(id_));
}

// ---- the process
// ------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<EngineProcess>> EngineProcess::start(EngineOptions options,
                                                            const std::function<bool()>& cancel) {
    ignore_broken_pipes();
    std::unique_ptr<EngineProcess> engine(new EngineProcess(std::move(options)));
    STRATA_TRY_ASSIGN(engine->process_, Process::start(engine->options_.process));
    engine->pid_ = engine->process_.pid();
    engine->output_thread_ = std::thread([e = engine.get()] { e->read_output(); });
    engine->errors_thread_ = std::thread([e = engine.get()] { e->read_errors(); });
    STRATA_TRY(engine->wait_ready(cancel));
    return Result<std::unique_ptr<EngineProcess>>(std::move(engine));
}

EngineProcess::~EngineProcess() {
    quit();
}

Result<void> EngineProcess::wait_ready(const std::function<bool()>& cancel) {
    const auto begin = Clock::now();
    std::unique_lock lock(mutex_);
    while (!is_ready_ && output_open_) {
        changed_.wait_for(lock, std::chrono::milliseconds(100));
        const bool late = options_.start_timeout.count() > 0 && Clock::now() - begin > options_.start_timeout;
        if (is_ready_ || !(late || (cancel && cancel()))) continue;
        lock.unlock();
        quit(std::chrono::milliseconds(0));
        return failure(late ? "the engine was not ready after " + std::to_string(options_.start_timeout.count()) + " s"
                            : "the start of the engine was cancelled");
    }
    const bool ready = is_ready_;
    lock.unlock();
    if (ready) return {};
    return end_error();
}

bool EngineProcess::can(std::string_view capability) const {
    return std::find(ready_.capabilities.begin(), ready_.capabilities.end(), capability) != ready_.capabilities.end();
}

Facts EngineProcess::facts() const {
    const std::lock_guard lock(mutex_);
    return facts_;
}

std::unique_ptr<Generation> EngineProcess::submit(const GenerateRequest& request) {
    std::unique_ptr<Generation> generation;
    {
        const std::lock_guard lock(mutex_);
        generation.reset(new Generation(*this, next_id_++));
        running_.push_back({generation->id_, generation.get()});
        last_line_ = Clock::now();
    }
    // A failed write needs no answer here: the end of the output ends every request.
    const bool sent = alive() && send(format_generate(request, generation->id_));
    if (!sent) deliver(generation->id_, end_error());
    return generation;
}

Result<Done> EngineProcess::generate(const GenerateRequest& request, const Callbacks& callbacks) {
    const auto generation = submit(request);
    while (true) {
        Event event = *generation->next();
        if (auto* progress = std::get_if<Progress>(&event)) {
            if (callbacks.progress) callbacks.progress(*progress);
        } else if (auto* reused = std::get_if<Reused>(&event)) {
            if (callbacks.reused) callbacks.reused(*reused);
        } else if (auto* token = std::get_if<Token>(&event)) {
            if (callbacks.token && !callbacks.token(*token)) generation->stop();
        } else if (auto* done = std::get_if<Done>(&event)) {
            return std::move(*done);
        } else {
            return std::get<Error>(std::move(event));
        }
    }
}

void EngineProcess::stop_all() {
    std::vector<uint64_t> ids;
    {
        const std::lock_guard lock(mutex_);
        for (const Entry& entry : running_) {
            if (!entry.generation || entry.generation->stopped_) continue;
            entry.generation->stopped_ = true;
            ids.push_back(entry.id);
        }
    }
    for (const uint64_t id : ids) send(format_stop(id));
}

Result<Facts> EngineProcess::command(const std::string& line, std::chrono::milliseconds timeout) {
    const std::lock_guard one_at_a_time(command_mutex_);
    {
        const std::lock_guard lock(mutex_);
        answer_.reset();
        command_waits_ = true;
    }
    const bool sent = send(line);
    std::unique_lock lock(mutex_);
    if (sent) changed_.wait_for(lock, timeout, [&] { return answer_.has_value() || !output_open_; });
    command_waits_ = false;
    if (answer_) return *std::exchange(answer_, std::nullopt);
    const bool open = output_open_;
    lock.unlock();
    if (open && sent) return failure("the engine did not answer '" + line + "'");
    return end_error();
}

bool EngineProcess::alive() const {
    const std::lock_guard lock(mutex_);
    return output_open_;
}

std::chrono::milliseconds EngineProcess::silence() const {
    const std::lock_guard lock(mutex_);
    if (running_.empty()) return {};
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - last_line_);
}

std::vector<std::string> EngineProcess::log_tail() const {
    const std::lock_guard lock(mutex_);
    return {log_.begin(), log_.end()};
}

int EngineProcess::quit(std::chrono::milliseconds patience) {
    const std::lock_guard lock(end_mutex_);
    if (patience.count() > 0) {
        // A writer that hangs on a full pipe holds the mutex; the engine is past asking then.
        if (std::unique_lock write(write_mutex_, std::try_to_lock); write && process_.input) {
            write_all(process_.input.get(), "QUIT\n");
            process_.input.close();
        }
        process_.wait(static_cast<int>(patience.count()));
    }
    process_.kill();
    if (output_thread_.joinable()) output_thread_.join();
    if (errors_thread_.joinable()) errors_thread_.join();
    return process_.exit_code();
}

bool EngineProcess::send(const std::string& line) {
    const std::lock_guard lock(write_mutex_);
    return process_.input && write_all(process_.input.get(), line + "\n");
}

// ---- what the engine says
// ---------------------------------------------------------------------------------------------------

void EngineProcess::read_output() {
    read_lines(process_.output.get(), [&](std::string_view line) { take(parse_reply(line)); });
    output_ended();
}

void EngineProcess::read_errors() {
    read_lines(process_.errors.get(), [&](std::string_view line) {
        {
            const std::lock_guard lock(mutex_);
            log_.emplace_back(line);
            if (log_.size() > kLogLines) log_.pop_front();
        }
        if (options_.log) options_.log(std::string(line));
    });
    {
        const std::lock_guard lock(mutex_);
        errors_open_ = false;
    }
    changed_.notify_all();
}

void EngineProcess::take(Reply reply) {
    if (auto* token = std::get_if<Token>(&reply.what)) return deliver(reply.id, std::move(*token));
    if (auto* progress = std::get_if<Progress>(&reply.what)) return deliver(reply.id, *progress);
    if (auto* reused = std::get_if<Reused>(&reply.what)) return deliver(reply.id, *reused);
    if (auto* done = std::get_if<Done>(&reply.what)) return deliver(reply.id, std::move(*done));
    bool tell = false;
    {
        const std::lock_guard lock(mutex_);
        last_line_ = Clock::now();
        if (auto* info = std::get_if<Info>(&reply.what)) {
            for (const auto& [key, value] : info->facts) facts_[key] = value;
            if (command_waits_ && running_.empty()) answer_ = Result<Facts>(info->facts);
            tell = is_ready_;
        } else if (auto* ready = std::get_if<Ready>(&reply.what)) {
            if (!is_ready_) ready_ = std::move(*ready);
            is_ready_ = true;
        } else if (auto* failed = std::get_if<Failed>(&reply.what);
                   failed && !reply.id && running_.empty() && command_waits_) {
            answer_ = Result<Facts>(failure(failed->message));
        }
    }
    changed_.notify_all();
    if (auto* failed = std::get_if<Failed>(&reply.what)) {
        const bool refused = failed->message.starts_with("bad request");
        deliver(reply.id, refused ? usage_error(failed->message) : failure(failed->message));
    }
    if (tell && options_.info) options_.info(std::get<Info>(reply.what).facts);
}

void EngineProcess::output_ended() {
    std::vector<uint64_t> ids;
    {
        const std::lock_guard lock(mutex_);
        output_open_ = false;
        for (const Entry& entry : running_) ids.push_back(entry.id);
    }
    changed_.notify_all();
    if (ids.empty()) return;
    const Error error = end_error();
    for (const uint64_t id : ids) deliver(id, error);
}

/// Gives an event to the request of that id; a reply without one belongs to the oldest.
void EngineProcess::deliver(std::optional<uint64_t> id, Event event) {
    const std::lock_guard lock(mutex_);
    last_line_ = Clock::now();
    const auto entry =
        std::find_if(running_.begin(), running_.end(), [&](const Entry& e) { return !id || e.id == *id; });
    if (entry == running_.end()) return;
    const bool last = is_last(event);
    if (Generation* generation = entry->generation) {
        generation->closed_ = last;
        generation->events_.push_back(std::move(event));
        generation->arrived_.notify_one();  // under the mutex: its owner may end it right after
    }
    if (last) running_.erase(entry);
}

void EngineProcess::drop(Generation& generation) {
    bool stop = false;
    {
        const std::lock_guard lock(mutex_);
        for (Entry& entry : running_) {
            if (entry.generation != &generation) continue;
            entry.generation = nullptr;
            stop = !generation.stopped_;
        }
    }
    if (stop) send(format_stop(generation.id_));
}

/// Why the output ended: by the exit code, with the last words of the log.
Error EngineProcess::end_error() {
    std::string how = "its output ended";
    int code = -1;
    // The thread of quit holds end_mutex_ while it joins the threads that call this: do not wait for it.
    if (std::unique_lock lock(end_mutex_, std::try_to_lock); lock) {
        if (process_.wait(1000)) how = process_.exit_text();
        code = process_.exit_code();
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(500), [&] { return !errors_open_; });
    const std::string last = log_.empty() ? "" : log_.back();
    Error error = failure((is_ready_ ? "the engine stopped (" : "the engine did not start (") + how + ")" +
                          (last.empty() ? "" : ": " + last));
    if (code == 2) error.kind = ErrorKind::usage;
    if (code == 3) error.kind = ErrorKind::file;
    if (code == 4) error.kind = ErrorKind::device;
    error.code = "engine-ended";
    return error;
}

}  // namespace strata::protocol
