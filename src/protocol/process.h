// A child process with pipes on its standard input, output and error. POSIX.
#pragma once

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/result.h"

namespace strata::protocol {

/// A file descriptor, closed at the end.
class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor() { close(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void close();

  private:
    int fd_ = -1;
};

struct ProcessOptions {
    std::vector<std::string> command;                              // program (looked up in PATH) and arguments
    std::string directory;                                         // to run in; empty: the current one
    std::vector<std::pair<std::string, std::string>> environment;  // set beside those of this process
};

/// A running program. It is in a process group of its own, so that Ctrl+C in a terminal reaches its parent alone.
/// Destruction ends it (SIGKILL) if it still runs, and collects it.
class Process {
  public:
    Process() = default;
    Process(Process&& other) noexcept { *this = std::move(other); }
    Process& operator=(Process&& other) noexcept;
    ~Process();

    static Result<Process> start(const ProcessOptions& options);

    pid_t pid() const { return pid_; }
    /// Whether it has ended; then `exit_text` says how. Does not wait.
    bool ended();
    /// Waits up to `milliseconds` for the end.
    bool wait(int milliseconds);
    void kill();
    /// Exit code, or 128 + signal; -1 while it runs.
    int exit_code() const { return code_; }
    /// "ended with code 3", "was killed by signal 9 (Killed)".
    std::string exit_text() const;

    Descriptor input;   // its standard input, to write to
    Descriptor output;  // its standard output, to read from
    Descriptor errors;  // its standard error, to read from

  private:
    pid_t pid_ = -1;
    int code_ = -1;
    int signal_ = 0;
};

/// Writes all of `text`; false when the reader is gone. SIGPIPE is not raised on pipes of this process where it is
/// ignored: call ignore_broken_pipes once in main.
bool write_all(int fd, std::string_view text);
void ignore_broken_pipes();

}  // namespace strata::protocol
