// Connections and bytes, without anything that answers chats.
#include "server/transport.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "http_client.h"

namespace strata::server {
namespace {

using test::HttpAnswer;
using test::HttpClient;

constexpr int kPieces = 3000;

std::string piece(int i) {
    return "piece " + std::to_string(i) + std::string(static_cast<size_t>(i % 700), '.') + "\n";
}
std::string all_pieces() {
    std::string all;
    for (int i = 0; i < kPieces; ++i) all += piece(i);
    return all;
}

class TransportTest : public testing::Test {
  protected:
    void SetUp() override {
        TransportOptions options;
        options.port = 0;
        options.handlers = 16;
        auto opened = Transport::open(
            options, [this](const std::shared_ptr<Exchange>& exchange) { handle(*exchange); },
            [](const HttpRequest&, int status, const std::string& message) {
                return HttpResponse{.status = status, .body = message};
            });
        ASSERT_TRUE(opened) << opened.error().message;
        transport_ = std::move(*opened);
        transport_->start();
    }
    void TearDown() override {
        if (transport_) transport_->stop();
    }

    void handle(Exchange& exchange) {
        if (exchange.request().path() == "/stream") {
            exchange.start_stream("text/plain", {});
            for (int i = 0; i < kPieces; ++i) exchange.write(piece(i));
            exchange.end_stream();
        } else if (exchange.request().path() == "/endless") {
            // It may see that the client has gone before it is told, and takes back its call only after that.
            std::atomic<bool> told = false;
            exchange.on_gone([&] {
                told = true;
                told.notify_all();
            });
            exchange.start_stream("text/plain", {});
            while (!exchange.gone()) exchange.write(std::string(5000, 'x'));
            told.wait(false);
            exchange.on_gone({});
            ++gone_;
        } else {
            exchange.respond({.body = exchange.request().body});
        }
    }

    std::unique_ptr<Transport> transport_;
    std::atomic<int> gone_{0};
};

TEST_F(TransportTest, StreamsArriveWholeAndInOrderForQuickAndSlowReaders) {
    const std::string expected = all_pieces();
    std::vector<std::thread> clients;
    for (int i = 0; i < 6; ++i)
        clients.emplace_back([&, i] {
            HttpClient client(transport_->port());
            client.send(HttpClient::request("GET", "/stream"));
            // A slow one lets the server fill every buffer between them first: it reads only when another is done.
            if (i % 2 == 1) {
                EXPECT_EQ(HttpClient(transport_->port()).ask("GET", "/stream").body, expected);
            }
            EXPECT_EQ(client.read_answer().body, expected);
        });
    for (std::thread& client : clients) client.join();
}

TEST_F(TransportTest, ConnectionsAreUsedAgainAndRequestsSentAheadAreAnsweredInOrder) {
    HttpClient client(transport_->port());
    for (int i = 0; i < 50; ++i) EXPECT_EQ(client.ask("POST", "/echo", std::to_string(i)).body, std::to_string(i));
    std::string ahead;
    for (int i = 0; i < 20; ++i) ahead += HttpClient::request("POST", "/echo", std::to_string(i));
    client.send(ahead + HttpClient::request("GET", "/stream") + HttpClient::request("POST", "/echo", "last"));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(client.read_answer().body, std::to_string(i));
    EXPECT_EQ(client.read_answer().body, all_pieces());
    EXPECT_EQ(client.read_answer().body, "last");
}

TEST_F(TransportTest, ClientsThatGoAwayInTheMiddleAreNoticedByTheirHandlers) {
    for (int i = 0; i < 8; ++i) {
        HttpClient client(transport_->port());
        client.send(HttpClient::request("GET", "/endless"));
        HttpAnswer head;
        ASSERT_TRUE(client.read_head(head));
        for (int n = 0; n < i; ++n) client.read_chunk();
    }
    while (gone_ < 8) std::this_thread::yield();
    EXPECT_EQ(HttpClient(transport_->port()).ask("POST", "/echo", "still here").body, "still here");
}

TEST_F(TransportTest, StopEndsStreamsThatRun) {
    HttpClient client(transport_->port());
    client.send(HttpClient::request("GET", "/endless"));
    HttpAnswer head;
    ASSERT_TRUE(client.read_head(head));
    transport_->stop();
    EXPECT_EQ(gone_, 1);
}

}  // namespace
}  // namespace strata::server
