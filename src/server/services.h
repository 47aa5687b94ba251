// What the handlers of routes share.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "server/activity.h"
#include "server/engine_host.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/queue.h"
#include "server/reasoning_memory.h"
#include "server/settings.h"

namespace strata::server {

struct ServerOptions {
    std::string host = "127.0.0.1";
    int port = 8080;
    std::string api_key;                         // empty: none is asked for
    std::string metrics_key;                     // beside api_key, for what monitors read; empty: none
    std::vector<std::string> cors;               // origins beside localhost's; "*": any
    std::vector<std::string> names;              // Host names beside loopback's and the bound one
    bool allow_open = false;                     // listen beyond this machine without a key
    size_t queue = 16;                           // requests that may wait
    std::chrono::milliseconds ping{10'000};      // silence before a keep-alive
    std::chrono::milliseconds request_limit{0};  // whole time of a request; 0: none
    std::chrono::seconds shutdown_limit{10};     // for requests that run when the server ends
    uint64_t body_limit = uint64_t{64} << 20;
    bool switch_on_request = false;     // a request may name another installed model
    bool short_requests_think = false;  // Anthropic requests with few tokens and no word about thinking
};

struct Services {
    const ServerOptions options;
    Queue& queue;
    EngineHost& host;
    Metrics& metrics;
    Log& log;
    Activities activities;
    ReasoningMemory reasoning;
    Settings settings;
    std::atomic<bool> closing{false};  // no new requests
    std::function<size_t()> connections = [] { return size_t{0}; };
    const std::time_t started = std::time(nullptr);
};

}  // namespace strata::server
