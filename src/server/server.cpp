#include "server/server.h"

#include <sys/resource.h>
#include <thread>

#include "server/router.h"

namespace strata::server {

using namespace std::chrono_literals;

Server::Server(const ServerOptions& options, const HostOptions& host, Log& log)
    : log_(log),
      queue_(options.queue),
      host_(host, queue_, metrics_, log),
      services_{options, queue_, host_, metrics_, log} {}

Result<std::unique_ptr<Server>> Server::open(const ServerOptions& options, const HostOptions& host, Log& log) {
    if (!is_loopback_name(options.host) && options.api_key.empty()) {
        if (!options.allow_open)
            return usage_error("--host " + options.host +
                               " is reachable from other machines and no --api-key is set: set one, or say "
                               "--allow-without-key");
        log.warning("anybody who reaches " + options.host + " can use this server: no --api-key is set");
    }
    // Thousands of idle connections need as many descriptors.
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    std::unique_ptr<Server> server(new Server(options, host, log));
    TransportOptions transport;
    transport.host = options.host;
    transport.port = options.port;
    transport.body_limit = options.body_limit;
    transport.handlers = options.queue + 192;
    STRATA_TRY_ASSIGN(server->transport_, Transport::open(
                                              transport,
                                              [s = &server->services_](const std::shared_ptr<Exchange>& exchange) {
                                                  handle_request(*s, exchange);
                                              },
                                              handle_refusal));
    server->services_.connections = [t = server->transport_.get()] { return t->connections(); };
    return server;
}

Server::~Server() {
    stop();
}

Result<void> Server::start(const std::optional<ModelEntry>& model, bool load_now) {
    if (model) STRATA_TRY(host_.choose(*model));
    transport_->start();
    if (model && load_now) host_.wish_loaded();
    return {};
}

void Server::stop() {
    if (stopped_) return;
    stopped_ = true;
    services_.closing = true;
    if (transport_) transport_->stop_accepting();
    const auto until = std::chrono::steady_clock::now() + services_.options.shutdown_limit;
    while (queue_.running() + queue_.waiting() > 0 && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(20ms);
    if (queue_.running() + queue_.waiting() > 0)
        log_.warning("ending " + std::to_string(queue_.running() + queue_.waiting()) + " requests that are not done");
    // Requests that still run get their error before connections close.
    host_.shut_down();
    const auto last = std::chrono::steady_clock::now() + 2s;
    while (queue_.running() + queue_.waiting() > 0 && std::chrono::steady_clock::now() < last)
        std::this_thread::sleep_for(20ms);
    if (transport_) transport_->stop();
}

}  // namespace strata::server
