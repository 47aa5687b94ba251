// The server's log: standard error, and a file that is rotated. Lines never hold contents of requests or answers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"

namespace spdlog {
class logger;
}

namespace strata::server {

enum class LogLevel { debug, info, warning, error };

struct LogOptions {
    LogLevel level = LogLevel::info;
    std::filesystem::path file;  // empty: standard error alone
    size_t file_bytes = size_t{10} << 20;
    size_t files = 5;
};

/// Safe from any thread.
class Log {
  public:
    static Result<std::unique_ptr<Log>> open(const LogOptions& options);
    ~Log();

    void write(LogLevel level, const std::string& line);
    void debug(const std::string& line) { write(LogLevel::debug, line); }
    void info(const std::string& line) { write(LogLevel::info, line); }
    void warning(const std::string& line) { write(LogLevel::warning, line); }
    void error(const std::string& line) { write(LogLevel::error, line); }

  private:
    explicit Log(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}
    std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace strata::server
