#include "protocol/lines.h"

#include <algorithm>

#include "base/numbers.h"

namespace strata::protocol {
namespace {

/// Takes the next word (separated by spaces or tabs) off the front; empty at the end.
std::string_view take_word(std::string_view& text) {
    const size_t from = text.find_first_not_of(" \t");
    if (from == std::string_view::npos) {
        text = {};
        return {};
    }
    text.remove_prefix(from);
    const std::string_view word = text.substr(0, text.find_first_of(" \t"));
    text.remove_prefix(word.size());
    return word;
}

std::string_view trim(std::string_view text) {
    const size_t from = text.find_first_not_of(" \t\r\n");
    if (from == std::string_view::npos) return {};
    return text.substr(from, text.find_last_not_of(" \t\r\n") - from + 1);
}

/// A word as part of an error text: printable and short.
std::string quoted(std::string_view word) {
    std::string text = "'";
    for (const char c : word.substr(0, 40)) text += c >= ' ' && c < 127 ? c : '?';
    return text + (word.size() > 40 ? "...'" : "'");
}

// ---- values of GEN's keys
// ---------------------------------------------------------------------------------------------------

bool read_float(std::string_view text, double lo, double hi, float& out) {
    const auto value = parse_number(text);
    if (!value || *value < lo || *value > hi) return false;
    out = static_cast<float>(*value);
    return true;
}

template <class Int>
bool read_int(std::string_view text, Int lo, Int hi, Int& out) {
    const auto value = parse_int<Int>(text, lo, hi);
    if (value) out = *value;
    return value.has_value();
}

bool read_flag(std::string_view text, bool& out) {
    if (text != "0" && text != "1") return false;
    out = text == "1";
    return true;
}

bool read_ids(std::string_view text, std::vector<int32_t>& out) {
    if (text.empty()) {
        out.clear();
        return true;
    }
    auto ids = parse_ids(text);
    if (ids) out = std::move(*ids);
    return ids.has_value();
}

bool read_bias(std::string_view text, std::vector<std::pair<int32_t, float>>& out) {
    out.clear();
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        const size_t colon = item.find(':');
        if (colon == std::string_view::npos) return false;
        const auto id = parse_int<int32_t>(item.substr(0, colon), 0);
        float value = 0;
        if (!id || !read_float(item.substr(colon + 1), -1e9, 1e9, value)) return false;
        out.emplace_back(*id, value);
    }
    return true;
}

constexpr double kHuge = 1e9;
constexpr double kTiny = 1e-30;  // stands for "above 0"

/// Sets what `key` names. Unknown keys are skipped: a newer server may know more.
bool set_key(GenerateRequest& request, std::string_view key, std::string_view value) {
    Sampling& s = request.sampling;
    if (key == "temperature") return read_float(value, 0, kHuge, s.temperature);
    if (key == "top_k") return read_int(value, 0, INT32_MAX, s.top_k);
    if (key == "top_p") return read_float(value, kTiny, 1, s.top_p);
    if (key == "min_p") return read_float(value, 0, 1, s.min_p);
    if (key == "typical") return read_float(value, kTiny, 1, s.typical);
    if (key == "penalty_repeat") return read_float(value, kTiny, kHuge, s.penalty_repeat);
    if (key == "penalty_freq") return read_float(value, -kHuge, kHuge, s.penalty_freq);
    if (key == "penalty_present") return read_float(value, -kHuge, kHuge, s.penalty_present);
    if (key == "penalty_last_n") return read_int(value, 0, INT32_MAX, s.penalty_last_n);
    if (key == "dry_multiplier") return read_float(value, 0, kHuge, s.dry_multiplier);
    if (key == "dry_base") return read_float(value, 1, kHuge, s.dry_base);
    if (key == "dry_allowed_length") return read_int(value, 0, INT32_MAX, s.dry_allowed_length);
    if (key == "dry_last_n") return read_int(value, 0, INT32_MAX, s.dry_last_n);
    if (key == "dry_breakers") return read_ids(value, s.dry_breakers);
    if (key == "bias") return read_bias(value, s.bias);
    if (key == "seed") return read_int<uint64_t>(value, 0, UINT64_MAX, s.seed);
    if (key == "stop_ids") return read_ids(value, request.stop_ids.emplace());
    if (key == "follow") return read_ids(value, request.follow);
    if (key == "grammar") {
        request.grammar = value;
        return !value.empty();
    }
    if (key == "top") return read_int(value, 0, kMaxCandidates, request.top);
    if (key == "state_hash") return read_flag(value, request.state_hash);
    if (key == "draft") return read_flag(value, request.draft);
    if (key == "repeats") return read_flag(value, request.repeats);
    if (key == "cache") return read_flag(value, request.cache);
    if (key == "turn_at") return read_int<int64_t>(value, 0, INT64_MAX, request.turn_at.emplace());
    if (key == "image_pad") return read_int(value, 0, INT32_MAX, request.image_pad.emplace());
    return true;
}

std::string refuse(const std::string& why) {
    return "bad request: " + why;
}

/// GEN and GENI: <max_new> [key=value ...] [rows-file] <ids>. The id is taken also from a line that is refused.
void parse_generate(std::string_view rest, bool with_rows, Command& command) {
    GenerateRequest request;
    const auto error = [&](const std::string& why) {
        if (!command.error) command.error = refuse(why);
    };
    const std::string_view first = take_word(rest);
    const auto max_new = parse_int<int64_t>(first, 1);
    if (!max_new) error("max_new is " + quoted(first) + ", it must be a number from 1 on");
    request.max_new = max_new.value_or(1);

    std::vector<std::string_view> words;
    for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest)) {
        const size_t equals = word.find('=');
        if (equals == std::string_view::npos) {
            words.push_back(word);
            continue;
        }
        const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
        if (key == "id") {
            command.id = parse_int<uint64_t>(value);
            if (!command.id) error("id is " + quoted(value) + ", it must be a number");
        } else if (!set_key(request, key, value)) {
            error(std::string(key) + " is " + quoted(value));
        }
    }
    const size_t wanted = with_rows ? 2 : 1;
    if (words.size() < wanted)
        error(with_rows && words.empty() ? "the file of picture rows is missing" : "the list of token ids is missing");
    else if (words.size() > wanted)
        error("unexpected word " + quoted(words[wanted]));
    if (with_rows && !request.image_pad) error("GENI needs image_pad");
    if (!command.error) {
        auto ids = parse_ids(words.back());
        if (!ids) error("the list of token ids has something else in it");
        if (ids) request.prompt = std::move(*ids);
        if (with_rows) request.rows_file = words.front();
    }
    command.what = Generate{std::move(request)};
}

/// " id=N" at the end of STOP.
void parse_stop(std::string_view rest, Command& command) {
    command.what = Stop{};
    const std::string_view word = take_word(rest);
    if (word.empty()) return;
    command.id = word.starts_with("id=") ? parse_int<uint64_t>(word.substr(3)) : std::nullopt;
    if (!command.id) command.error = refuse("STOP takes nothing or id=N, not " + quoted(word));
}

void parse_vram(std::string_view rest, Command& command) {
    const std::string_view word = take_word(rest);
    Vram vram;
    if (word != "default") {
        vram.reserve_mib = parse_int<int64_t>(word, 0);
        if (!vram.reserve_mib) command.error = refuse("VRAM takes a number of MiB or default, not " + quoted(word));
    }
    command.what = vram;
}

std::string ids_text(const std::vector<int32_t>& ids) {
    std::string text;
    text.reserve(ids.size() * 6);
    for (const int32_t id : ids) {
        if (!text.empty()) text += ',';
        text += number_text(id);
    }
    return text;
}

// ---- replies
// ----------------------------------------------------------------------------------------------------------------

Facts parse_facts(std::string_view rest) {
    Facts facts;
    for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest)) {
        const size_t equals = word.find('=');
        if (equals != std::string_view::npos)
            facts.insert_or_assign(std::string(word.substr(0, equals)), word.substr(equals + 1));
    }
    return facts;
}

std::string facts_text(const Facts& facts) {
    std::string text;
    for (const auto& [key, value] : facts) text += " " + key + "=" + value;
    return text;
}

bool parse_top(std::string_view text, std::vector<TokenProbability>& out) {
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        const size_t colon = item.find(':');
        if (colon == std::string_view::npos) return false;
        const auto id = parse_int<int32_t>(item.substr(0, colon), 0);
        TokenProbability probability;
        if (!id || !read_float(item.substr(colon + 1), 0, 1, probability.p)) return false;
        probability.id = *id;
        out.push_back(probability);
    }
    return true;
}

std::optional<Token> parse_token(std::string_view rest) {
    Token token;
    if (!read_int(take_word(rest), 0, INT32_MAX, token.id)) return std::nullopt;
    for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest)) {
        if (word.starts_with("p=") && !read_float(word.substr(2), 0, 1, token.p.emplace())) return std::nullopt;
        if (word.starts_with("top=") && !parse_top(word.substr(4), token.top)) return std::nullopt;
    }
    return token;
}

std::optional<Done> parse_done(std::string_view rest) {
    Done done;
    const auto count = [&](int64_t& out) { return read_int<int64_t>(take_word(rest), 0, INT64_MAX, out); };
    const auto time = [&](double& out) {
        const auto value = parse_number(take_word(rest));
        out = value.value_or(0);
        return value.has_value();
    };
    if (!count(done.generated) || !count(done.prompt_tokens) || !time(done.prompt_ms) || !time(done.decode_ms))
        return {};
    done.finish = take_word(rest);
    if (!count(done.accepted) || !count(done.offered) || !count(done.reused) || !count(done.hits) ||
        !count(done.lookups))
        return {};
    done.more = parse_facts(rest);
    return done;
}

/// Takes " id=N" off the end.
std::optional<uint64_t> take_id(std::string_view& line) {
    const size_t space = line.find_last_of(' ');
    if (space == std::string_view::npos || !line.substr(space + 1).starts_with("id=")) return std::nullopt;
    const auto id = parse_int<uint64_t>(line.substr(space + 4));
    if (id) line = line.substr(0, space);
    return id;
}

template <class... Ts>
struct Overloaded : Ts... {
    using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

std::string milliseconds(double ms) {
    return number_text(static_cast<double>(static_cast<int64_t>(ms * 1000 + 0.5)) / 1000);
}

}  // namespace

Command parse_command(std::string_view line) {
    Command command;
    std::string_view rest = trim(line);
    const std::string_view word = take_word(rest);
    if (word.empty()) return command;
    if (word == "GEN" || word == "GENI") {
        parse_generate(rest, word == "GENI", command);
    } else if (word == "STOP") {
        parse_stop(rest, command);
    } else if (word == "VRAM") {
        parse_vram(rest, command);
    } else if (word == "PROFILE") {
        command.what = SaveProfile{};
        if (trim(rest) != "save") command.error = refuse("PROFILE takes save");
    } else if (word == "SAVE" || word == "LOAD") {
        const std::string path(trim(rest));
        if (path.empty()) command.error = refuse(std::string(word) + " needs a file's path");
        if (word == "SAVE")
            command.what = SaveConversation{path};
        else
            command.what = LoadConversation{path};
    } else if (word == "QUIT") {
        command.what = Quit{};
    } else {
        command.error = refuse("unknown command " + quoted(word));
    }
    return command;
}

std::string format_generate(const GenerateRequest& request, std::optional<uint64_t> id) {
    const GenerateRequest plain;
    const Sampling &s = request.sampling, &d = plain.sampling;
    std::string line = request.rows_file.empty() ? "GEN " : "GENI ";
    line += number_text(request.max_new);
    const auto key = [&](const char* name, const auto& value, const auto& otherwise) {
        if (value != otherwise) line += std::string(" ") + name + "=" + number_text(value);
    };
    const auto flag = [&](const char* name, bool on) {
        if (!on) line += std::string(" ") + name + "=0";
    };
    const auto ids = [&](const char* name, const std::vector<int32_t>& list) {
        line += std::string(" ") + name + "=" + ids_text(list);
    };
    key("temperature", s.temperature, d.temperature);
    key("top_k", s.top_k, d.top_k);
    key("top_p", s.top_p, d.top_p);
    key("min_p", s.min_p, d.min_p);
    key("typical", s.typical, d.typical);
    key("penalty_repeat", s.penalty_repeat, d.penalty_repeat);
    key("penalty_freq", s.penalty_freq, d.penalty_freq);
    key("penalty_present", s.penalty_present, d.penalty_present);
    key("penalty_last_n", s.penalty_last_n, d.penalty_last_n);
    key("dry_multiplier", s.dry_multiplier, d.dry_multiplier);
    key("dry_base", s.dry_base, d.dry_base);
    key("dry_allowed_length", s.dry_allowed_length, d.dry_allowed_length);
    key("dry_last_n", s.dry_last_n, d.dry_last_n);
    if (!s.dry_breakers.empty()) ids("dry_breakers", s.dry_breakers);
    if (!s.bias.empty()) {
        line += " bias=";
        for (const auto& [token, value] : s.bias) {
            if (line.back() != '=') line += ',';
            line += number_text(token) + ":" + number_text(value);
        }
    }
    key("seed", s.seed, d.seed);
    if (request.stop_ids) ids("stop_ids", *request.stop_ids);
    if (!request.follow.empty()) ids("follow", request.follow);
    if (!request.grammar.empty()) line += " grammar=" + request.grammar;
    key("top", request.top, plain.top);
    if (request.state_hash) line += " state_hash=1";
    flag("draft", request.draft);
    flag("repeats", request.repeats);
    flag("cache", request.cache);
    if (request.turn_at) line += " turn_at=" + number_text(*request.turn_at);
    if (request.image_pad) line += " image_pad=" + number_text(*request.image_pad);
    if (id) line += " id=" + number_text(*id);
    if (!request.rows_file.empty()) line += " " + request.rows_file;
    return line + " " + ids_text(request.prompt);
}

std::string format_stop(std::optional<uint64_t> id) {
    return id ? "STOP id=" + number_text(*id) : "STOP";
}

Reply parse_reply(std::string_view line) {
    Reply reply;
    line = trim(line);
    std::string_view rest = line;
    reply.id = take_id(rest);
    const std::string_view word = take_word(rest);
    const auto count = [&](int64_t& out) { return read_int<int64_t>(take_word(rest), 0, INT64_MAX, out); };
    if (word == "INFO") {
        reply.what = Info{parse_facts(rest)};
    } else if (word == "READY") {
        Ready ready;
        if (count(ready.max_context)) {
            for (std::string_view w = take_word(rest); !w.empty(); w = take_word(rest))
                ready.capabilities.emplace_back(w);
            reply.what = std::move(ready);
        }
    } else if (word == "PP") {
        Progress progress;
        if (count(progress.read) && count(progress.total)) reply.what = progress;
    } else if (word == "REUSED") {
        Reused reused;
        if (count(reused.rows)) reply.what = reused;
    } else if (word == "T") {
        if (auto token = parse_token(rest)) reply.what = std::move(*token);
    } else if (word == "DONE") {
        if (auto done = parse_done(rest)) reply.what = std::move(*done);
    } else if (word == "ERR") {
        reply.what = Failed{std::string(trim(rest))};
    }
    if (auto* unknown = std::get_if<Unknown>(&reply.what)) unknown->line = line;
    return reply;
}

std::string format_reply(const Reply& reply) {
    std::string line = std::visit(
        Overloaded{
            [](const Unknown& r) { return r.line; },
            [](const Info& r) { return "INFO" + facts_text(r.facts); },
            [](const Ready& r) {
                std::string text = "READY " + number_text(r.max_context);
                for (const std::string& word : r.capabilities) text += " " + word;
                return text;
            },
            [](const Progress& r) { return "PP " + number_text(r.read) + " " + number_text(r.total); },
            [](const Reused& r) { return "REUSED " + number_text(r.rows); },
            [](const Token& r) {
                std::string text = "T " + number_text(r.id);
                if (r.p) text += " p=" + number_text(*r.p);
                if (!r.top.empty()) {
                    text += " top=";
                    for (const TokenProbability& t : r.top) {
                        if (text.back() != '=') text += ',';
                        text += number_text(t.id) + ":" + number_text(t.p);
                    }
                }
                return text;
            },
            [](const Done& r) {
                std::string text = "DONE " + number_text(r.generated) + " " + number_text(r.prompt_tokens) + " " +
                                   milliseconds(r.prompt_ms) + " " + milliseconds(r.decode_ms) + " " + r.finish;
                for (const int64_t n : {r.accepted, r.offered, r.reused, r.hits, r.lookups})
                    text += " " + number_text(n);
                return text + facts_text(r.more);
            },
            [](const Failed& r) { return "ERR " + r.message; },
        },
        reply.what);
    std::replace(line.begin(), line.end(), '\n', ' ');  // a message never breaks the frame
    if (reply.id) line += " id=" + number_text(*reply.id);
    return line;
}

}  // namespace strata::protocol
