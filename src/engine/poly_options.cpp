#include "engine/poly_options.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <set>
#include <sstream>
#include <thread>

#include "base/numbers.h"

namespace strata {
namespace {

/// Flags that are accepted and do nothing.
struct OtherFlags {
    bool serve = false;
};

void declare(FlagTable& table, PolyOptions& o, OtherFlags& other) {
    CardFlags& card = o.card;
    table.group("Both ways of running:");
    table.text("--model", "FILE", o.model, "the GGUF file; of a split set any part");
    table.choice("--device", {"auto", "cpu", "cuda", "sim"}, o.device, "where the model runs");
    table.number("--threads", "N", 1, 1024, o.threads, "threads that compute (one a physical core)");
    table.number("--max-context", "N", 256, 1 << 24, o.max_context,
                 "rows a conversation may have (32768, or the file's if that is less)");
    table.choice("--kv", {"f16", "q8_0", "f32"}, o.kv, "how rows of attention caches are kept");
    table.number("--prompt-batch", "N", 32, 8192, o.prompt_batch, "rows of one call while reading a prompt (512)");
    table.number("--parallel", "N", 1, 8, o.parallel, "conversations that advance at once (1)");
    table.choice("--simd", {"auto", "scalar", "avx2", "avx512"}, o.simd,
                 "instruction set, for checks: all give the same bits");
    table.enable("--quiet", o.quiet, "no lines for people on standard error");
    table.enable("--serve", other.serve, "serve the line protocol: what happens without --tokens anyway");
    table.enable("--help", o.help, "this text");

    table.group("Guesses, checked several in one call; they change no answer:");
    table.number("--window", "N", 1, kMaxWindow, o.window,
                 "most rows of a window of guesses; 1: none (4, and 8 where a repeat matched 8 tokens or more)");
    table.choice("--guesses", {"measured", "always"}, o.guesses,
                 "when to guess: where measuring says that it pays, or whenever there is one");
    table.text("--draft-model", "FILE", o.draft_model, "a draft model in a file of its own");
    table.disable("--no-draft", o.draft, "no guesses from a draft block or draft model");
    table.disable("--no-repeats", o.repeats, "no guesses from repeats of the context");

    table.group("What is remembered between requests:");
    table.number("--prompt-cache-every", "N", 0, 1 << 24, o.checkpoint_every,
                 "rows between checkpoints of a read; 0: only ends of turns (2048)");
    table.number("--prompt-cache", "N", 0, 4096, o.checkpoints,
                 "checkpoints of a conversation; 0: nothing is reused (6)");
    table.number("--conversation-cache-mib", "N", 0, INT64_MAX >> 20, o.park_mib,
                 "RAM for parked conversations; 0: off (0)");
    table.number("--conversation-cache-slots", "N", 0, 4096, o.park_slots,
                 "how many conversations are parked at most (4)");
    table.number("--conversation-cache-min-free-mib", "N", 0, INT64_MAX >> 20, o.park_min_free_mib,
                 "RAM that must stay free (2560)");

    table.group("Experts and a card's memory (need a card):");
    table.text("--expert-vram", "MIB|all|none", card.expert_vram,
               "size of the expert cache (what is free less the reserve)");
    table.text("--vram-reserve-mib", "N", card.reserve_mib,
               "memory of the card left to others (a thirty-second of it, 256 to 768, at most an eighth)");
    table.text("--sim-vram-mib", "N", card.sim_vram_mib, "memory of the simulated card");
    table.text("--expert-profile", "FILE", card.profile, "counts of earlier use: fills the expert cache, is updated");
    table.enable("--no-swaps", card.swaps_off, "the expert cache stays as loaded");
    table.text("--expert-swaps", "0|1", card.swaps, "0: as --no-swaps");
    table.text("--stage-mib", "N", card.stage_mib, "staging buffer for experts outside the card while reading");
    table.text("--stage-ahead", "N", card.stage_ahead, "calls of at least N rows copy experts before routing is known");
    table.text("--cpu-share", "F|auto", card.cpu_share,
               "share of a small call's experts outside the card that the CPU computes");
    table.text("--tail-skip", "N", card.tail_skip,
               "leave out experts outside the card ranked beyond N; changes answers (0: off)");
    table.text("--skip-weight", "F", card.skip_weight, "the same by weight; changes answers (0: off)");
    table.text("--cache-bias", "F", card.cache_bias, "prefer cached experts by so much; changes answers (0: off)");

    table.group("Answering once:");
    table.text("--tokens", "1,2,3", o.tokens, "the prompt's ids: answer them and exit");
    table.text("--tokens-file", "FILE", o.tokens_file, "the same from a file, separated by commas or white space");
    table.number("--max-new", "N", 0, 1 << 24, o.max_new, "tokens to write at most; 0: only read (128)");
    table.text("--stop-ids", "1,2", o.stop_ids, "ids that end the answer (the file's end ids)");
    table.text("--follow", "7,8,9", o.follow, "ids taken instead of the sampled ones");
    table.text("--grammar", "FILE", o.grammar,
               "what the answer must spell: a compiled grammar, as `polystrata grammar` writes it");
    table.real("--temp", 0, 1e9, o.temperature, "temperature; 0: the likeliest token");
    table.number("--top-k", "N", 0, 1 << 24, o.top_k, "candidates kept; 0 or above 64: 64 (20)");
    table.real("--top-p", 1e-30, 1, o.top_p, "smallest set of candidates with this much probability");
    table.real("--min-p", 0, 1, o.min_p, "candidates below this share of the best one's probability leave");
    table.real("--typical", 1e-30, 1, o.typical, "locally typical candidates with this much probability");
    table.real("--repeat-penalty", 1e-30, 1e9, o.repeat_penalty,
               "divides positive logits of seen tokens, multiplies negative ones");
    table.real("--presence-penalty", -1e9, 1e9, o.presence_penalty, "subtracted from logits of seen tokens");
    table.real("--frequency-penalty", -1e9, 1e9, o.frequency_penalty,
               "subtracted for every time that a token was seen");
    table.number("--penalty-last-n", "N", 0, 1 << 24, o.penalty_last_n, "last tokens that count as seen (64)");
    table.number("--seed", "N", 0, INT64_MAX, o.seed, "of the random draws; 0: from the clock (0)");
    table.text("--picture-rows", "FILE", o.picture_rows, "rows of the prompt's pictures, as strata-vision writes them");
    table.number("--image-pad", "ID", 0, INT32_MAX, o.image_pad, "the id that stands where a picture's row goes");
    table.text("--read-calls", "17,23", o.read_calls, "the prompt in calls of these sizes");
    table.number("--top", "K", 0, kMaxCandidates, o.top, "the K likeliest tokens of each step (0)");
    table.text("--logits-out", "FILE", o.logits_out,
               "float32 logits of every token evaluated, [positions, vocabulary]");
    table.enable("--state-hash", o.state_hash, "a hash of the conversation's state at the end");
    table.text("--load-conversation", "FILE", o.load, "continue a saved conversation where the prompt begins with it");
    table.text("--save-conversation", "FILE", o.save, "save the conversation at the end");
    table.enable("--json", o.json, "one JSON object a line");
    table.enable("--explain", o.explain, "at the end a few lines on where the experts' time went");
}

bool is_zero(const std::string& value) {
    return value.empty() || parse_number(value) == 0.0;
}

Result<void> check(const FlagTable& table, const PolyOptions& o) {
    if (o.model.empty()) return usage_error("--model FILE is missing; --help lists all flags");
    if (!o.tokens.empty() && !o.tokens_file.empty())
        return usage_error("--tokens and --tokens-file exclude each other");
    if (o.once()) return {};
    for (const char* flag : {"--tokens",
                             "--tokens-file",
                             "--max-new",
                             "--stop-ids",
                             "--follow",
                             "--grammar",
                             "--temp",
                             "--top-k",
                             "--top-p",
                             "--min-p",
                             "--typical",
                             "--repeat-penalty",
                             "--presence-penalty",
                             "--frequency-penalty",
                             "--penalty-last-n",
                             "--seed",
                             "--read-calls",
                             "--picture-rows",
                             "--image-pad",
                             "--top",
                             "--logits-out",
                             "--state-hash",
                             "--load-conversation",
                             "--save-conversation",
                             "--json",
                             "--explain"})
        if (table.given(flag)) return usage_error(std::string(flag) + " needs --tokens or --tokens-file");
    return {};
}

/// Ids separated by commas or white space.
Result<std::vector<int32_t>> ids_of(std::string text, const std::string& where) {
    std::replace(text.begin(), text.end(), ',', ' ');
    std::vector<int32_t> ids;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const auto id = parse_int<int32_t>(word, 0);
        if (!id) return usage_error(where + ": '" + word.substr(0, 40) + "' is no token id");
        ids.push_back(*id);
    }
    if (ids.empty()) return usage_error(where + " has no token ids");
    return ids;
}

Result<uint64_t> mib_of(const char* flag, const std::string& value) {
    const auto n = parse_int<int64_t>(value, 0);
    if (!n || *n > INT64_MAX >> 20)
        return usage_error(std::string(flag) + " is '" + value + "'; it wants a number of MiB");
    return static_cast<uint64_t>(*n) << 20;
}

Result<double> real_of(const char* flag, const std::string& value, double most) {
    const auto x = parse_number(value);
    if (!x || !(*x >= 0 && *x <= most))
        return usage_error(std::string(flag) + " is '" + value + "'; it wants a number from 0 to " + number_text(most));
    return *x;
}

/// The numbers of a list like "0-3,8,10-11".
std::set<int> cpu_list(const std::string& path) {
    std::set<int> cpus;
    std::ifstream file(path);
    for (std::string item; std::getline(file, item, ',');) {
        if (!item.empty() && item.back() == '\n') item.pop_back();
        const size_t dash = item.find('-');
        const auto first = parse_int<int>(item.substr(0, dash), 0);
        const auto last = dash == std::string::npos ? first : parse_int<int>(item.substr(dash + 1), 0);
        for (int cpu = first.value_or(0); first && last && cpu <= *last; ++cpu) cpus.insert(cpu);
    }
    return cpus;
}

}  // namespace

Result<void> CardFlags::check(ExpertsIn where) const {
    const auto refuse = [&](const char* flag) {
        return device_error(std::string(flag) +
                            (where == ExpertsIn::host ? " needs a card, and this engine runs on the CPU: leave it out"
                             : where == ExpertsIn::card
                                 ? ": this engine keeps all experts in the card's memory; leave it out"
                                 : ": the expert cache does not know it yet; leave it out"));
    };
    if (!is_zero(cache_bias)) return refuse("--cache-bias");
    if (where == ExpertsIn::slots) return {};
    if (!stage_ahead.empty()) return refuse("--stage-ahead");
    const bool all = expert_vram == "all",
               none = expert_vram == "none" || (!expert_vram.empty() && is_zero(expert_vram));
    if (!expert_vram.empty() && !(where == ExpertsIn::card ? all : none)) return refuse("--expert-vram");
    if (!is_zero(reserve_mib)) return refuse("--vram-reserve-mib");
    if (!sim_vram_mib.empty()) return refuse("--sim-vram-mib");
    if (!profile.empty()) return refuse("--expert-profile");
    if (!is_zero(stage_mib)) return refuse("--stage-mib");
    if (!cpu_share.empty()) return refuse("--cpu-share");
    if (!is_zero(tail_skip)) return refuse("--tail-skip");
    if (!is_zero(skip_weight)) return refuse("--skip-weight");
    return {};
}

Result<uint64_t> CardFlags::sim_memory() const {
    if (sim_vram_mib.empty()) return device_error("--device sim needs --sim-vram-mib N, the memory of the card");
    return mib_of("--sim-vram-mib", sim_vram_mib);
}

Result<ExpertStoreOptions> CardFlags::store_options(uint64_t card) const {
    constexpr uint64_t kMiB = uint64_t{1} << 20;
    ExpertStoreOptions o;
    o.reserve = std::min(std::clamp(card / 32, 256 * kMiB, 768 * kMiB), card / 8);
    if (!reserve_mib.empty()) {
        STRATA_TRY_ASSIGN(o.reserve, mib_of("--vram-reserve-mib", reserve_mib));
    }
    o.all = expert_vram == "all";
    if (expert_vram == "none") {
        o.most = 0;
    } else if (!expert_vram.empty() && !o.all) {
        STRATA_TRY_ASSIGN(o.most, mib_of("--expert-vram", expert_vram));
    }
    if (!stage_mib.empty()) {
        STRATA_TRY_ASSIGN(o.stage, mib_of("--stage-mib", stage_mib));
    }
    if (!stage_ahead.empty()) {
        const auto n = parse_int<int>(stage_ahead, 1);
        if (!n) return usage_error("--stage-ahead is '" + stage_ahead + "'; it wants a number of rows, 1 or more");
        o.stage_ahead = *n;
    }
    if (!cpu_share.empty() && cpu_share != "auto") {
        STRATA_TRY_ASSIGN(o.cpu_share, real_of("--cpu-share", cpu_share, 1));
    }
    // The one setting that the environment may give, for scripts of the time before the flag.
    const char* from_environment = std::getenv("STRATA_ROUTE_TAIL_SKIP");
    if (const std::string ranks = from_environment ? from_environment : tail_skip; !ranks.empty()) {
        const auto n = parse_int<int>(ranks, 0);
        if (!n)
            return usage_error(std::string(from_environment ? "STRATA_ROUTE_TAIL_SKIP" : "--tail-skip") + " is '" +
                               ranks + "'; it wants a rank, 0 or more");
        o.tail_skip = *n;
    }
    if (!skip_weight.empty()) {
        STRATA_TRY_ASSIGN(o.skip_weight, real_of("--skip-weight", skip_weight, 1));
    }
    o.swaps = !swaps_off && swaps != "0";
    o.profile = profile;
    return o;
}

int default_threads() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::max(1u, std::thread::hardware_concurrency());
    const std::set<int> small = cpu_list("/sys/devices/cpu_atom/cpus");
    int big_cores = 0, small_cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        // A core counts once: by the first of its processors that may be used.
        const std::set<int> siblings =
            cpu_list("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
        const bool first =
            std::none_of(siblings.begin(), siblings.end(), [&](int s) { return s < cpu && CPU_ISSET(s, &allowed); });
        if (first) ++(small.count(cpu) ? small_cores : big_cores);
    }
    return std::max(1, big_cores > 0 ? big_cores + small_cores / 2 : small_cores);
}

EngineLimits PolyOptions::limits(int max_context_of_file) const {
    EngineLimits limits;
    limits.max_context =
        static_cast<int>(max_context > 0 ? max_context : std::min(32768, std::max(max_context_of_file, 256)));
    limits.prompt_batch = static_cast<int>(prompt_batch);
    limits.parallel = static_cast<int>(parallel);
    limits.window = static_cast<int>(window);
    limits.checkpoint_every = static_cast<int>(checkpoint_every);
    limits.checkpoints = static_cast<int>(checkpoints);
    limits.park_bytes = static_cast<uint64_t>(park_mib) << 20;
    limits.park_slots = static_cast<int>(park_slots);
    limits.park_min_free = static_cast<uint64_t>(park_min_free_mib) << 20;
    limits.drafts = draft && window != 1;
    limits.repeats = repeats;
    return limits;
}

Result<EngineRequest> PolyOptions::request() const {
    EngineRequest request;
    if (!tokens_file.empty()) {
        std::ifstream file(tokens_file, std::ios::binary);
        if (!file) return file_error(tokens_file + ": cannot be opened", "missing");
        std::ostringstream text;
        text << file.rdbuf();
        STRATA_TRY_ASSIGN(request.prompt, ids_of(text.str(), tokens_file));
    } else {
        STRATA_TRY_ASSIGN(request.prompt, ids_of(tokens, "--tokens"));
    }
    request.max_new = max_new;
    if (!stop_ids.empty()) {
        STRATA_TRY_ASSIGN(request.stop_ids, ids_of(stop_ids, "--stop-ids"));
    }
    if (!follow.empty()) {
        STRATA_TRY_ASSIGN(request.follow, ids_of(follow, "--follow"));
    }
    if (!grammar.empty()) {
        std::ifstream file(grammar, std::ios::binary);
        if (!file) return file_error(grammar + ": cannot be opened", "missing");
        std::ostringstream text;
        text << file.rdbuf();
        request.grammar = text.str();
        while (!request.grammar.empty() && request.grammar.back() == '\n') request.grammar.pop_back();
        if (request.grammar.empty()) return usage_error(grammar + " has no grammar");
    }
    if (!read_calls.empty()) {
        STRATA_TRY_ASSIGN(request.read_calls, ids_of(read_calls, "--read-calls"));
        for (const int rows : request.read_calls)
            if (rows < 1 || rows > prompt_batch)
                return usage_error("--read-calls has a call of " + std::to_string(rows) + " rows; sizes are 1 to " +
                                   std::to_string(prompt_batch) + " (--prompt-batch)");
    }
    request.rows_file = picture_rows;
    if (image_pad >= 0) request.image_pad = static_cast<int32_t>(image_pad);
    request.top = static_cast<int>(top);
    Sampling& s = request.sampling;
    s.temperature = static_cast<float>(temperature);
    s.top_k = static_cast<int>(top_k);
    s.top_p = static_cast<float>(top_p);
    s.min_p = static_cast<float>(min_p);
    s.typical = static_cast<float>(typical);
    s.penalty_repeat = static_cast<float>(repeat_penalty);
    s.penalty_present = static_cast<float>(presence_penalty);
    s.penalty_freq = static_cast<float>(frequency_penalty);
    s.penalty_last_n = static_cast<int>(penalty_last_n);
    s.seed = static_cast<uint64_t>(seed);
    request.every_logits = !logits_out.empty();
    request.probabilities = json;
    return request;
}

Result<PolyOptions> parse_poly_options(const std::vector<std::string>& arguments) {
    PolyOptions options;
    OtherFlags other;
    FlagTable table;
    declare(table, options, other);
    STRATA_TRY(table.parse(arguments));
    if (options.help) return options;
    STRATA_TRY(check(table, options));
    return options;
}

std::string poly_help() {
    PolyOptions options;
    OtherFlags other;
    FlagTable table;
    declare(table, options, other);
    return table.help(
        "strata-poly --model FILE [flags]                      serves the line protocol (docs/protocol.md)\n"
        "strata-poly --model FILE --tokens 1,2,3 [flags]       answers once and exits\n"
        "Defaults stand in parentheses.\n");
}

}  // namespace strata
