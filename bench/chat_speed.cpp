// How long a chat of 200 messages takes from its JSON to a prompt, and a reply from its text to events. CPU time of one
// thread.
//
//     chat_speed TEMPLATE.jinja       for example tests/data/chat/templates/chatml-xml.jinja
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "text/chat.h"

namespace {

using namespace strata;

double cpu_ms() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

std::string repeated(std::string_view text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
}

/// 200 messages: a system message, rounds of question, call and result, a last question; 30 tools.
std::string long_chat() {
    Json messages = Json::array({{{"role", "system"}, {"content", repeated("You are a helpful agent. ", 40)}}});
    for (int i = 0; i < 66; ++i) {
        std::string number = std::to_string(i), id = "call_" + number;
        messages.push_back(
            {{"role", "user"}, {"content", repeated("Please look at file " + number + " and tell me. ", 20)}});
        messages.push_back(
            {{"role", "assistant"},
             {"content", "ok"},
             {"reasoning_content", repeated("thinking ", 50)},
             {"tool_calls",
              {{{"id", id},
                {"type", "function"},
                {"function",
                 {{"name", "read_file"}, {"arguments", "{\"path\": \"/a/" + number + "\", \"limit\": 20}"}}}}}}});
        messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", repeated("line of a file\n", 100)}});
    }
    messages.push_back({{"role", "user"}, {"content", "and?"}});
    Json tools = Json::array();
    for (int i = 0; i < 30; ++i) {
        Json properties = Json::object();
        for (const char* key : {"a", "b", "c", "d", "e", "f"}) {
            properties[key] = {{"type", "string"}, {"description", repeated("x", 50)}};
        }
        tools.push_back({{"type", "function"},
                         {"function",
                          {{"name", "tool_" + std::to_string(i)},
                           {"description", repeated("d", 200)},
                           {"parameters", {{"type", "object"}, {"properties", properties}}}}}});
    }
    return json_text({{"messages", messages}, {"tools", tools}});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: chat_speed TEMPLATE.jinja\n");
        return 2;
    }
    std::ifstream file(argv[1]);
    std::stringstream source;
    source << file.rdbuf();
    ChatModel model;
    model.name = argv[1];
    model.chat_template = source.str();
    auto format = ChatFormat::make(std::move(model));
    if (!format.ok()) {
        std::fprintf(stderr, "%s\n", format.error().message.c_str());
        return 1;
    }
    std::string body = long_chat();
    size_t size = 0;
    double best_json = 1e9, best = 1e9;
    for (int round = 0; round < 20; ++round) {
        double start = cpu_ms();
        auto json = parse_json(body);
        auto request = ChatRequest::from_body(std::move(*json));
        double parsed = cpu_ms();
        best_json = std::min(best_json, parsed - start);
        auto prompt = format->render(*request);
        if (!prompt.ok()) {
            std::fprintf(stderr, "%s\n", prompt.error().message.c_str());
            return 1;
        }
        size = prompt->text.size();
        best = std::min(best, cpu_ms() - parsed);
    }
    std::printf("200 messages: %zu bytes of JSON read in %.2f ms; a prompt of %zu bytes, rendered twice, in %.2f ms\n",
                body.size(), best_json, size, best);

    std::string reply = repeated("A sentence of a reply, with a < here and there.\n", 20000);
    best = 1e9;
    for (int round = 0; round < 10; ++round) {
        AnswerOptions options;
        options.tools = ToolSet((*parse_json(body))["tools"]);
        double start = cpu_ms();
        AnswerParser parser(format->dialect(), options);
        std::vector<AnswerEvent> events;
        for (size_t at = 0; at < reply.size(); at += 4) {
            parser.push(std::string_view(reply).substr(at, 4), events);
            events.clear();
        }
        parser.finish(AnswerEnd::stop, events);
        best = std::min(best, cpu_ms() - start);
    }
    std::printf("a reply in pieces of 4 bytes: %.0f ns a piece\n",
                best * 1e6 / (static_cast<double>(reply.size()) / 4));
    return 0;
}
