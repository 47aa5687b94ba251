// A server in this process, with the tiny model's engine or with one that follows a script.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http_client.h"
#include "server/server.h"
#include "support/mock_model.h"
#include "support/process.h"

namespace strata::server {

using test::HttpAnswer;
using test::HttpClient;

class RunningServer {
  public:
    int port() const { return server_->port(); }
    Server& server() { return *server_; }
    HttpAnswer ask(std::string_view method, std::string_view path, std::string_view body = {},
                   std::string_view headers = {}) const {
        HttpClient client(port());
        return client.ask(method, path, body, headers);
    }
    HttpAnswer post(std::string_view path, std::string_view body) const { return ask("POST", path, body); }

  protected:
    void start(ServerOptions options, HostOptions host, const std::string& model, bool lazy) {
        options.port = 0;
        log_ = Log::open({.level = LogLevel::error}).value();
        auto opened = Server::open(options, host, *log_);
        ASSERT_TRUE(opened) << (opened ? "" : opened.error().message);
        server_ = std::move(*opened);
        auto entry = resolve_model(model, host.home);
        ASSERT_TRUE(entry) << entry.error().message;
        ASSERT_TRUE(server_->start(*entry, !lazy));
        while (!lazy && !server_->host().wait_ready(std::chrono::milliseconds(100))) {
        }
    }
    void end() { server_.reset(); }

  private:
    std::unique_ptr<Log> log_;
    std::unique_ptr<Server> server_;
};

/// A server of its own with a tiny model (random weights: its words mean nothing, but they are always the same).
class LiveServer : public RunningServer {
  public:
    explicit LiveServer(ServerOptions options = {}, const std::vector<std::string>& engine = {}, bool lazy = false,
                        const std::string& chat_template = {}) {
        std::filesystem::create_directories(folder_.path() / "models");
        std::filesystem::create_symlink(test::data("qwen35moe/tiny.gguf"), folder_.path() / "models/tiny.gguf");
        folder_.file("models/broken.gguf", "no model");
        if (!chat_template.empty())
            folder_.file("strata-tiny.json",
                         json_text({{"args", {"--model", "models/tiny.gguf"}},
                                    {"chat_template", test::data("chat/templates/" + chat_template)}}));
        HostOptions host;
        host.home = folder_.path();
        host.engine = test::program("strata-poly");
        host.engine_arguments = {"--device", "cpu", "--threads", "1", "--quiet"};
        host.engine_arguments.insert(host.engine_arguments.end(), engine.begin(), engine.end());
        start(std::move(options), std::move(host), "tiny", lazy);
    }
    ~LiveServer() { end(); }
    const test::TempFolder& folder() const { return folder_; }

  private:
    test::TempFolder folder_;
};

/// A server whose engine follows a script. An engine that is started again reads it anew.
class ScriptedServer : public RunningServer {
  public:
    explicit ScriptedServer(std::string_view script, ServerOptions options = {}, HostOptions host = {},
                            bool lazy = false)
        : model_(script) {
        host.home = model_.folder();
        start(std::move(options), std::move(host), "mock", lazy);
    }
    ~ScriptedServer() { end(); }
    const test::MockModel& model() const { return model_; }

  private:
    test::MockModel model_;
};

}  // namespace strata::server
