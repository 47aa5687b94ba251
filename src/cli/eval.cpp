// polystrata eval: answers the prompts of a file and counts the right answers by skill.

#include <algorithm>
#include <cstdio>
#include <map>
#include <unistd.h>

#include "cli/command.h"
#include "cli/eval_check.h"
#include "cli/session.h"

namespace strata::cli {
namespace {

struct Flags {
    ModelFlags model;
    EngineFlags engine;
    std::string prompts;
    int64_t limit = 0;
    int64_t max_new = 512;
    float at_least = 0;
    bool json = false;
};

struct Prompt {
    std::string skill, id;
    ChatRequest request;
    int64_t max_new = 0;
    Json check;
};

struct Count {
    int64_t right = 0, count = 0;
    double share() const { return count > 0 ? 100.0 * static_cast<double>(right) / static_cast<double>(count) : 100; }
};

struct Scores {
    std::vector<std::pair<std::string, Count>> skills;  // in the order of the file
    Count all;
    int64_t offered = 0, accepted = 0, tokens = 0;
    double write_ms = 0;
    Json wrong = Json::array();

    Count& of(const std::string& skill) {
        const auto found = std::ranges::find(skills, skill, &std::pair<std::string, Count>::first);
        return found != skills.end() ? found->second : skills.emplace_back(skill, Count{}).second;
    }
};

Result<Prompt> read_prompt(const std::string& line, int64_t max_new) {
    STRATA_TRY_ASSIGN(Json json, parse_json(line));
    if (!json.is_object() || !json.value("messages", Json()).is_array())
        return file_error("\"messages\" is missing", "json");
    Prompt prompt;
    const auto text = [&](const char* key) {
        const Json value = json.value(key, Json());
        return value.is_string() ? value.get<std::string>() : std::string();
    };
    prompt.skill = text("skill").empty() ? "all" : text("skill");
    prompt.id = text("id");
    prompt.request.messages = json["messages"];
    prompt.request.tools = json.value("tools", Json());
    if (!text("think").empty()) {
        if (!is_thinking_level(text("think"))) return file_error("\"think\" must be on, off or a level", "json");
        apply_thinking(prompt.request, text("think"));
    }
    const Json most = json.value("max_new", Json());
    prompt.max_new =
        most.is_number_integer() && most.get<int64_t>() > 0 ? std::min(most.get<int64_t>(), max_new) : max_new;
    prompt.check = json.value("check", Json());
    STRATA_TRY(test_check(prompt.check));
    return prompt;
}

/// The file's prompts, at most `limit` of a skill (0: all). A line that is wrong is named.
Result<std::vector<Prompt>> read_prompts(const Flags& flags) {
    STRATA_TRY_ASSIGN(const std::string text, read_text_file(flags.prompts));
    std::vector<Prompt> prompts;
    std::map<std::string, int64_t> taken;
    size_t number = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        ++number;
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        auto prompt = read_prompt(line, flags.max_new);
        if (!prompt)
            return file_error(flags.prompts + ", line " + std::to_string(number) + ": " + prompt.error().message,
                              "json");
        if (flags.limit > 0 && ++taken[prompt->skill] > flags.limit) continue;
        prompts.push_back(std::move(*prompt));
    }
    if (prompts.empty()) return file_error(flags.prompts + ": holds no prompts", "json");
    return prompts;
}

Json calls_json(const std::vector<Answer::Call>& calls) {
    Json list = Json::array();
    for (const Answer::Call& call : calls) list.push_back({{"name", call.name}, {"arguments", call.arguments}});
    return list;
}

void count(Scores& scores, const Prompt& prompt, const Reply& reply) {
    const bool right = passes(prompt.check, reply.answer);
    for (Count* c : {&scores.of(prompt.skill), &scores.all}) {
        c->right += right;
        ++c->count;
    }
    scores.offered += reply.done.offered;
    scores.accepted += reply.done.accepted;
    scores.tokens += reply.done.generated;
    scores.write_ms += reply.done.decode_ms;
    if (!right)
        scores.wrong.push_back({{"id", prompt.id},
                                {"skill", prompt.skill},
                                {"wanted", prompt.check["value"]},
                                {"content", reply.answer.content},
                                {"reasoning", reply.answer.reasoning},
                                {"calls", calls_json(reply.answer.calls)},
                                {"finish", reply.done.finish}});
}

std::string scores_json(const Scores& scores, const ModelEntry& model) {
    const auto count_json = [](const Count& c) { return Json{{"right", c.right}, {"count", c.count}}; };
    Json skills = Json::object();
    for (const auto& [skill, c] : scores.skills) skills[skill] = count_json(c);
    return json_text({{"model", model.id},
                      {"skills", std::move(skills)},
                      {"all", count_json(scores.all)},
                      {"new_tokens", scores.tokens},
                      {"write_ms", scores.write_ms},
                      {"guesses_offered", scores.offered},
                      {"guesses_right", scores.accepted},
                      {"wrong", scores.wrong}});
}

void print_scores(const Scores& scores) {
    const auto line = [](const std::string& name, const Count& c) {
        std::printf("%-16s %5lld of %5lld  %5.1f%%\n", name.c_str(), static_cast<long long>(c.right),
                    static_cast<long long>(c.count), c.share());
    };
    for (const auto& [skill, c] : scores.skills) line(skill, c);
    line("all", scores.all);
    if (scores.offered > 0)
        std::printf("guesses right    %5lld of %5lld\n", static_cast<long long>(scores.accepted),
                    static_cast<long long>(scores.offered));
}

Outcome run(const Flags& flags) {
    STRATA_TRY_ASSIGN(const std::vector<Prompt> prompts, read_prompts(flags));
    SessionOptions options;
    STRATA_TRY_ASSIGN(options.model, flags.model.resolve());
    STRATA_TRY_ASSIGN(options.engine_arguments, flags.engine.split());
    options.sampling.temperature = 0;
    STRATA_TRY_ASSIGN(const auto session, Session::open(std::move(options)));
    Interrupts interrupts;
    const bool shows = isatty(STDERR_FILENO) == 1;
    Scores scores;
    for (const Prompt& prompt : prompts) {
        session->set_max_new(prompt.max_new);
        const Result<Reply> reply = session->answer(prompt.request, {}, interrupts);
        if (!reply) return reply.error();
        if (reply->leave || reply->done.finish == "cancel") return 130;
        count(scores, prompt, *reply);
        if (shows)
            std::fprintf(stderr, "\r%lld right of %lld, %zu to go ", static_cast<long long>(scores.all.right),
                         static_cast<long long>(scores.all.count),
                         prompts.size() - static_cast<size_t>(scores.all.count));
    }
    if (shows) std::fputs("\r\x1b[K", stderr);
    if (flags.json)
        std::printf("%s\n", scores_json(scores, session->model()).c_str());
    else
        print_scores(scores);
    for (const auto& [skill, c] : scores.skills)
        if (c.share() < static_cast<double>(flags.at_least))
            return failure(skill + ": " + std::to_string(c.right) + " of " + std::to_string(c.count) +
                           " are right, fewer than --at-least asks for");
    return 0;
}

}  // namespace

Run declare_eval(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    flags->model.add(set).required();
    set.text("--prompts", flags->prompts, "Prompts with the answers wanted, a JSON object a line (docs/commands.md)",
             "FILE")
        .required();
    set.number("--limit", flags->limit, 1, 1 << 30, "Take only the first N prompts of every skill");
    set.number("--max-new", flags->max_new, 1, 1 << 30, "Most tokens of an answer").shows_default();
    set.number("--at-least", flags->at_least, 0, 100,
               "Fail (exit code 1) where a skill has a smaller share right, in percent");
    set.toggle("--json", flags->json, "Print counts and wrong answers as JSON");
    flags->engine.add(set);
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
