// HTTP as the server's rooms see it: a request, and the exchange that answers it. transport.h moves the bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::server {

struct HttpRequest {
    std::string method;  // as sent: "GET"
    std::string target;  // path and query, as sent
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;

    /// The target's path: no query, no trailing slash (but "/" itself).
    std::string_view path() const;
    /// A query parameter's value as sent; empty without it.
    std::string_view query(std::string_view name) const;
    /// A header's value, name in any case; empty without it.
    std::string_view header(std::string_view name) const;
    bool has_header(std::string_view name) const;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
    int status = 200;
    std::string content_type = "application/json; charset=utf-8";
    std::string body;
    Headers headers;
};

/// One request being answered. The handler answers from a thread of its own, either by respond or by start_stream,
/// write ... and end_stream. Whatever is sent after the client has gone is dropped. Functions are safe from any thread.
class Exchange {
  public:
    virtual ~Exchange() = default;

    virtual const HttpRequest& request() const = 0;
    virtual std::string peer() const = 0;  // address of the client
    /// Headers that every answer of this exchange gets.
    virtual void add_header(std::string name, std::string value) = 0;

    virtual void respond(HttpResponse response) = 0;
    virtual void start_stream(std::string content_type, Headers headers) = 0;
    /// Sends a piece at once. Waits while much is unsent, so a slow reader slows its own answer and nothing else.
    virtual void write(std::string_view piece) = 0;
    virtual void end_stream() = 0;

    /// The client has closed its end or cannot be reached.
    virtual bool gone() const = 0;
    /// Called once when the client goes, from the transport's thread; at once where it has gone. Must not block. An
    /// empty function takes the last one back: after it has returned, the last one is not running.
    virtual void on_gone(std::function<void()> call) = 0;

    virtual int status() const = 0;  // of the answer; 0 before it began
};

std::string_view status_text(int status);
/// "90 s", "0.5 s".
std::string seconds_text(std::chrono::milliseconds time);
/// ASCII lower case.
std::string lower(std::string_view text);

}  // namespace strata::server
