// The server's end of the line protocol (docs/protocol.md): starts an engine as a child process, sends requests,
// streams replies. Any program that speaks the protocol is an engine. POSIX; ignores SIGPIPE of the whole process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/result.h"
#include "protocol/lines.h"
#include "protocol/process.h"

namespace strata::protocol {

struct EngineOptions {
    ProcessOptions process;
    std::chrono::seconds start_timeout{0};  // for READY; 0: as long as it takes
    std::function<void(const std::string& line)>
        log;                                 // every line of the engine's standard error, from a thread of its own
    std::function<void(const Facts&)> info;  // INFO lines after READY, from a thread of its own
};

/// What comes back for a request: progress, tokens, and one Done or Error at the end.
using Event = std::variant<Progress, Reused, Token, Done, Error>;

class EngineProcess;

/// A request on its way. Its owner takes the events from one thread; stop may come from any. Dropping one that has not
/// ended stops it. Must not outlive its EngineProcess.
class Generation {
  public:
    ~Generation();
    /// The next event, or nothing within `timeout` (negative: waits as long as it takes). After Done or Error there are
    /// no more.
    std::optional<Event> next(std::chrono::milliseconds timeout = std::chrono::milliseconds(-1));
    /// Asks the engine to stop; Done with finish "cancel" follows. Idempotent.
    void stop();
    /// Whether the next event is here already.
    bool pending() const;
    bool ended() const { return ended_; }
    uint64_t id() const { return id_; }

  private:
    friend class EngineProcess;
    Generation(EngineProcess& engine, uint64_t id) : engine_(engine), id_(id) {}

    EngineProcess& engine_;
    const uint64_t id_;
    bool ended_ = false;    // the owner's: the last event was taken
    bool stopped_ = false;  // under the engine's mutex, as all below
    bool closed_ = false;   // Done or Error is in the queue or was taken
    std::deque<Event> events_;
    std::condition_variable arrived_;  // its own: a token wakes the request that it belongs to, and no other
};

/// A running engine. All functions are safe from any thread.
class EngineProcess {
  public:
    /// Starts it and waits for READY. An engine that ends before gives an error of its exit code's kind with the last
    /// line of its log. `cancel` true ends the start.
    static Result<std::unique_ptr<EngineProcess>> start(EngineOptions options,
                                                        const std::function<bool()>& cancel = {});
    ~EngineProcess();

    const Ready& ready() const { return ready_; }
    bool can(std::string_view capability) const;
    /// All facts of INFO lines so far.
    Facts facts() const;

    /// Sends a request. Requests may overlap: the engine runs them together or one after another.
    std::unique_ptr<Generation> submit(const GenerateRequest& request);

    struct Callbacks {
        std::function<void(const Progress&)> progress;
        std::function<void(const Reused&)> reused;
        std::function<bool(const Token&)> token;  // false: stop
    };
    /// Sends a request and waits for its end.
    Result<Done> generate(const GenerateRequest& request, const Callbacks& callbacks);

    /// Stops every request that runs or waits.
    void stop_all();
    /// A command between requests that is answered by one INFO or ERR line: "VRAM 2048", "SAVE path".
    Result<Facts> command(const std::string& line, std::chrono::milliseconds timeout);

    /// False once the process has ended or closed its output.
    bool alive() const;
    /// How long the requests that run have been without a word of the engine; 0 where none runs.
    std::chrono::milliseconds silence() const;
    /// The last lines of its standard error, oldest first.
    std::vector<std::string> log_tail() const;
    pid_t pid() const { return pid_; }

    /// QUIT, then up to `patience`, then SIGKILL; no patience: SIGKILL at once. Returns the exit code. Requests that
    /// run end with an Error. The object is of no use afterwards.
    int quit(std::chrono::milliseconds patience = std::chrono::seconds(5));

  private:
    friend class Generation;
    explicit EngineProcess(EngineOptions options) : options_(std::move(options)) {}

    Result<void> wait_ready(const std::function<bool()>& cancel);
    void read_output();
    void read_errors();
    void take(Reply reply);
    void output_ended();
    void deliver(std::optional<uint64_t> id, Event event);
    void drop(Generation& generation);
    bool send(const std::string& line);
    Error end_error();

    EngineOptions options_;
    Process process_;
    pid_t pid_ = -1;
    std::thread output_thread_, errors_thread_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;  // everything but the events of requests
    Ready ready_;
    bool is_ready_ = false;
    bool output_open_ = true;
    bool errors_open_ = true;
    Facts facts_;
    struct Entry {
        uint64_t id;
        Generation* generation;  // null: dropped by its owner, the engine has not answered yet
    };
    std::deque<Entry> running_;            // oldest first
    std::optional<Result<Facts>> answer_;  // of `command`
    bool command_waits_ = false;
    uint64_t next_id_ = 1;
    std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
    std::deque<std::string> log_;

    std::mutex write_mutex_;    // one line at a time
    std::mutex command_mutex_;  // one command at a time
    std::mutex end_mutex_;      // process_'s end
};

}  // namespace strata::protocol
