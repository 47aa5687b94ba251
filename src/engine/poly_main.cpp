// strata-poly: the engine as a program (docs/engine.md).
#include <cstdio>
#include <signal.h>

#include "engine/answer_once.h"
#include "engine/open_engine.h"
#include "engine/serve.h"
#include "gguf/mapping.h"

namespace {

using namespace strata;

CancelFlag interrupt = std::make_shared<std::atomic<bool>>(false);

void on_signal(int) {
    interrupt->store(true);
    interrupt_serve();
}

int complain(const Error& error) {
    std::fprintf(stderr, "strata-poly: %s\n", error.message.c_str());
    return static_cast<int>(error.kind);
}

/// Ctrl+C and a polite request to end; a second one ends the process at once.
void handle_signals() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESETHAND;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
    auto options = parse_poly_options({argv + 1, argv + argc});
    if (!options) return complain(options.error());
    if (options->help) {
        std::fputs(poly_help().c_str(), stdout);
        return 0;
    }
    gguf::report_bus_errors();
    handle_signals();
    auto opened = open_engine(*options);
    if (!opened) return complain(opened.error());
    if (!options->quiet)
        for (const std::string& note : (*opened)->model->facts().notes) std::fprintf(stderr, "%s\n", note.c_str());
    if (options->once()) return answer_once(**opened, *options, interrupt);
    const int code = serve(**opened, *options);
    return interrupt->load() ? 130 : code;
}
