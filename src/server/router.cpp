#include "server/router.h"

#include <algorithm>

namespace strata::server {
namespace {

Wire wire_of(std::string_view path) {
    return path.starts_with("/v1/messages") || path == "/messages" ? Wire::anthropic : Wire::openai;
}

std::string_view without_port(std::string_view host) {
    if (host.starts_with('[')) {
        const size_t end = host.find(']');
        return end == std::string_view::npos ? host : host.substr(1, end - 1);
    }
    const size_t colon = host.find(':');
    // Several colons: an address of version 6 without brackets.
    if (colon != std::string_view::npos && host.find(':', colon + 1) != std::string_view::npos) return host;
    return host.substr(0, colon);
}

bool is_address(std::string_view host) {
    if (host.find(':') != std::string_view::npos)
        return std::ranges::all_of(host, [](char c) {
            return std::isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.' || c == '%';
        });
    return !host.empty() && std::ranges::all_of(host, [](char c) { return (c >= '0' && c <= '9') || c == '.'; }) &&
           std::ranges::count(host, '.') == 3;
}

/// scheme://host[:port] of an origin; empty: none.
std::string_view host_of_origin(std::string_view origin) {
    const size_t mark = origin.find("://");
    return mark == std::string_view::npos ? std::string_view{} : without_port(origin.substr(mark + 3));
}

bool is_local_origin(std::string_view origin) {
    return (origin.starts_with("http://") || origin.starts_with("https://")) &&
           is_loopback_name(host_of_origin(origin));
}

bool is_allowed_origin(const ServerOptions& options, std::string_view origin, const Route* route) {
    if (is_local_origin(origin)) return true;
    if (route && route->control) return false;
    return std::ranges::any_of(options.cors,
                               [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

bool has_key(const ServerOptions& options, const HttpRequest& request, const Route& route) {
    if (options.api_key.empty()) return true;
    std::string_view given = request.header("authorization");
    const std::string scheme = lower(given.substr(0, 7));
    if (scheme == "bearer ")
        given.remove_prefix(7);
    else
        given = request.header("x-api-key");
    return same_secret(given, options.api_key) ||
           (route.watch && !options.metrics_key.empty() && same_secret(given, options.metrics_key));
}

std::string request_id_of(const HttpRequest& request) {
    const std::string_view given = request.header("x-request-id");
    const bool fine =
        !given.empty() && given.size() <= 128 && std::ranges::all_of(given, [](char c) { return c > ' ' && c < 127; });
    return fine ? std::string(given) : "req_" + random_id(24);
}

struct Match {
    const Route* route = nullptr;
    std::string_view rest;
    std::string allowed;  // methods of the path, where the method does not fit
};

bool fits(const Route& route, std::string_view path, std::string_view& rest) {
    const std::string_view pattern = route.path;
    if (route.versions && path.starts_with("/v1/")) path.remove_prefix(3);
    if (pattern.ends_with("/*")) {
        const std::string_view base = pattern.substr(0, pattern.size() - 1);
        if (!path.starts_with(base) || path.size() == base.size()) return false;
        rest = path.substr(base.size());
        return true;
    }
    return path == pattern;
}

Match find_route(std::string_view method, std::string_view path) {
    Match match;
    for (const Route& route : routes()) {
        std::string_view rest;
        if (!fits(route, path, rest)) continue;
        const std::string_view wanted = route.method;
        if (wanted == method || (wanted == "GET" && method == "HEAD")) {
            match.route = &route;
            match.rest = rest;
            return match;
        }
        if (!match.allowed.empty()) match.allowed += ", ";
        match.allowed += wanted == "GET" ? "GET, HEAD" : std::string(wanted);
    }
    return match;
}

ApiError forbidden(std::string message) {
    ApiError error;
    error.status = 403;
    error.type = "permission_error";
    error.message = std::move(message);
    return error;
}

/// Who may ask at all.
Api<void> check_asker(const ServerOptions& options, const HttpRequest& request, const Route& route) {
    std::vector<std::string> names = options.names;
    names.push_back(options.host);
    if (options.api_key.empty() && request.has_header("host") && !is_known_host(request.header("host"), names))
        return forbidden("this server does not answer under the name in the Host header; --allow-host NAME lets it");
    if (route.open) return {};
    if (!has_key(options, request, route)) {
        ApiError error;
        error.status = 401;
        error.type = "authentication_error";
        error.code = "invalid_api_key";
        error.message = request.has_header("authorization") || request.has_header("x-api-key")
                            ? "the API key is wrong"
                            : "an API key is needed: Authorization: Bearer KEY or x-api-key: KEY";
        return error;
    }
    // Without a key a web page must not use the server behind its reader's back; what changes the server for everybody
    // is for its own page alone.
    const std::string_view origin = request.header("origin");
    if (origin.empty() || request.method != "POST" || !(options.api_key.empty() || route.control)) return {};
    const bool own = request.has_header("host") && host_of_origin(origin) == without_port(request.header("host"));
    const bool extension = origin.starts_with("chrome-extension://") || origin.starts_with("moz-extension://");
    if (!own && !is_allowed_origin(options, origin, &route) && (route.control || !extension))
        return forbidden("requests from pages of " + std::string(origin.substr(0, 200)) + " are not answered here" +
                         (route.control ? "" : "; --cors ORIGIN allows them"));
    if (route.control && !lower(request.header("content-type")).starts_with("application/json")) {
        ApiError error;
        error.status = 415;
        error.message = "a page must send this as application/json";
        return error;
    }
    return {};
}

void add_cors(const ServerOptions& options, Exchange& exchange, const Route* route) {
    const HttpRequest& request = exchange.request();
    const std::string_view origin = request.header("origin");
    if (origin.empty() || !is_allowed_origin(options, origin, route)) return;
    exchange.add_header("Access-Control-Allow-Origin", std::string(origin));
    exchange.add_header("Vary", "Origin");
    exchange.add_header("Access-Control-Expose-Headers", "x-request-id, request-id, retry-after");
}

void preflight(const ServerOptions& options, Exchange& exchange, const Route* route) {
    HttpResponse response{.status = 204, .content_type = ""};
    const HttpRequest& request = exchange.request();
    if (is_allowed_origin(options, request.header("origin"), route)) {
        response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
        const std::string_view asked = request.header("access-control-request-headers");
        response.headers.emplace_back("Access-Control-Allow-Headers",
                                      asked.empty() ? "authorization, content-type, x-api-key" : std::string(asked));
        response.headers.emplace_back("Access-Control-Max-Age", "3600");
    }
    exchange.respond(std::move(response));
}

/// The path as metrics know it: the route's, so that their number has a bound.
std::string metric_path(const Route* route) {
    if (!route) return "other";
    return (route->versions ? "/v1" : "") + std::string(route->path);
}

}  // namespace

bool same_secret(std::string_view a, std::string_view b) {
    unsigned difference = a.size() == b.size() ? 0 : 1;
    for (size_t i = 0; i < b.size(); ++i)
        difference |= static_cast<unsigned char>(b[i]) ^ static_cast<unsigned char>(i < a.size() ? a[i] : '\0');
    return difference == 0;
}

bool is_loopback_name(std::string_view host) {
    const std::string name = lower(host);
    return name == "localhost" || name.ends_with(".localhost") || name == "::1" ||
           (name.starts_with("127.") && is_address(name));
}

bool is_known_host(std::string_view host, const std::vector<std::string>& names) {
    const std::string_view name = without_port(host);
    if (is_loopback_name(name) || is_address(name)) return true;
    return std::ranges::any_of(names,
                               [&](const std::string& known) { return known == "*" || lower(known) == lower(name); });
}

void handle_request(Services& services, const std::shared_ptr<Exchange>& exchange) {
    const HttpRequest& request = exchange->request();
    const std::string_view path = request.path();
    const std::string id = request_id_of(request);
    const Wire wire = wire_of(path);
    exchange->add_header("x-request-id", id);
    if (wire == Wire::anthropic) exchange->add_header("request-id", id);
    const bool asks_before = request.method == "OPTIONS";
    const Match match =
        find_route(asks_before ? request.header("access-control-request-method") : request.method, path);
    add_cors(services.options, *exchange, match.route);
    const auto refuse = [&](const ApiError& error) { exchange->respond(error_response(error, wire, id)); };
    const auto began = std::chrono::steady_clock::now();
    try {
        if (asks_before) {
            preflight(services.options, *exchange, match.route);
        } else if (!match.route) {
            Route nobody{"", "", nullptr};
            nobody.open = true;
            if (auto asked = check_asker(services.options, request, nobody); !asked) {
                refuse(asked.error());
            } else if (!match.allowed.empty()) {
                ApiError error;
                error.status = 405;
                error.message = "this path takes " + match.allowed + ", not " + request.method.substr(0, 20);
                HttpResponse response = error_response(error, wire, id);
                response.headers.emplace_back("Allow", match.allowed);
                exchange->respond(std::move(response));
            } else {
                refuse(not_found("there is nothing at this path"));
            }
        } else if (auto asked = check_asker(services.options, request, *match.route); !asked) {
            refuse(asked.error());
        } else {
            match.route->handle({services, *exchange, id, match.rest});
        }
    } catch (const std::exception& problem) {  // libraries may throw (memory, JSON); a bug costs one request
        services.log.error(id + " a bug: " + problem.what());
        if (exchange->status() == 0)
            refuse(internal_error("the server failed on this request"));
        else
            exchange->end_stream();
    }
    services.metrics.request(metric_path(match.route), exchange->status());
    const auto us =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - began).count();
    services.log.debug(id + " " + exchange->peer() + " " + request.method.substr(0, 20) + " " +
                       std::string(path.substr(0, 200)) + " " + std::to_string(exchange->status()) + " " +
                       std::to_string(us) + " us");
}

HttpResponse handle_refusal(const HttpRequest& known, int status, const std::string& message) {
    ApiError error;
    error.status = status;
    error.code = status == 413 ? "request_too_large" : "";
    error.message = message;
    return error_response(error, wire_of(known.path()), "");
}

}  // namespace strata::server
