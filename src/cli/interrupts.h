// Ctrl-C and the signals that end a program, as calls from a thread of their own.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace strata::cli {

/// Make it before any other thread: it blocks the signals for all of them. SIGINT calls the handler in force; SIGTERM
/// and SIGHUP call `on_end` and end the program with 128 + the signal's number.
class Interrupts {
  public:
    explicit Interrupts(std::function<void()> on_end = {});
    ~Interrupts();
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;

    /// `again`: the last Ctrl-C was less than a second ago, so the person wants to leave.
    using Handler = std::function<void(bool again)>;

    /// While it lives, Ctrl-C calls `handler`; without one, Ctrl-C ends the program with 130.
    class Watch {
      public:
        Watch(Interrupts& interrupts, Handler handler);
        ~Watch();
        Watch(const Watch&) = delete;
        Watch& operator=(const Watch&) = delete;

      private:
        Interrupts& interrupts_;
        Handler before_;
    };

    /// Notes a Ctrl-C that came as a key, not as a signal; whether it is the second within a second.
    bool note();

  private:
    void wait_for_signals();
    [[noreturn]] void end(int signal);

    std::function<void()> on_end_;
    std::mutex mutex_;
    Handler handler_;
    std::chrono::steady_clock::time_point last_{};
    std::thread thread_;
};

}  // namespace strata::cli
