#include "protocol/process.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char** environ;

namespace strata::protocol {
namespace {

struct Pipe {
    Descriptor read, write;
};

Result<Pipe> make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return failure(std::string("no pipe for a child process: ") + std::strerror(errno));
    return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

/// The whole environment of the child: this process's, with some variables set.
std::vector<std::string> child_environment(const std::vector<std::pair<std::string, std::string>>& set) {
    std::vector<std::string> all;
    for (char** entry = environ; *entry; ++entry) {
        const std::string_view text = *entry;
        bool replaced = false;
        for (const auto& [name, value] : set) replaced = replaced || text.starts_with(name + "=");
        if (!replaced) all.emplace_back(text);
    }
    for (const auto& [name, value] : set) all.push_back(name + "=" + value);
    return all;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
    out.push_back(nullptr);
    return out;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    if (this != &other) {
        close();
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

void Descriptor::close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

Process& Process::operator=(Process&& other) noexcept {
    if (this == &other) return *this;
    kill();
    input = std::move(other.input);
    output = std::move(other.output);
    errors = std::move(other.errors);
    pid_ = std::exchange(other.pid_, -1);
    code_ = other.code_;
    signal_ = other.signal_;
    return *this;
}

Process::~Process() {
    kill();
}

Result<Process> Process::start(const ProcessOptions& options) {
    if (options.command.empty()) return usage_error("no program to start was named");
    STRATA_TRY_ASSIGN(Pipe in, make_pipe());
    STRATA_TRY_ASSIGN(Pipe out, make_pipe());
    STRATA_TRY_ASSIGN(Pipe err, make_pipe());
    STRATA_TRY_ASSIGN(Pipe failed, make_pipe());  // carries errno when the program cannot be run; closes when it does

    // Everything that allocates happens before fork: the child of a threaded process may only make system calls.
    const std::vector<std::string> environment = child_environment(options.environment);
    std::vector<char*> argv = pointers(options.command), env = pointers(environment);
    const pid_t pid = fork();
    if (pid < 0) return failure(std::string("no child process: ") + std::strerror(errno));
    if (pid == 0) {
        setpgid(0, 0);
        dup2(in.read.get(), STDIN_FILENO);
        dup2(out.write.get(), STDOUT_FILENO);
        dup2(err.write.get(), STDERR_FILENO);
        signal(SIGPIPE, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, nullptr);
        if (options.directory.empty() || chdir(options.directory.c_str()) == 0)
            execvpe(argv[0], argv.data(), env.data());
        const int error = errno;
        [[maybe_unused]] const ssize_t told = write(failed.write.get(), &error, sizeof error);
        _exit(127);
    }
    setpgid(pid, pid);  // whichever of the two comes first
    failed.write.close();
    int error = 0;
    ssize_t got;
    do got = read(failed.read.get(), &error, sizeof error);
    while (got < 0 && errno == EINTR);

    Process process;
    process.pid_ = pid;
    if (got > 0) {
        process.wait(-1);
        return file_error(options.command[0] + ": cannot be started: " + std::strerror(error));
    }
    process.input = std::move(in.write);
    process.output = std::move(out.read);
    process.errors = std::move(err.read);
    return process;
}

bool Process::ended() {
    return wait(0);
}

bool Process::wait(int milliseconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    for (int pause_us = 200; pid_ > 0; pause_us = std::min(2 * pause_us, 20000)) {
        int status = 0;
        const pid_t got = waitpid(pid_, &status, milliseconds < 0 ? 0 : WNOHANG);
        if (got == pid_ || (got < 0 && errno == ECHILD)) {
            signal_ = got == pid_ && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            code_ = got != pid_ ? 0 : signal_ ? 128 + signal_ : WEXITSTATUS(status);
            pid_ = -1;
            return true;
        }
        if (milliseconds >= 0 && std::chrono::steady_clock::now() >= until) return false;
        if (milliseconds >= 0) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    }
    return true;
}

void Process::kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait(-1);
}

std::string Process::exit_text() const {
    if (code_ < 0) return "runs";
    if (signal_) return "was killed by signal " + std::to_string(signal_) + " (" + strsignal(signal_) + ")";
    return "ended with code " + std::to_string(code_);
}

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t wrote = write(fd, text.data(), text.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0 && errno == EAGAIN) {
            pollfd ready{fd, POLLOUT, 0};
            poll(&ready, 1, -1);
            continue;
        }
        if (wrote <= 0) return false;
        text.remove_prefix(static_cast<size_t>(wrote));
    }
    return true;
}

void ignore_broken_pipes() {
    signal(SIGPIPE, SIG_IGN);
}

}  // namespace strata::protocol
