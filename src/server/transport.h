// The HTTP server: connections to requests, answers to bytes. One thread serves all connections, whether ten or ten
// thousand are idle; handlers run on threads of a pool, so they may wait. Uses Boost.Beast (docs/server.md says why).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace strata::server {

struct TransportOptions {
    std::string host = "127.0.0.1";
    int port = 8080;  // 0: a free one
    uint64_t body_limit = uint64_t{64} << 20;
    uint32_t header_limit = 64 << 10;
    std::chrono::seconds idle_limit{600};  // between requests, and before the first
    std::chrono::seconds slow_limit{30};   // without a byte inside a request, or without room for an answer's
    size_t handlers = 256;                 // most that run at once; more wait
    size_t connections = 8192;             // more are closed at once
};

/// What the transport refuses by itself: 400, 408, 413, 431.
using Refusal = std::function<HttpResponse(const HttpRequest& as_far_as_known, int status, const std::string& message)>;
using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

class Transport {
  public:
    /// Binds the address and listens; answers nothing yet. A port that is taken is an error that says so.
    static Result<std::unique_ptr<Transport>> open(TransportOptions options, Handler handler, Refusal refusal);
    virtual ~Transport() = default;

    virtual int port() const = 0;
    virtual size_t connections() const = 0;
    /// Begins to answer.
    virtual void start() = 0;
    /// Closes the listening socket; what runs goes on, and connections close after their answer.
    virtual void stop_accepting() = 0;
    /// Ends all connections and waits for the handlers. Their exchanges see a client that has gone.
    virtual void stop() = 0;
};

}  // namespace strata::server
