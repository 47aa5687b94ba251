#include "server/transport.h"

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <sys/socket.h>
#include <thread>

#include "server/worker_pool.h"

namespace strata::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMostUnsent = size_t{1} << 20;  // bytes that a handler may be ahead of its client

class TransportImpl;

/// A client's connection: reads a request, hands it over, sends the answer, and again. All members belong to the
/// transport's thread, but those of the answer, which `mutex_` guards.
class Connection : public std::enable_shared_from_this<Connection> {
  public:
    Connection(TransportImpl& transport, tcp::socket socket);

    void wait_for_request();
    void close();
    void watch_for_close();
    void send(std::string_view bytes);  // from any thread; waits while much is unsent
    void flush();                       // from any thread
    void answer_over();                 // the current exchange has all it will get

    // The answer, shared with the handler. Bytes go out from the handler's thread as long as the client takes them at
    // once: no other thread has to wake for a token. What it does not take waits in unsent_ for the transport's thread.
    std::mutex mutex_;
    std::condition_variable drained_;
    std::string unsent_;
    bool writing_ = false;  // the transport's thread sends
    bool over_ = false;     // the answer is complete once unsent_ is sent
    bool keep_alive_ = true;
    bool gone_ = false;  // from here on the socket is closed

    TransportImpl& transport_;
    std::string peer_;

  private:
    void read_header();
    void read_body();
    void take_request();
    void refuse(int status, const std::string& message);
    void send_unsent();
    void arm(std::chrono::seconds limit);
    void client_gone();

    tcp::socket socket_;
    const int descriptor_;  // of socket_
    asio::steady_timer timer_;
    uint64_t armed_ = 0;
    beast::flat_buffer buffer_;
    std::optional<http::request_parser<http::string_body>> parser_;
    std::shared_ptr<class ExchangeImpl> exchange_;
    std::string sending_;
    bool closed_ = false;
    bool linger_ = false;  // close once everything is sent
};

class ExchangeImpl : public Exchange {
  public:
    ExchangeImpl(std::shared_ptr<Connection> connection, HttpRequest request, bool keep_alive, bool old)
        : connection_(std::move(connection)), request_(std::move(request)), keep_alive_(keep_alive), old_(old) {}

    ~ExchangeImpl() override {
        if (!finished_) end();  // a handler that answered nothing, or left a stream open
    }

    const HttpRequest& request() const override { return request_; }
    std::string peer() const override { return connection_->peer_; }

    void add_header(std::string name, std::string value) override {
        const std::lock_guard lock(state_);
        extra_.emplace_back(std::move(name), std::move(value));
    }

    void respond(HttpResponse response) override {
        std::string out = head(response.status, response.content_type, response.headers);
        if (response.status != 204) out += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
        out += "\r\n";
        if (request_.method != "HEAD") out += response.body;
        put(out);
        end();
    }

    void start_stream(std::string content_type, Headers headers) override {
        std::string out = head(200, content_type, headers);
        out += old_ ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n";
        put(out);
    }

    void write(std::string_view piece) override {
        if (piece.empty()) return;
        if (old_) return put(piece);
        char size[20];
        const int digits = std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
        std::string out;
        out.reserve(static_cast<size_t>(digits) + piece.size() + 2);
        out.append(size, static_cast<size_t>(digits)).append(piece).append("\r\n");
        put(out);
    }

    void end_stream() override {
        if (finished_) return;
        if (!old_) put("0\r\n\r\n");
        end();
    }

    bool gone() const override {
        const std::lock_guard lock(connection_->mutex_);
        return connection_->gone_;
    }

    void on_gone(std::function<void()> call) override {
        const std::lock_guard lock(call_mutex_);
        call_ = std::move(call);
        if (call_ && gone()) std::exchange(call_, {})();
    }
    void tell_gone() {
        const std::lock_guard lock(call_mutex_);
        if (call_) std::exchange(call_, {})();
    }

    int status() const override {
        const std::lock_guard lock(state_);
        return status_;
    }

  private:
    std::string head(int status, const std::string& content_type, const Headers& headers) {
        const std::lock_guard lock(state_);
        status_ = status;
        std::string out = "HTTP/1.1 " + std::to_string(status) + " " + std::string(status_text(status)) + "\r\n";
        if (!content_type.empty()) out += "Content-Type: " + content_type + "\r\n";
        for (const Headers* list : {static_cast<const Headers*>(&extra_), &headers})
            for (const auto& [name, value] : *list) out += name + ": " + value + "\r\n";
        if (!keep_alive_ || old_) out += "Connection: close\r\n";
        return out;
    }

    void put(std::string_view bytes) {
        if (!finished_) connection_->send(bytes);
    }

    void end() {
        finished_ = true;
        {
            const std::lock_guard lock(connection_->mutex_);
            connection_->over_ = true;
            connection_->keep_alive_ = keep_alive_ && !old_;
        }
        connection_->flush();
    }

    const std::shared_ptr<Connection> connection_;
    const HttpRequest request_;
    const bool keep_alive_;
    const bool old_;  // HTTP/1.0: no chunks, the connection's end is the answer's
    std::atomic<bool> finished_{false};
    mutable std::mutex state_;
    Headers extra_;
    int status_ = 0;
    std::mutex call_mutex_;
    std::function<void()> call_;
};

class TransportImpl : public Transport {
  public:
    TransportImpl(TransportOptions options, Handler handler, Refusal refusal)
        : options_(std::move(options)),
          handler_(std::move(handler)),
          refusal_(std::move(refusal)),
          acceptor_(io_),
          pool_(options_.handlers) {}
    ~TransportImpl() override { stop(); }

    Result<void> bind() {
        error_code error;
        tcp::resolver resolver(io_);
        const auto found =
            resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
        if (error || found.empty())
            return failure("--host " + options_.host + ": is no address of this machine (" + error.message() + ")");
        const tcp::endpoint endpoint = found.begin()->endpoint();
        acceptor_.open(endpoint.protocol(), error);
        if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
        if (!error) acceptor_.bind(endpoint, error);
        if (error == asio::error::address_in_use)
            return failure("port " + std::to_string(options_.port) + " of " + options_.host +
                           " is taken: another program listens there; choose another with --port (0: any free one)");
        if (!error) acceptor_.listen(1024, error);
        if (error)
            return failure("cannot listen on " + options_.host + ":" + std::to_string(options_.port) + ": " +
                           error.message());
        port_ = acceptor_.local_endpoint().port();
        return {};
    }

    int port() const override { return port_; }
    size_t connections() const override { return count_.load(); }

    void start() override {
        accept();
        thread_ = std::thread([this] { io_.run(); });
    }

    void stop_accepting() override {
        draining_ = true;
        asio::post(io_, [this] {
            error_code ignored;
            acceptor_.close(ignored);
        });
    }

    void stop() override {
        if (stopped_.exchange(true)) return;
        stop_accepting();
        asio::post(io_, [this] {
            for (Connection* connection : std::set<Connection*>(open_)) connection->close();
        });
        pool_.join();  // the handlers see that their clients have gone
        work_.reset();
        asio::post(io_, [this] { io_.stop(); });
        if (thread_.joinable()) thread_.join();
    }

    void accept() {
        acceptor_.async_accept([this](error_code error, tcp::socket socket) {
            if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
            if (error) {  // out of descriptors, for one: try again a little later
                auto pause = std::make_shared<asio::steady_timer>(io_, std::chrono::milliseconds(50));
                pause->async_wait([this, pause](error_code) {
                    if (acceptor_.is_open()) accept();
                });
                return;
            }
            if (open_.size() < options_.connections)
                std::make_shared<Connection>(*this, std::move(socket))->wait_for_request();
            accept();
        });
    }

    const TransportOptions options_;
    const Handler handler_;
    const Refusal refusal_;
    asio::io_context io_{1};
    asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
    tcp::acceptor acceptor_;
    std::set<Connection*> open_;
    std::atomic<size_t> count_{0};
    std::atomic<bool> draining_{false}, stopped_{false};
    WorkerPool pool_;
    std::thread thread_;
    int port_ = 0;
};

// ---- a connection
// ------------------------------------------------------------------------------------------------------------

Connection::Connection(TransportImpl& transport, tcp::socket socket)
    : transport_(transport), socket_(std::move(socket)), descriptor_(socket_.native_handle()), timer_(transport.io_) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    const tcp::endpoint remote = socket_.remote_endpoint(ignored);
    if (!ignored) peer_ = remote.address().to_string();
    transport_.open_.insert(this);
    ++transport_.count_;
}

void Connection::close() {
    if (closed_) return;
    closed_ = true;
    {
        const std::lock_guard lock(mutex_);
        gone_ = true;
        unsent_.clear();
    }
    error_code ignored;
    timer_.cancel();
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
    transport_.open_.erase(this);
    --transport_.count_;
    client_gone();
}

void Connection::client_gone() {
    drained_.notify_all();
    if (const auto exchange = exchange_) exchange->tell_gone();
    exchange_.reset();
}

/// Closes the connection when `limit` passes before the next arm. Zero: no limit.
void Connection::arm(std::chrono::seconds limit) {
    const uint64_t mine = ++armed_;
    if (limit.count() == 0) {
        timer_.cancel();
        return;
    }
    timer_.expires_after(limit);
    timer_.async_wait([self = shared_from_this(), mine](error_code error) {
        if (!error && mine == self->armed_) self->close();
    });
}

void Connection::wait_for_request() {
    if (closed_) return;
    if (transport_.draining_) return close();
    if (buffer_.size() > 0) return read_header();
    buffer_ = beast::flat_buffer();  // an idle connection holds no memory for requests
    arm(transport_.options_.idle_limit);
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
        if (error) return self->close();
        self->read_header();
    });
}

void Connection::read_header() {
    parser_.emplace();
    parser_->header_limit(transport_.options_.header_limit);
    parser_->body_limit(transport_.options_.body_limit);
    arm(transport_.options_.slow_limit);
    http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
        if (error == http::error::header_limit) return self->refuse(431, "the request's headers are too long");
        if (error == http::error::body_limit) return self->refuse(413, "the request's body is too long");
        if (error == http::error::end_of_stream || !self->parser_->got_some()) return self->close();
        if (error && error.category() == http::make_error_code(http::error::bad_method).category())
            return self->refuse(400, "this is no HTTP request: " + error.message());
        if (error) return self->close();
        if (const auto expect = self->parser_->get().find(http::field::expect);
            expect != self->parser_->get().end() && beast::iequals(expect->value(), "100-continue"))
            self->send("HTTP/1.1 100 Continue\r\n\r\n");
        self->read_body();
    });
}

void Connection::read_body() {
    if (parser_->is_done()) return take_request();
    arm(transport_.options_.slow_limit);
    http::async_read_some(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
        if (error == http::error::body_limit) return self->refuse(413, "the request's body is too long");
        if (error && error.category() == http::make_error_code(http::error::bad_method).category() &&
            error != http::error::partial_message && error != http::error::end_of_stream)
            return self->refuse(400, "this is no HTTP request: " + error.message());
        if (error) return self->close();
        self->read_body();
    });
}

HttpRequest request_of(http::request<http::string_body>&& message) {
    HttpRequest request;
    request.method = std::string(message.method_string());
    request.target = std::string(message.target());
    for (const auto& field : message)
        request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    request.body = std::move(message.body());
    return request;
}

void Connection::take_request() {
    arm(std::chrono::seconds(0));
    const bool keep_alive = parser_->get().keep_alive() && !transport_.draining_;
    const bool old = parser_->get().version() < 11;
    exchange_ = std::make_shared<ExchangeImpl>(shared_from_this(), request_of(parser_->release()), keep_alive, old);
    parser_.reset();
    watch_for_close();
    transport_.pool_.run([&transport = transport_, exchange = exchange_] { transport.handler_(exchange); });
}

/// While a request is answered nothing is read, but its client may go.
void Connection::watch_for_close() {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
        if (error == asio::error::operation_aborted || self->closed_ || !self->exchange_) return;
        if (error) return self->close();
        char byte;
        const ssize_t got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return self->close();
        // Bytes of the next request: it is read after this answer. From now on a close is noticed by writing.
    });
}

void Connection::refuse(int status, const std::string& message) {
    linger_ = true;
    HttpRequest known;
    if (parser_) {
        known.method = std::string(parser_->get().method_string());
        known.target = std::string(parser_->get().target());
    }
    parser_.reset();
    exchange_ = std::make_shared<ExchangeImpl>(shared_from_this(), known, false, false);
    arm(transport_.options_.slow_limit);
    exchange_->respond(transport_.refusal_(known, status, message));
}

void Connection::flush() {
    asio::dispatch(transport_.io_, [self = shared_from_this()] { self->send_unsent(); });
}

void Connection::send(std::string_view bytes) {
    std::unique_lock lock(mutex_);
    drained_.wait(lock, [&] { return gone_ || unsent_.size() < kMostUnsent; });
    if (gone_) return;
    if (unsent_.empty() && !writing_) {
        // An error is left to the transport's thread, which meets it too.
        const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
        if (bytes.empty()) return;
    }
    unsent_ += bytes;
    lock.unlock();
    flush();
}

void Connection::send_unsent() {
    if (closed_) return;
    bool over;
    {
        const std::lock_guard lock(mutex_);
        if (writing_) return;
        sending_.clear();
        std::swap(sending_, unsent_);
        over = over_;
        writing_ = !sending_.empty();
    }
    drained_.notify_all();
    if (sending_.empty()) {
        if (over) answer_over();
        return;
    }
    arm(transport_.options_.slow_limit);
    asio::async_write(socket_, asio::buffer(sending_), [self = shared_from_this()](error_code error, size_t) {
        {
            const std::lock_guard lock(self->mutex_);
            self->writing_ = false;
        }
        if (error) return self->close();
        if (self->parser_)
            self->arm(self->transport_.options_.slow_limit);  // "100 Continue": the body is still to come
        else
            self->arm(std::chrono::seconds(0));
        self->send_unsent();
    });
}

void Connection::answer_over() {
    bool keep_alive;
    {
        const std::lock_guard lock(mutex_);
        over_ = false;
        keep_alive = keep_alive_;
    }
    exchange_.reset();
    if (!keep_alive || linger_ || transport_.draining_) {
        // What the client still sends is read and dropped, so that its kernel does not throw the answer away.
        error_code ignored;
        socket_.shutdown(tcp::socket::shutdown_send, ignored);
        arm(std::chrono::seconds(2));
        auto sink = std::make_shared<std::array<char, 16384>>();
        auto drain = std::make_shared<std::function<void()>>();
        *drain = [self = shared_from_this(), sink, again = std::weak_ptr(drain)] {
            self->socket_.async_read_some(asio::buffer(*sink), [self, keep = again.lock()](error_code error, size_t) {
                if (error || !keep) return self->close();
                (*keep)();
            });
        };
        return (*drain)();
    }
    error_code ignored;
    socket_.cancel(ignored);  // the watch for a close
    wait_for_request();
}

}  // namespace

Result<std::unique_ptr<Transport>> Transport::open(TransportOptions options, Handler handler, Refusal refusal) {
    auto transport = std::make_unique<TransportImpl>(std::move(options), std::move(handler), std::move(refusal));
    STRATA_TRY(transport->bind());
    return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace strata::server
