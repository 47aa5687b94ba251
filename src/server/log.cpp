#include "server/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace strata::server {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
        case LogLevel::debug: return spdlog::level::debug;
        case LogLevel::info: return spdlog::level::info;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::error: return spdlog::level::err;
    }
    return spdlog::level::info;
}

}  // namespace

Result<std::unique_ptr<Log>> Log::open(const LogOptions& options) {
    std::vector<spdlog::sink_ptr> sinks{std::make_shared<spdlog::sinks::stderr_sink_mt>()};
    if (!options.file.empty()) {
        try {
            sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(options.file.string(),
                                                                                   options.file_bytes, options.files));
        } catch (const spdlog::spdlog_ex& problem) {
            return failure("--log-file " + options.file.string() + ": cannot be written: " + problem.what());
        }
    }
    auto logger = std::make_shared<spdlog::logger>("polystrata", sinks.begin(), sinks.end());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    logger->set_level(level_of(options.level));
    logger->flush_on(spdlog::level::info);
    return std::unique_ptr<Log>(new Log(std::move(logger)));
}

Log::~Log() = default;

void Log::write(LogLevel level, const std::string& line) {
    // A line break inside would look like a line of its own.
    std::string safe = line;
    for (char& c : safe)
        if (static_cast<unsigned char>(c) < ' ') c = ' ';
    logger_->log(level_of(level), "{}", safe);
}

}  // namespace strata::server
