// A small HTTP client for tests: blocking, one connection, byte for byte what a test says.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include "text/json.h"

namespace strata::test {

struct HttpAnswer {
    int status = 0;
    std::string head;
    std::string body;

    std::string header(std::string_view name) const {
        const auto lower = [](std::string text) {
            for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
            return text;
        };
        const std::string all = lower(head), wanted = "\r\n" + lower(std::string(name)) + ": ";
        const size_t at = all.find(wanted);
        if (at == std::string::npos) return {};
        const size_t from = at + wanted.size();
        return head.substr(from, head.find("\r\n", from) - from);
    }
    Json json() const {
        auto parsed = parse_json(body);
        return parsed ? std::move(*parsed) : Json("not JSON: " + body);
    }
};

class HttpClient {
  public:
    explicit HttpClient(int port) {
        fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int one = 1;
        setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    ~HttpClient() { close(); }
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    bool connected() const { return connected_; }
    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }

    void send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) return;
            bytes.remove_prefix(static_cast<size_t>(sent));
        }
    }
    static std::string request(std::string_view method, std::string_view path, std::string_view body = {},
                               std::string_view headers = {}) {
        std::string out(method);
        out.append(" ").append(path).append(" HTTP/1.1\r\nHost: localhost\r\n").append(headers);
        if (!body.empty() || method == "POST") out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
        return out.append("\r\n").append(body);
    }
    HttpAnswer ask(std::string_view method, std::string_view path, std::string_view body = {},
                   std::string_view headers = {}) {
        send(request(method, path, body, headers));
        return read_answer(method == "HEAD");
    }

    HttpAnswer read_answer(bool head_only = false) {
        HttpAnswer answer;
        do {  // 100 Continue comes before the answer
            if (!read_head(answer)) return answer;
        } while (answer.status == 100);
        if (head_only || answer.status == 204) return answer;
        if (answer.header("transfer-encoding") == "chunked") {
            std::string piece;
            while (!(piece = read_chunk()).empty()) answer.body += piece;
        } else {
            answer.body = take(std::stoul("0" + answer.header("content-length")));
        }
        return answer;
    }
    bool read_head(HttpAnswer& answer) {
        size_t end;
        while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
            if (!fill()) return false;
        answer.head = buffer_.substr(0, end + 2);
        buffer_.erase(0, end + 4);
        answer.status = std::stoi(answer.head.substr(9, 3));
        return true;
    }
    /// The next chunk of a stream; empty at its end.
    std::string read_chunk() {
        size_t end;
        while ((end = buffer_.find("\r\n")) == std::string::npos)
            if (!fill()) return {};
        const size_t size = std::stoul(buffer_.substr(0, end), nullptr, 16);
        buffer_.erase(0, end + 2);
        std::string chunk = take(size);
        take(2);
        return chunk;
    }
    /// Whether the server has closed the connection (waits for it).
    bool closed() {
        char byte;
        return buffer_.empty() && recv(fd_, &byte, 1, 0) <= 0;
    }

  private:
    bool fill() {
        char bytes[65536];
        const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
        if (got <= 0) return false;
        buffer_.append(bytes, static_cast<size_t>(got));
        return true;
    }
    std::string take(size_t size) {
        while (buffer_.size() < size)
            if (!fill()) break;
        std::string out = buffer_.substr(0, size);
        buffer_.erase(0, size);
        return out;
    }

    int fd_ = -1;
    bool connected_ = false;
    std::string buffer_;
};

/// The data of every event of an SSE text, "[DONE]" as a string; comments are skipped.
inline std::vector<Json> sse_data(const std::string& text) {
    std::vector<Json> out;
    for (size_t at = 0; at < text.size();) {
        const size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        at = end == std::string::npos ? text.size() : end + 1;
        if (!line.starts_with("data: ")) continue;
        auto parsed = parse_json(line.substr(6));
        out.push_back(parsed ? std::move(*parsed) : Json(line.substr(6)));
    }
    return out;
}

}  // namespace strata::test
