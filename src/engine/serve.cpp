#include "engine/serve.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include "base/numbers.h"
#include "engine/state_copy.h"
#include "protocol/lines.h"
#include "protocol/process.h"

namespace strata {
namespace {

using namespace std::chrono_literals;
using namespace protocol;

constexpr int kStuckAfter = 60;  // seconds

/// The end of the pipe that wakes the reader, for interrupt_serve; -1 while nothing serves.
std::atomic<int> wake_writer{-1};
/// An interrupt may come before the reader is there to be woken: it looks here when it starts.
std::atomic<bool> interrupted{false};

// ---- what goes out
// ----------------------------------------------------------------------------------------------------------

/// Standard output, line by line. A reader that went away makes it broken.
class Output {
  public:
    void put(const Reply& reply) {
        buffer_ += format_reply(reply);
        buffer_ += '\n';
    }
    void flush() {
        if (!buffer_.empty() && !broken_) {
            writing_ = true;
            broken_ = !write_all(STDOUT_FILENO, buffer_);
            writing_ = false;
            ++writes_;
        }
        buffer_.clear();
    }
    bool broken() const { return broken_; }
    bool writing() const { return writing_; }
    uint64_t writes() const { return writes_; }

  private:
    std::string buffer_;
    std::atomic<bool> broken_{false}, writing_{false};
    std::atomic<uint64_t> writes_{0};
};

/// A request on its way: writes its replies.
class LineAnswer : public Answer {
  public:
    LineAnswer(Output& output, std::optional<uint64_t> id) : output_(output), id_(id) {}

    void progress(int rows, int total) override {
        put(Progress{rows, total});
        output_.flush();
    }
    void reused(int rows) override { put(Reused{rows}); }
    void token(const AnswerToken& token) override {
        // p alone is not asked for in the protocol: it comes with the likeliest ones.
        put(Token{token.id, token.top.empty() ? std::nullopt : token.p, token.top});
    }
    void round_ended() override { output_.flush(); }

    void done(const AnswerSummary& s) override {
        Done d;
        d.generated = s.generated;
        d.prompt_tokens = s.prompt_tokens;
        d.prompt_ms = s.prompt_ms;
        d.decode_ms = s.decode_ms;
        d.finish = s.finish == AnswerSummary::Finish::stop     ? "stop"
                   : s.finish == AnswerSummary::Finish::length ? "length"
                                                               : "cancel";
        d.accepted = s.accepted;
        d.offered = s.offered;
        d.reused = s.reused;
        d.hits = s.expert_hits;
        d.lookups = s.expert_uses;
        d.more["seed"] = number_text(s.seed);
        d.more["read_calls"] = number_text(s.read_calls);
        if (s.windows > 0) {
            const double mean = static_cast<double>(s.generated) / s.windows;
            d.more["window_mean"] = number_text(static_cast<double>(static_cast<int64_t>(mean * 1000 + 0.5)) / 1000);
        }
        if (!s.experts.layers.empty()) {
            d.more["swaps"] = number_text(s.experts.swaps);
            d.more["expert_mib_copied"] = number_text(s.experts.copied_bytes >> 20);
            d.more["cpu_experts"] = number_text(s.experts.cpu_experts);
        }
        if (s.state_hash) d.more["state_hash"] = hash_text(*s.state_hash);
        if (s.stop_id) d.more["stop_id"] = number_text(*s.stop_id);
        end(std::move(d));
    }
    void failed(const Error& error) override { end(Failed{error.message}); }

    bool ended() const { return ended_; }

  private:
    void put(auto&& reply) { output_.put({std::forward<decltype(reply)>(reply), id_}); }
    void end(auto&& reply) {
        put(std::forward<decltype(reply)>(reply));
        output_.flush();
        ended_ = true;
    }

    Output& output_;
    const std::optional<uint64_t> id_;
    bool ended_ = false;
};

// ---- what comes in
// ----------------------------------------------------------------------------------------------------------

struct Arrival {
    Command command;
    CancelFlag cancel;  // of a request
};

/// Reads commands on a thread of its own, so that STOP is seen while the engine computes.
class Input {
  public:
    Input() {
        int ends[2];
        if (pipe(ends) != 0) return;
        wake_reader_ = Descriptor(ends[0]);
        wake_writer_ = Descriptor(ends[1]);
        wake_writer.store(wake_writer_.get());
        if (interrupted.load()) interrupt_serve();
        thread_ = std::thread([this] { read_all(); });
    }
    ~Input() {
        wake_writer.store(-1);
        wake_writer_.close();
        if (thread_.joinable()) thread_.join();
    }

    /// What has arrived, in order; waits until there is something, the end, or `idle` is false.
    std::deque<Arrival> take(bool idle) {
        std::unique_lock lock(mutex_);
        if (idle) changed_.wait(lock, [&] { return ended_ || !arrived_.empty(); });
        return std::exchange(arrived_, {});
    }
    bool ended() {
        const std::lock_guard lock(mutex_);
        return ended_;
    }
    /// A request has its last reply: STOP does not mean it any more.
    void forget(const CancelFlag& cancel) {
        const std::lock_guard lock(mutex_);
        std::erase_if(open_, [&](const Open& o) { return o.cancel == cancel; });
    }

  private:
    struct Open {
        std::optional<uint64_t> id;
        CancelFlag cancel;
    };

    void read_all() {
        std::string line;
        bool too_long = false;
        char buffer[65536];
        while (true) {
            pollfd ready[2] = {{STDIN_FILENO, POLLIN, 0}, {wake_reader_.get(), POLLIN, 0}};
            if (poll(ready, 2, -1) < 0 && errno != EINTR) break;
            if (ready[1].revents) break;
            if (!ready[0].revents) continue;
            const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
            if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
            if (got <= 0) break;
            std::string_view piece(buffer, static_cast<size_t>(got));
            for (size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
                if (!too_long) line += piece.substr(0, end);
                if (!take_line(line, too_long)) return finish();
                line.clear();
                too_long = false;
                piece.remove_prefix(end + 1);
            }
            if (!too_long) line += piece;
            if (line.size() > kMaxLine) {
                too_long = true;
                line.clear();
                line.shrink_to_fit();
            }
        }
        finish();
    }

    /// False: QUIT.
    bool take_line(const std::string& line, bool too_long) {
        Arrival arrival;
        if (too_long || line.size() > kMaxLine)
            arrival.command.error = "bad request: a line is longer than " + number_text(kMaxLine) + " bytes";
        else
            arrival.command = parse_command(line);
        Command& command = arrival.command;
        if (!command.error && std::holds_alternative<Nothing>(command.what)) return true;
        if (!command.error && std::holds_alternative<Quit>(command.what)) return false;
        const std::lock_guard lock(mutex_);
        if (!command.error && std::holds_alternative<Stop>(command.what)) {
            // Without an id: the oldest request that is not over. None: nothing to do.
            const auto open = std::find_if(open_.begin(), open_.end(),
                                           [&](const Open& o) { return !command.id || o.id == command.id; });
            if (open != open_.end()) open->cancel->store(true);
            return true;
        }
        if (!command.error && std::holds_alternative<Generate>(command.what)) {
            arrival.cancel = std::make_shared<std::atomic<bool>>(false);
            open_.push_back({command.id, arrival.cancel});
        }
        arrived_.push_back(std::move(arrival));
        changed_.notify_all();
        return true;
    }

    void finish() {
        const std::lock_guard lock(mutex_);
        for (Open& open : open_) open.cancel->store(true);
        ended_ = true;
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Arrival> arrived_;
    std::vector<Open> open_;  // requests without a last reply, oldest first
    bool ended_ = false;
    Descriptor wake_reader_, wake_writer_;
    std::thread thread_;
};

// ---- between the two
// --------------------------------------------------------------------------------------------------------

/// Ends the process when nothing has moved for a minute inside a request: a hang must not look like work.
class Watchdog {
  public:
    Watchdog(const Engine& engine, const Output& output) : engine_(engine), output_(output) {
        thread_ = std::thread([this] { watch(); });
    }
    ~Watchdog() {
        {
            const std::lock_guard lock(mutex_);
            end_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    void busy(bool busy) { busy_.store(busy); }

  private:
    void watch() {
        std::unique_lock lock(mutex_);
        uint64_t seen = 0;
        // Counted in looks, not by the clock: a process that was stopped and goes on has not hung.
        int still = 0;
        while (!changed_.wait_for(lock, 1s, [&] { return end_; })) {
            const uint64_t now = engine_.heartbeat() + output_.writes();
            still = now == seen && busy_.load() ? still + 1 : 0;
            seen = now;
            if (still < kStuckAfter) continue;
            std::fprintf(stderr,
                         "strata-poly: nothing has moved for 60 s inside a request: the engine's thread waits for %s, "
                         "the input's "
                         "thread for the next line\n",
                         output_.writing() ? "the reader of standard output" : "the device to finish a layer");
            std::fflush(stderr);
            _exit(1);
        }
    }

    const Engine& engine_;
    const Output& output_;
    std::atomic<bool> busy_{false};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool end_ = false;
    std::thread thread_;
};

class Server {
  public:
    Server(OpenedEngine& opened, const PolyOptions& options)
        : opened_(opened), engine_(*opened.engine), options_(options) {}

    int run() {
        say_hello();
        Input input;
        Watchdog watchdog(engine_, output_);
        while (true) {
            const bool idle = engine_.active() == 0 && waiting_.empty();
            watchdog.busy(!idle);
            for (Arrival& arrival : input.take(idle)) waiting_.push_back(std::move(arrival));
            if (input.ended()) waiting_requests_only();
            watchdog.busy(true);
            start_what_can(input);
            if (engine_.active() == 0 && waiting_.empty() && input.ended()) break;
            if (const auto stepped = engine_.step(); !stepped) {
                std::fprintf(stderr, "strata-poly: %s\n", stepped.error().message.c_str());
                return static_cast<int>(ErrorKind::device);
            }
            forget_ended(input);
            for (const std::string& note : engine_.take_notes())
                if (!options_.quiet) std::fprintf(stderr, "%s\n", note.c_str());
            if (output_.broken()) break;
        }
        if (opened_.experts)
            if (const auto saved = opened_.experts->save_profile(); !saved && !options_.quiet)
                std::fprintf(stderr, "the expert profile is not kept: %s\n", saved.error().message.c_str());
        return 0;
    }

  private:
    struct Open {
        std::unique_ptr<LineAnswer> answer;
        CancelFlag cancel;
        bool named;
    };

    void say_hello() {
        const ModelFacts& facts = engine_.facts();
        const EngineLimits& limits = engine_.limits();
        Facts info;
        info["engine"] = POLYSTRATA_VERSION;
        info["arch"] = facts.architecture;
        info["device"] = opened_.device->facts().name;
        info["layers"] = number_text(facts.layers);
        info["experts_total"] = number_text(opened_.experts_total());
        info["expert_slots"] = number_text(opened_.experts_cached());
        if (opened_.on_card()) info["vram_total_mib"] = number_text(opened_.device->facts().memory_total >> 20);
        info["kv"] = opened_.kv;
        info["draft"] = opened_.draft_kind();
        info["window"] = number_text(limits.window > 0 ? limits.window : kMaxWindow);
        info["ram_file_mib"] = number_text(opened_.file_bytes() >> 20);
        info["scratch_mib"] = number_text(opened_.scratch_bytes >> 20);
        info["conversation_mib"] = number_text(opened_.conversation_bytes >> 20);
        info["threads"] = number_text(opened_.device->facts().threads);
        info["parallel"] = number_text(limits.parallel);
        const bool pictures = facts.pictures != ModelFacts::Pictures::none;
        info["pictures"] = pictures ? "1" : "0";
        info["profile"] = number_text(opened_.experts ? opened_.experts->profile_uses() : 0);
        if (opened_.experts) {
            for (auto& [key, value] : cache_facts()) info[key] = value;
            if (const std::string changes = opened_.experts->changes_answers(); !changes.empty())
                info["changes_answers"] = changes;
            info["expert_bytes_mib"] = number_text(opened_.experts->largest_expert() >> 20);
        }
        output_.put({Info{info}, {}});
        Ready ready{limits.max_context, {"stop", "top", "bias", "dry", "typical", "conversations", "grammar"}};
        if (opened_.experts) ready.capabilities.push_back("vram");
        if (pictures) ready.capabilities.push_back("pictures");
        output_.put({std::move(ready), {}});
        output_.flush();
    }

    /// What a resize of the expert cache changes.
    Facts cache_facts() const {
        const ExpertStore& experts = *opened_.experts;
        return {{"expert_slots", number_text(experts.slots())},
                {"expert_cache_mib", number_text(experts.bytes() >> 20)},
                {"vram_free_mib", number_text(opened_.device->memory_free() >> 20)},
                {"vram_reserve_mib", number_text(experts.reserve() >> 20)}};
    }

    /// After the end of input only requests still get their reply.
    void waiting_requests_only() {
        std::erase_if(waiting_, [](const Arrival& a) {
            return a.command.error || !std::holds_alternative<Generate>(a.command.what);
        });
    }

    /// Commands in their order. Named requests run beside each other; everything else waits until nothing runs.
    void start_what_can(Input& input) {
        while (!waiting_.empty()) {
            Arrival& next = waiting_.front();
            const Command& command = next.command;
            const bool request = !command.error && std::holds_alternative<Generate>(command.what);
            const bool alone = !open_.empty() && !open_.front().named;
            if (engine_.active() > 0 && (!request || !command.id || alone)) return;
            if (request)
                submit(next);
            else
                answer(command);
            waiting_.pop_front();
            forget_ended(input);
        }
    }

    void submit(Arrival& arrival) {
        EngineRequest request;
        static_cast<GenerateRequest&>(request) = std::move(std::get<Generate>(arrival.command.what).request);
        open_.push_back({std::make_unique<LineAnswer>(output_, arrival.command.id), arrival.cancel,
                         arrival.command.id.has_value()});
        LineAnswer& answer = *open_.back().answer;
        if (const auto constrained = opened_.constrain(request); !constrained)
            return answer.failed(constrained.error());
        const bool state_hash = request.state_hash;
        engine_.submit(std::move(request), answer, arrival.cancel, state_hash);
    }

    void forget_ended(Input& input) {
        std::erase_if(open_, [&](const Open& o) {
            if (o.answer->ended()) input.forget(o.cancel);
            return o.answer->ended();
        });
    }

    void answer(const Command& command) {
        Reply reply{Failed{}, command.id};
        std::string& error = std::get<Failed>(reply.what).message;
        if (command.error)
            error = *command.error;
        else if (const auto* vram = std::get_if<Vram>(&command.what))
            resize(reply, *vram);
        else if (std::holds_alternative<SaveProfile>(command.what))
            save_profile(reply);
        else if (const auto* save = std::get_if<SaveConversation>(&command.what))
            file_reply(reply, "saved_rows", engine_.save_conversation(save->path, opened_.model_id()));
        else if (const auto* load = std::get_if<LoadConversation>(&command.what))
            file_reply(reply, "loaded_rows", engine_.load_conversation(load->path, opened_.model_id()));
        output_.put(reply);
        output_.flush();
    }

    void resize(Reply& reply, const Vram& vram) {
        std::string& error = std::get<Failed>(reply.what).message;
        if (!opened_.experts) {
            error = opened_.on_card() ? "this engine keeps all experts in the card's memory: there is none to give back"
                                      : "this engine runs on the CPU: there is no memory of a card to share";
            return;
        }
        std::optional<uint64_t> reserve;
        if (vram.reserve_mib)
            reserve = static_cast<uint64_t>(std::min<int64_t>(*vram.reserve_mib, INT64_MAX >> 21)) << 20;
        if (const auto resized = opened_.experts->resize(reserve); resized)
            reply.what = Info{cache_facts()};
        else
            error = resized.error().message;
    }

    void save_profile(Reply& reply) {
        if (opened_.experts)
            if (const auto saved = opened_.experts->save_profile(); !saved) {
                std::get<Failed>(reply.what).message = saved.error().message;
                return;
            }
        reply.what = Info{{{"profile", number_text(opened_.experts ? opened_.experts->total_uses() : 0)}}};
    }

    static void file_reply(Reply& reply, const char* name, const Result<int>& rows) {
        if (rows)
            reply.what = Info{{{name, number_text(*rows)}}};
        else
            reply.what = Failed{rows.error().message};
    }

    OpenedEngine& opened_;
    Engine& engine_;
    const PolyOptions& options_;
    Output output_;
    std::deque<Arrival> waiting_;
    std::vector<Open> open_;  // oldest first
};

}  // namespace

void interrupt_serve() {
    interrupted.store(true);
    const int fd = wake_writer.load();
    if (fd >= 0) [[maybe_unused]]
        const ssize_t told = write(fd, "x", 1);
}

int serve(OpenedEngine& opened, const PolyOptions& options) {
    ignore_broken_pipes();
    return Server(opened, options).run();
}

}  // namespace strata
