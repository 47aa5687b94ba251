// Runs the project's programs as children: what a user's shell does.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace strata::test {

inline std::string program(const std::string& name) {
    return std::string(POLYSTRATA_BIN) + "/" + name;
}
inline std::string data(const std::string& name) {
    return std::string(POLYSTRATA_TEST_DATA) + "/" + name;
}

/// A folder of its own for a test, removed with it.
class TempFolder {
  public:
    TempFolder() {
        std::string name = std::filesystem::temp_directory_path() / "polystrata-test-XXXXXX";
        path_ = mkdtemp(name.data());
    }
    ~TempFolder() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    std::filesystem::path path() const { return path_; }
    std::string file(const std::string& name, std::string_view text = {}) const {
        const std::filesystem::path path = path_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << text;
        return path.string();
    }

  private:
    std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

struct Finished {
    int code = -1;  // exit code; 128 + signal where one ended it
    std::string out;
    std::string err;
};

inline int exit_code(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> out;
    for (std::string& word : words) out.push_back(word.data());
    out.push_back(nullptr);
    return out;
}

/// Runs a program (words[0] is its path) with this standard input, to its end.
inline Finished run(std::vector<std::string> words, std::string_view input = {}) {
    int in[2], out[2], err[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) return {};
    std::vector<char*> argv = pointers(words);
    const pid_t child = fork();
    if (child == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        execv(argv[0], argv.data());
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    Finished result;
    pollfd files[3] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}, {in[1], POLLOUT, 0}};
    if (input.empty()) {
        close(in[1]);
        files[2].fd = -1;
    }
    signal(SIGPIPE, SIG_IGN);
    while (files[0].fd >= 0 || files[1].fd >= 0) {
        if (poll(files, 3, -1) < 0) break;
        for (int i = 0; i < 2; ++i) {
            if (files[i].fd < 0 || !files[i].revents) continue;
            char bytes[65536];
            const ssize_t count = read(files[i].fd, bytes, sizeof bytes);
            if (count > 0) {
                (i == 0 ? result.out : result.err).append(bytes, static_cast<size_t>(count));
            } else {
                close(files[i].fd);
                files[i].fd = -1;
            }
        }
        if (files[2].fd >= 0 && files[2].revents) {
            const ssize_t count = write(files[2].fd, input.data(), input.size());
            if (count > 0) input.remove_prefix(static_cast<size_t>(count));
            if (count <= 0 || input.empty()) {
                close(files[2].fd);
                files[2].fd = -1;
            }
        }
    }
    if (files[2].fd >= 0) close(files[2].fd);
    int status = 0;
    waitpid(child, &status, 0);
    result.code = exit_code(status);
    return result;
}

/// A program on a terminal of its own (80 x 24).
class Terminal {
  public:
    explicit Terminal(std::vector<std::string> words) {
        winsize size{24, 80, 0, 0};
        std::vector<char*> argv = pointers(words);
        child_ = forkpty(&master_, nullptr, nullptr, &size);
        if (child_ == 0) {
            setenv("TERM", "xterm", 1);
            execv(argv[0], argv.data());
            _exit(127);
        }
    }
    ~Terminal() {
        if (child_ > 0) {
            kill(child_, SIGKILL);
            finish();
        }
        close(master_);
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    void type(std::string_view keys) {
        while (!keys.empty()) {
            const ssize_t count = write(master_, keys.data(), keys.size());
            if (count <= 0) return;
            keys.remove_prefix(static_cast<size_t>(count));
        }
    }

    /// Reads until the text has come since the last call's text; false when the program ended or nothing came for
    /// `patience_s` seconds.
    bool wait_for(std::string_view text, int patience_s = 60) {
        for (;;) {
            const size_t at = seen_.find(text, read_to_);
            if (at != std::string::npos) {
                read_to_ = at + text.size();
                return true;
            }
            pollfd file{master_, POLLIN, 0};
            if (poll(&file, 1, patience_s * 1000) <= 0 || !read_more(0)) return false;
        }
    }

    /// Reads on to the program's end; its exit code.
    int finish() {
        while (read_more(-1)) {
        }
        int status = 0;
        waitpid(child_, &status, 0);
        child_ = -1;
        return exit_code(status);
    }

    /// Types the keys again and again, as an impatient person does, until the program ends; its exit code.
    int finish_by(std::string_view keys) {
        do type(keys);
        while (read_more(100));
        return finish();
    }

    const std::string& seen() const { return seen_; }
    pid_t child() const { return child_; }

  private:
    /// Takes what comes within this time (-1: however long it takes); false at the program's end.
    bool read_more(int timeout_ms) {
        pollfd file{master_, POLLIN, 0};
        if (poll(&file, 1, timeout_ms) == 0) return true;
        char bytes[4096];
        const ssize_t count = read(master_, bytes, sizeof bytes);
        if (count <= 0) return false;
        seen_.append(bytes, static_cast<size_t>(count));
        return true;
    }

    int master_ = -1;
    pid_t child_ = -1;
    std::string seen_;
    size_t read_to_ = 0;
};

}  // namespace strata::test
