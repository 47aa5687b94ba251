#include "cli/interrupts.h"

#include <unistd.h>
#include <utility>

namespace strata::cli {
namespace {

constexpr int kWakeUp = SIGUSR2;  // ends the waiting thread

sigset_t watched() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, kWakeUp}) sigaddset(&set, signal);
    return set;
}

}  // namespace

Interrupts::Interrupts(std::function<void()> on_end) : on_end_(std::move(on_end)) {
    const sigset_t set = watched();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    thread_ = std::thread([this] { wait_for_signals(); });
}

Interrupts::~Interrupts() {
    pthread_kill(thread_.native_handle(), kWakeUp);
    thread_.join();
    const sigset_t set = watched();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Interrupts::Watch::Watch(Interrupts& interrupts, Handler handler) : interrupts_(interrupts) {
    const std::lock_guard lock(interrupts_.mutex_);
    before_ = std::exchange(interrupts_.handler_, std::move(handler));
}

Interrupts::Watch::~Watch() {
    const std::lock_guard lock(interrupts_.mutex_);
    interrupts_.handler_ = std::move(before_);
}

bool Interrupts::note() {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    return now - std::exchange(last_, now) < std::chrono::seconds(1);
}

void Interrupts::wait_for_signals() {
    const sigset_t set = watched();
    for (;;) {
        int signal = 0;
        if (sigwait(&set, &signal) != 0) continue;
        if (signal == kWakeUp) return;
        if (signal != SIGINT) end(signal);
        const bool again = note();
        const std::lock_guard lock(mutex_);
        if (!handler_) end(signal);
        handler_(again);
    }
}

void Interrupts::end(int signal) {
    if (on_end_) on_end_();
    _exit(128 + signal);
}

}  // namespace strata::cli
