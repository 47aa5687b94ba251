// polystrata benchmark: how fast a model reads and writes on this machine, in a form that compares.

#include "cli/benchmark.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "cli/answer_printer.h"
#include "cli/command.h"
#include "cli/engine_start.h"
#include "cli/synthetic.h"
#include "setup/machine.h"
#include "setup/sha256.h"
#include "text/tokenizer.h"

namespace strata::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kShortPrompt =
    "Tell the story of a lighthouse keeper who repairs an old radio, in many details.";
constexpr int64_t kRoom = 8;  // tokens of the context that the engine keeps free
constexpr double kMuchDisk = 64e6;
constexpr const char* kSyntheticNote =
    "Random weights in the real model's shapes: the real one reads and writes at these speeds but for two things that "
    "only it has: how\n"
    "many guesses of its draft block are right (writing is faster), and how unevenly it uses its experts (more are "
    "found in VRAM).\n";

struct Flags {
    ModelFlags model;
    std::vector<int64_t> prompt_tokens = {2000, 8000};
    int64_t new_tokens = 256;
    std::string json;
    std::string compare;
    std::string synthetic;  // a preset instead of a model
    bool yes = false;
    EngineFlags engine;
};

struct Prompt {
    std::string name;
    std::vector<int32_t> ids;
};

/// The first `count` tokens of the benchmark's text, which is repeated where it ends.
std::vector<int32_t> text_tokens(const Tokenizer& tokenizer, int64_t count) {
    std::vector<int32_t> ids = tokenizer.encode_prompt(kBenchmarkText);
    while (static_cast<int64_t>(ids.size()) < count) {
        const std::vector<int32_t> more = tokenizer.encode(kBenchmarkText);
        ids.insert(ids.end(), more.begin(), more.end());
    }
    ids.resize(static_cast<size_t>(count));
    return ids;
}

/// The short prompt and the long ones, as far as they and their answers fit the context.
std::vector<Prompt> make_prompts(const Tokenizer& tokenizer, const Flags& flags, int64_t context) {
    std::vector<Prompt> prompts = {{"short", tokenizer.encode_prompt(kShortPrompt)}};
    for (const int64_t wanted : flags.prompt_tokens) {
        const int64_t count = std::min(wanted, context - flags.new_tokens - kRoom);
        if (count < wanted)
            std::fprintf(
                stderr,
                "polystrata benchmark: the prompt of %lld tokens does not fit the context of %lld: cut to %lld\n",
                static_cast<long long>(wanted), static_cast<long long>(context), static_cast<long long>(count));
        if (count > 0) prompts.push_back({std::to_string(count), text_tokens(tokenizer, count)});
    }
    return prompts;
}

Result<BenchmarkRun> measure(protocol::EngineProcess& engine, const Tokenizer& tokenizer, const Prompt& prompt,
                             const Flags& flags, bool with_card, AnswerPrinter& printer, Interrupts& interrupts) {
    GenerateRequest request;
    request.max_new = flags.new_tokens;
    request.prompt = prompt.ids;
    request.stop_ids.emplace();  // writes on: every run writes the same number of tokens
    request.cache = false;
    request.sampling.temperature = 0;

    BenchmarkRun run;
    run.name = prompt.name;
    LoadSampler sampler(engine.pid(), with_card);
    const auto begin = Clock::now();
    const auto generation = engine.submit(request);
    std::atomic<bool> interrupted = false;
    const Interrupts::Watch watch(interrupts, [&](bool) {
        interrupted = true;
        engine.quit(std::chrono::milliseconds(0));
    });
    std::vector<int32_t> answer;
    while (const auto event = generation->next()) {
        if (interrupted) return Error{ErrorKind::failed, "interrupted", "interrupted"};
        if (const auto* error = std::get_if<Error>(&*event)) return *error;
        if (const auto* progress = std::get_if<protocol::Progress>(&*event))
            printer.status(prompt.name + ": reading " + std::to_string(progress->read) + " of " +
                           std::to_string(progress->total));
        if (const auto* token = std::get_if<protocol::Token>(&*event)) {
            if (answer.empty()) run.first_token_s = std::chrono::duration<double>(Clock::now() - begin).count();
            answer.push_back(token->id);
            printer.status(prompt.name + ": writing " + std::to_string(answer.size()) + " of " +
                           std::to_string(flags.new_tokens));
        }
        if (const auto* done = std::get_if<protocol::Done>(&*event)) {
            run.done = *done;
            break;
        }
    }
    run.load = sampler.finish();
    printer.finish();
    run.text_sha256 = sha256(tokenizer.decode(answer, true));
    return run;
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

Json result_json(const ModelEntry& entry, const Machine& machine, const protocol::EngineProcess& engine,
                 const std::vector<std::string>& arguments, const std::vector<BenchmarkRun>& runs) {
    Json facts = Json::object();
    for (const auto& [key, value] : engine.facts()) facts[key] = value;
    Json list = Json::array();
    for (const BenchmarkRun& run : runs) list.push_back(run_json(run));
    Json flags = entry.config.arguments;
    for (const std::string& argument : arguments) flags.push_back(argument);
    return {{"program", "polystrata benchmark"},
            {"version", POLYSTRATA_VERSION},
            {"build", "C++ " __VERSION__},
            {"when", utc_now()},
            {"machine", machine_json(machine)},
            {"model", entry_json(entry)},
            {"engine", std::move(facts)},
            {"flags", std::move(flags)},
            {"runs", std::move(list)}};
}

Result<void> write_file(const std::string& path, const std::string& text) {
    std::ofstream out(path, std::ios::binary);
    out << text;
    out.flush();
    if (!out) return failure(path + ": cannot be written");
    return {};
}

Outcome run(const Flags& flags) {
    Json before;
    if (!flags.compare.empty()) {  // a wrong file is found before minutes of measuring
        STRATA_TRY_ASSIGN(const std::string text, read_text_file(flags.compare));
        auto parsed = parse_json(text);
        if (!parsed || !is_benchmark_result(*parsed))
            return file_error(flags.compare + ": holds no result of polystrata benchmark", "no-result");
        before = std::move(parsed).value();
    }
    Interrupts interrupts;
    ModelEntry entry;
    if (flags.synthetic.empty()) {
        STRATA_TRY_ASSIGN(entry, flags.model.resolve());
    } else {
        STRATA_TRY_ASSIGN(const std::filesystem::path home, flags.model.home());
        STRATA_TRY_ASSIGN(const auto path, synthetic_file(flags.synthetic, home, flags.yes, interrupts));
        STRATA_TRY_ASSIGN(entry, resolve_model(path.string(), home));
    }
    STRATA_TRY_ASSIGN(const gguf::File file, gguf::File::open(entry.path));
    STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(file));
    STRATA_TRY_ASSIGN(const std::vector<std::string> arguments, flags.engine.split());
    AnswerPrinter printer(stdout, stderr);
    printer.status("loading " + entry.id);
    STRATA_TRY_ASSIGN(const auto engine, start_engine(entry, arguments, interrupts));
    const Machine machine = this_machine();
    std::vector<BenchmarkRun> runs;
    uint64_t disk = 0;
    for (const Prompt& prompt : make_prompts(tokenizer, flags, engine->ready().max_context)) {
        STRATA_TRY_ASSIGN(BenchmarkRun run,
                          measure(*engine, tokenizer, prompt, flags, !machine.gpu.empty(), printer, interrupts));
        disk += run.load.disk_read;
        runs.push_back(std::move(run));
    }
    const Json result = result_json(entry, machine, *engine, arguments, runs);
    std::printf("%s\n%s\n%s", machine_text(machine).c_str(), entry.path.c_str(), runs_table(runs).c_str());
    if (static_cast<double>(disk) > kMuchDisk)
        std::printf("%s came from the disk meanwhile: run this twice and keep the second result\n",
                    bytes_text(disk).c_str());
    if (!flags.synthetic.empty()) std::fputs(kSyntheticNote, stdout);
    if (!before.is_null()) {
        const std::string ratios = compare_results(result, before);
        std::printf("compared with %s\n%s", flags.compare.c_str(),
                    ratios.empty() ? "no run of the same name\n" : ratios.c_str());
    }
    if (!flags.json.empty()) {
        STRATA_TRY(write_file(flags.json, json_text(result, {.key_separator = ": ", .indent = 2}) + "\n"));
    }
    return 0;
}

}  // namespace

Run declare_benchmark(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    const Flag model = flags->model.add(set);
    set.numbers("--prompt-tokens", flags->prompt_tokens, 1, 10'000'000,
                "Lengths of the long prompts (a short one is always measured)")
        .shows_default();
    set.number("--new", flags->new_tokens, 1, 1'000'000, "Tokens written after each prompt").shows_default();
    set.text("--json", flags->json, "Write the result to this file", "FILE");
    set.text("--synthetic", flags->synthetic,
             "Measure a model with random weights and this preset's shapes; the file is written once, into synthetic/",
             "PRESET[:MIX]")
        .excludes(model);
    set.toggle("--yes", flags->yes, "Write that file without asking");
    set.text("--compare", flags->compare, "Print ratios to an earlier result", "FILE");
    flags->engine.add(set);
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
