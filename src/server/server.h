// The server as a whole: opens the port, loads the model, answers until it is told to end.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "server/engine_host.h"
#include "server/services.h"
#include "server/transport.h"

namespace strata::server {

class Server {
  public:
    /// Binds the port. A host beyond this machine without a key is refused unless the options allow it.
    static Result<std::unique_ptr<Server>> open(const ServerOptions& options, const HostOptions& host, Log& log);
    ~Server();

    /// Answers from now on; loads `model`, if there is one, beside that.
    Result<void> start(const std::optional<ModelEntry>& model, bool load_now);
    int port() const { return transport_->port(); }
    EngineHost& host() { return host_; }

    /// No new requests; waits for those that run up to the options' limit, then ends them.
    void stop();

  private:
    Server(const ServerOptions& options, const HostOptions& host, Log& log);

    Log& log_;
    Queue queue_;
    Metrics metrics_;
    EngineHost host_;
    Services services_;
    std::unique_ptr<Transport> transport_;
    bool stopped_ = false;
};

}  // namespace strata::server
