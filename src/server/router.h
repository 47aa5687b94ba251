// Which handler answers a path, and who may ask: keys, Host names, origins (docs/security.md).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/services.h"

namespace strata::server {

struct RouteCall {
    Services& services;
    Exchange& exchange;
    const std::string& request_id;
    std::string_view rest;  // of the path, behind a route that ends in "/*"
};

struct Route {
    const char* method;
    const char* path;  // without /v1 in front where `versions`
    void (*handle)(const RouteCall&);
    bool versions = false;  // answered with and without /v1
    bool open = false;      // needs no key
    bool watch = false;     // the key of monitors is enough
    bool control = false;   // changes the server for everybody: never for pages of other machines, whatever --cors says
};

/// All routes (routes.cpp).
const std::vector<Route>& routes();

/// Answers every request of the transport.
void handle_request(Services& services, const std::shared_ptr<Exchange>& exchange);
/// What the transport refuses.
HttpResponse handle_refusal(const HttpRequest& known, int status, const std::string& message);

/// Equal, in a time that does not depend on where they differ.
bool same_secret(std::string_view a, std::string_view b);
/// Whether a Host header names this machine: loopback, an address, or one of `names`.
bool is_known_host(std::string_view host, const std::vector<std::string>& names);
bool is_loopback_name(std::string_view host);

}  // namespace strata::server
