// polystrata serve: the HTTP server (docs/server.md).

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>

#include "cli/command.h"
#include "server/server.h"
#include "setup/program.h"

namespace strata::cli {
namespace {

struct Flags {
    ModelFlags model;
    EngineFlags engine;
    std::string host, api_key, metrics_key, cors, names, log_file, log_level = "info";
    std::optional<int> port;
    std::optional<int> silence_limit, idle_unload;
    int queue = 16, ping = 10, request_limit = 0, shutdown_limit = 10;
    int body_limit_mib = 64;
    bool allow_open = false, switch_on_request = false, lazy = false;
};

std::vector<std::string> split_list(const std::string& text) {
    std::vector<std::string> items;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(',', at), text.size());
        if (end > at) items.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return items;
}

server::LogLevel level_of(const std::string& name) {
    if (name == "debug") return server::LogLevel::debug;
    if (name == "warning") return server::LogLevel::warning;
    if (name == "error") return server::LogLevel::error;
    return server::LogLevel::info;
}

/// The model to begin with: named, or the only one installed. None is no error: a client can load one.
Result<std::optional<ModelEntry>> first_model(const Flags& flags) {
    if (!flags.model.model.empty()) {
        STRATA_TRY_ASSIGN(ModelEntry entry, flags.model.resolve());
        return std::optional(std::move(entry));
    }
    STRATA_TRY_ASSIGN(const auto home, flags.model.home());
    STRATA_TRY_ASSIGN(const Registry registry, Registry::read(home));
    if (const auto only = registry.only()) return std::optional(**only);
    return std::optional<ModelEntry>();
}

Outcome serve(const Flags& flags) {
    // SIGTERM and SIGINT are waited for: threads that are started from here on inherit that they are blocked.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);

    STRATA_TRY_ASSIGN(const auto model, first_model(flags));
    STRATA_TRY_ASSIGN(const auto home, flags.model.home());
    STRATA_TRY_ASSIGN(const ProgramPaths paths, program_paths());
    STRATA_TRY_ASSIGN(auto log, server::Log::open({.level = level_of(flags.log_level), .file = flags.log_file}));

    const RunConfig config = model ? model->config : RunConfig{};
    const char* environment_key = std::getenv("POLYSTRATA_API_KEY");
    server::ServerOptions options;
    options.host = flags.host.empty() ? config.host : flags.host;
    options.port = flags.port.value_or(config.port);
    options.api_key = !flags.api_key.empty() ? flags.api_key : environment_key ? environment_key : config.api_key;
    const char* environment_metrics_key = std::getenv("POLYSTRATA_METRICS_KEY");
    if (!flags.metrics_key.empty() || environment_metrics_key)
        options.metrics_key = flags.metrics_key.empty() ? environment_metrics_key : flags.metrics_key;
    options.cors = split_list(flags.cors);
    options.cors.insert(options.cors.end(), config.cors_origins.begin(), config.cors_origins.end());
    options.names = split_list(flags.names);
    options.names.insert(options.names.end(), config.allowed_hosts.begin(), config.allowed_hosts.end());
    options.allow_open = flags.allow_open;
    options.queue = static_cast<size_t>(flags.queue);
    options.ping = std::chrono::seconds(flags.ping);
    options.request_limit = std::chrono::seconds(flags.request_limit);
    options.shutdown_limit = std::chrono::seconds(flags.shutdown_limit);
    options.body_limit = static_cast<uint64_t>(flags.body_limit_mib) << 20;
    options.switch_on_request = flags.switch_on_request || config.switch_on_request;

    server::HostOptions host;
    host.home = home;
    host.engine = paths.binaries / "strata-poly";
    STRATA_TRY_ASSIGN(host.engine_arguments, flags.engine.split());
    const auto seconds = [](std::optional<int> flag, std::optional<int64_t> configured, int64_t otherwise) {
        return std::chrono::seconds(flag ? *flag : configured.value_or(otherwise));
    };
    host.silence_limit = seconds(flags.silence_limit, config.engine_silence_s, 300);
    host.idle_unload = seconds(flags.idle_unload, config.idle_unload_s, 0);
    const bool lazy = flags.lazy || config.lazy_load;

    STRATA_TRY_ASSIGN(auto server, server::Server::open(options, host, *log));
    STRATA_TRY(server->start(model, !lazy));
    if (model && !lazy) {
        // "listening" is said when a request can be answered; a model that cannot be loaded is told at once.
        for (;;) {
            const auto ready = server->host().wait_ready(std::chrono::milliseconds(100));
            timespec now{};
            if (sigtimedwait(&ends, nullptr, &now) > 0)
                return Error{ErrorKind::failed, "interrupted while the model was loading", "interrupted"};
            if (!ready) continue;
            if (!*ready) return Error{ErrorKind::failed, ready->error().message, {}};
            break;
        }
    }
    const std::string shown = options.host.find(':') != std::string::npos ? "[" + options.host + "]" : options.host;
    std::printf("listening on http://%s:%d\n", shown.c_str(), server->port());
    std::fflush(stdout);
    if (!model) log->info("no model is in use: POST /api/models/load chooses one");

    int signal = 0;
    sigwait(&ends, &signal);
    log->info("shutting down");
    server->stop();
    return 0;
}

}  // namespace

Run declare_serve(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    flags->model.add(set);
    set.text("--host", flags->host, "Address to listen on (default: the run config's, else 127.0.0.1)", "ADDRESS");
    set.number("--port", flags->port, 0, 65535, "Port; 0: any free one (default: the run config's, else 8080)");
    set.text("--api-key", flags->api_key,
             "Key that clients must send (also POLYSTRATA_API_KEY, which other users of this machine cannot see)",
             "KEY");
    set.text("--metrics-key", flags->metrics_key,
             "Key for monitors: reads /metrics, /status and /slots and nothing else (also POLYSTRATA_METRICS_KEY)",
             "KEY");
    set.text("--cors", flags->cors, "Origins whose pages may use the server, beside localhost's; *: any", "A,B");
    set.text("--allow-host", flags->names, "Names under which the server answers, beside localhost and addresses",
             "A,B");
    set.toggle("--allow-without-key", flags->allow_open, "Listen beyond this machine without a key");
    set.toggle("--switch-on-request", flags->switch_on_request, "Requests may name another installed model");
    set.toggle("--lazy", flags->lazy, "Load the model with the first request");
    set.number("--queue", flags->queue, 0, 4096, "Requests that may wait; more are answered 429").shows_default();
    set.number("--ping", flags->ping, 1, 3600, "Seconds of silence in a stream before a keep-alive").shows_default();
    set.number("--request-limit", flags->request_limit, 0, 1e6, "Seconds that a request may take; 0: no limit")
        .shows_default();
    set.number(
        "--silence-limit", flags->silence_limit, 0, 1e6,
        "Seconds without a word of the engine inside a request before it is ended; 0: no limit (default: the run "
        "config's, else 300)");
    set.number(
        "--idle-unload", flags->idle_unload, 0, 1e8,
        "Seconds without requests before the model is unloaded; 0: never (default: the run config's, else never)");
    set.number("--shutdown-limit", flags->shutdown_limit, 0, 3600, "Seconds that running requests get at the end")
        .shows_default();
    set.number("--body-limit-mib", flags->body_limit_mib, 1, 4096, "Largest body of a request").shows_default();
    set.text("--log-file", flags->log_file, "Log to this file too; it is rotated at 10 MiB, five are kept", "FILE");
    set.text("--log-level", flags->log_level, "debug, info, warning or error", "LEVEL")
        .shows_default()
        .checked([](const std::string& text) {
            return text == "debug" || text == "info" || text == "warning" || text == "error"
                       ? std::string{}
                       : "must be debug, info, warning or error";
        });
    flags->engine.add(set);
    return [flags] { return serve(*flags); };
}

}  // namespace strata::cli
