#include "server/http.h"

#include <algorithm>
#include <cstdio>

namespace strata::server {

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
}

std::string seconds_text(std::chrono::milliseconds time) {
    char text[32];
    std::snprintf(text, sizeof text, "%g s", std::chrono::duration<double>(time).count());
    return text;
}

std::string_view HttpRequest::path() const {
    std::string_view path = std::string_view(target).substr(0, target.find_first_of("?#"));
    while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    return path;
}

std::string_view HttpRequest::query(std::string_view name) const {
    const size_t mark = target.find('?');
    if (mark == std::string::npos) return {};
    std::string_view rest = std::string_view(target).substr(mark + 1);
    while (!rest.empty()) {
        const std::string_view pair = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
        const size_t equals = pair.find('=');
        if (pair.substr(0, equals) == name)
            return equals == std::string_view::npos ? std::string_view{} : pair.substr(equals + 1);
    }
    return {};
}

std::string_view HttpRequest::header(std::string_view name) const {
    const std::string wanted = lower(name);
    for (const auto& [key, value] : headers)
        if (lower(key) == wanted) return value;
    return {};
}

bool HttpRequest::has_header(std::string_view name) const {
    const std::string wanted = lower(name);
    return std::ranges::any_of(headers, [&](const auto& h) { return lower(h.first) == wanted; });
}

std::string_view status_text(int status) {
    switch (status) {
        case 200: return "OK";
        case 204: return "No Content";
        case 400: return "Bad Request";
        case 401: return "Unauthorized";
        case 403: return "Forbidden";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 408: return "Request Timeout";
        case 409: return "Conflict";
        case 413: return "Content Too Large";
        case 415: return "Unsupported Media Type";
        case 429: return "Too Many Requests";
        case 431: return "Request Header Fields Too Large";
        case 500: return "Internal Server Error";
        case 503: return "Service Unavailable";
        case 529: return "Overloaded";
        default: return "Status";
    }
}

}  // namespace strata::server
