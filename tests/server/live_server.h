// A server in this process with the tiny model's engine.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http_client.h"
#include "server/server.h"
#include "support/process.h"

namespace strata::server {

using test::HttpAnswer;
using test::HttpClient;

/// A server of its own with the tiny model (random weights: its words mean nothing, but they are always the same).
class LiveServer {
  public:
    explicit LiveServer(ServerOptions options = {}, std::vector<std::string> engine = {}, bool lazy = false) {
        std::filesystem::create_directories(folder_.path() / "models");
        std::filesystem::create_symlink(test::data("qwen35moe/tiny.gguf"), folder_.path() / "models/tiny.gguf");
        folder_.file("models/broken.gguf", "no model");
        options.port = 0;
        log_ = Log::open({.level = LogLevel::error}).value();
        HostOptions host;
        host.home = folder_.path();
        host.engine = test::program("strata-poly");
        host.engine_arguments = {"--device", "cpu", "--threads", "1", "--quiet"};
        host.engine_arguments.insert(host.engine_arguments.end(), engine.begin(), engine.end());
        auto opened = Server::open(options, host, *log_);
        EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
        server_ = std::move(*opened);
        auto entry = resolve_model("tiny", folder_.path());
        EXPECT_TRUE(entry);
        EXPECT_TRUE(server_->start(*entry, !lazy));
        while (!lazy && !server_->host().wait_ready(std::chrono::milliseconds(100))) {
        }
    }

    int port() const { return server_->port(); }
    Server& server() { return *server_; }
    const test::TempFolder& folder() const { return folder_; }
    HttpAnswer ask(std::string_view method, std::string_view path, std::string_view body = {},
                   std::string_view headers = {}) const {
        HttpClient client(port());
        return client.ask(method, path, body, headers);
    }
    HttpAnswer post(std::string_view path, std::string_view body) const { return ask("POST", path, body); }

  private:
    test::TempFolder folder_;
    std::unique_ptr<Log> log_;
    std::unique_ptr<Server> server_;
};

}  // namespace strata::server
