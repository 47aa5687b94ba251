// What the server costs beside its engine: a scripted engine writes tokens at a given pace and says when, a client says
// when they came, the server's processor time is read from outside.
//
//     serve_speed POLYSTRATA MODEL.gguf [TOKENS]
//
// MODEL gives the tokenizer and the template; nothing of it is computed. Prints, for one client with a token every
// millisecond, one with tokens as fast as they go, and 64 clients with a token every 20 ms each: the time from request
// to the engine's hearing of it and from the engine's first token to the client's (both beyond the engine's own), the
// delay of a token, and the server's processor time for a token, requests included.
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <netinet/tcp.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;  // the same in all processes of a machine

int64_t now_ns() {
    return Clock::now().time_since_epoch().count();
}

constexpr size_t kClients = 64;
constexpr size_t kMostTokens = 1 << 16;

/// Shared by engine and client: when a request was heard of, and when each of its tokens was written.
struct Stamps {
    struct Request {
        std::atomic<int64_t> heard;
        std::atomic<int64_t> token[kMostTokens];
    } request[kClients];
    std::atomic<int64_t> period_us;  // between tokens; 0: none
    std::atomic<int64_t> tokens;
};

Stamps& map_stamps(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(Stamps)) != 0) std::exit(1);
    void* memory = mmap(nullptr, sizeof(Stamps), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) std::exit(1);
    close(file);
    return *static_cast<Stamps*>(memory);
}

// ---- the engine

std::mutex output;

void say(const std::string& line) {
    const std::lock_guard lock(output);
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) std::exit(1);
}

/// The value of " name=" in a command; `max_new` finds the request, as each client asks for another number of tokens.
std::string value_of(const std::string& line, const std::string& name) {
    const size_t at = line.find(" " + name + "=");
    if (at == std::string::npos) return {};
    const size_t from = at + name.size() + 2;
    return line.substr(from, line.find(' ', from) - from);
}

int engine(Stamps& stamps) {
    say("INFO arch=scripted parallel=64\nREADY 100000 stop\n");
    std::vector<std::thread> requests;
    for (std::string line; std::getline(std::cin, line) && line != "QUIT";) {
        if (!line.starts_with("GEN ")) continue;
        const int64_t heard = now_ns();
        const auto client = static_cast<size_t>(std::atoll(value_of(line, "seed").c_str()) - 1);
        requests.emplace_back([&stamps, heard, client, id = " id=" + value_of(line, "id") + "\n"] {
            Stamps::Request& mine = stamps.request[client % kClients];
            mine.heard = heard;
            const int64_t tokens = stamps.tokens, period = stamps.period_us * 1000;
            int64_t due = now_ns();
            say("REUSED 0" + id);
            for (int64_t i = 0; i < tokens; ++i) {
                if (period > 0) {
                    due += period;
                    const timespec when{static_cast<time_t>(due / 1'000'000'000),
                                        static_cast<long>(due % 1'000'000'000)};
                    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
                }
                mine.token[i] = now_ns();
                say("T " + std::to_string(70 + i % 20) + id);
            }
            say("DONE " + std::to_string(tokens) + " 9 1 1 length 0 0 0 0 0" + id);
        });
    }
    for (std::thread& request : requests) request.join();
    return 0;
}

// ---- the client

struct Seen {
    int64_t sent = 0, first_byte = 0;
    std::vector<int64_t> tokens;  // when each came
};

Seen ask(int port, size_t client) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::exit(1);
    const std::string body = R"({"messages": [{"role": "user", "content": "go on"}], "stream": true, "seed": )" +
                             std::to_string(client + 1) + "}";
    const std::string request =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    Seen seen;
    seen.sent = now_ns();
    if (send(fd, request.data(), request.size(), 0) < 0) std::exit(1);
    std::string rest;
    char bytes[65536];
    for (ssize_t got; (got = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
        const int64_t when = now_ns();
        if (seen.first_byte == 0) seen.first_byte = when;
        rest.append(bytes, static_cast<size_t>(got));
        size_t from = 0;
        for (size_t end; (end = rest.find("\n\n", from)) != std::string::npos; from = end + 2)
            if (const std::string_view event(rest.data() + from, end - from);
                event.find("\"delta\":{\"") != event.npos && event.find("\"role\"") == event.npos)
                seen.tokens.push_back(when);
        rest.erase(0, from);
    }
    close(fd);
    return seen;
}

double microseconds(std::vector<int64_t>& values, double share) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return static_cast<double>(values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))]) / 1000;
}

int64_t cpu_ns(pid_t process) {
    clockid_t clock;
    timespec time{};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void measure(Stamps& stamps, pid_t server, int port, size_t clients, int64_t period_us, int64_t tokens) {
    stamps.period_us = period_us;
    stamps.tokens = tokens;
    const int64_t cpu = cpu_ns(server), began = now_ns();
    std::vector<Seen> seen(clients);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < clients; ++i) threads.emplace_back([&, i] { seen[i] = ask(port, i); });
    for (std::thread& thread : threads) thread.join();
    const double all = static_cast<double>(tokens) * static_cast<double>(clients);
    const double cpu_us = static_cast<double>(cpu_ns(server) - cpu) / 1000 / all;
    const double wall_us = static_cast<double>(now_ns() - began) / 1000 / all;
    std::vector<int64_t> first_byte, heard, first_token, delay;
    for (size_t i = 0; i < clients; ++i) {
        const Stamps::Request& request = stamps.request[i];
        first_byte.push_back(seen[i].first_byte - seen[i].sent);
        heard.push_back(request.heard - seen[i].sent);
        if (seen[i].tokens.size() != static_cast<size_t>(tokens))
            std::printf("client %zu saw %zu of %lld tokens\n", i, seen[i].tokens.size(),
                        static_cast<long long>(tokens));
        const size_t count = std::min(seen[i].tokens.size(), static_cast<size_t>(tokens));
        for (size_t t = 0; t < count; ++t) delay.push_back(seen[i].tokens[t] - request.token[t]);
        if (count > 0) first_token.push_back(delay[delay.size() - count]);
    }
    std::printf(
        "%2zu clients, %5lld us a token: first byte %6.0f us, to the engine %6.0f us, first token back %5.0f us, "
        "a token's delay %5.0f us (p99 %6.0f), server %5.1f us of processor a token, %6.1f us of wall\n",
        clients, static_cast<long long>(period_us), microseconds(first_byte, 0.5), microseconds(heard, 0.5),
        microseconds(first_token, 0.5), microseconds(delay, 0.5), microseconds(delay, 0.99), cpu_us, wall_us);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc >= 3 && std::string(argv[1]) == "--engine") return engine(map_stamps(argv[2]));
    if (argc < 3) {
        std::fputs("usage: serve_speed POLYSTRATA MODEL.gguf [TOKENS]\n", stderr);
        return 2;
    }
    const int64_t tokens = std::clamp<int64_t>(argc > 3 ? std::atoll(argv[3]) : 3000, 64, kMostTokens);
    char name[] = "/tmp/serve_speed-XXXXXX";
    const std::filesystem::path folder = mkdtemp(name);
    Stamps& stamps = map_stamps(folder / "stamps");
    std::ofstream(folder / "strata-scripted.json")
        << "{\"exe\": \"" << std::filesystem::read_symlink("/proc/self/exe").string()
        << "\", \"args\": [\"--engine\", \"" << (folder / "stamps").string() << "\", \"--model\", \""
        << std::filesystem::absolute(argv[2]).string() << "\"]}";
    int pipes[2];
    if (pipe(pipes) != 0) return 1;
    const pid_t server = fork();
    if (server == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        execl(argv[1], argv[1], "serve", "--data-dir", folder.c_str(), "--model", "scripted", "--port", "0", "--queue",
              "64", "--log-level", "error", nullptr);
        _exit(127);
    }
    close(pipes[1]);
    FILE* said = fdopen(pipes[0], "r");
    char line[256];
    int port = 0;
    while (port == 0 && std::fgets(line, sizeof line, said))
        if (const char* colon = std::strrchr(line, ':')) port = std::atoi(colon + 1);
    if (port == 0) return 1;
    measure(stamps, server, port, 1, 0, 64);  // warm
    for (int round = 0; round < 3; ++round) {
        measure(stamps, server, port, 1, 1000, tokens);
        measure(stamps, server, port, 1, 0, tokens);
        measure(stamps, server, port, kClients, 20'000, tokens / 20);
    }
    kill(server, SIGTERM);
    waitpid(server, nullptr, 0);
    std::filesystem::remove_all(folder);
    return 0;
}
