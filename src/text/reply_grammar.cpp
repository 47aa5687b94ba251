#include "text/reply_grammar.h"

#include <vector>

#include "text/grammar_calls.h"
#include "text/grammar_gbnf.h"
#include "text/schema.h"

namespace strata {
namespace {

using State = GrammarBuilder::State;

class ReplyCompiler {
  public:
    ReplyCompiler(const Dialect& dialect, const AnswerOptions& answer, const ReplyRules& rules)
        : dialect_(dialect), answer_(answer), rules_(rules) {}

    Result<Grammar> run() {
        const int32_t reply = builder_.rule("reply");
        const State start = builder_.state(), body = builder_.state();
        if (answer_.start == AnswerStart::reasoning) {
            builder_.link(after_reasoning(start), body);
        } else {
            builder_.link(start, body);
        }
        if (answer_.start == AnswerStart::undecided) {
            const State opened = builder_.literal(add_leading_space(builder_, start), dialect_.reasoning_opener());
            builder_.link(after_reasoning(opened), body);
        }
        STRATA_TRY_ASSIGN(const State end, rules_.calls == ReplyRules::Calls::must ? calls(body) : content(body));
        builder_.set_rule(reply, start, end);
        auto grammar = builder_.build(reply);
        if (!grammar.ok()) return Error{ErrorKind::failed, grammar.error().message, "unsupported_schema"};
        return grammar;
    }

  private:
    State after_reasoning(State from) {
        return add_leading_space(builder_, add_text_until(builder_, from, dialect_.reasoning_closer()));
    }

    Result<State> content(State from) {
        int32_t value = 0;
        switch (rules_.content) {
            case ReplyRules::Content::json_object:
                value = add_json_object(builder_);
                from = add_leading_space(builder_, from);
                break;
            case ReplyRules::Content::schema: {
                STRATA_TRY_ASSIGN(value, add_schema(builder_, rules_.schema, rules_.schema, {.strict = rules_.strict}));
                from = add_leading_space(builder_, from);
                break;
            }
            case ReplyRules::Content::grammar: {
                STRATA_TRY_ASSIGN(value, add_gbnf(builder_, rules_.grammar));
                break;
            }
        }
        const State end = builder_.call(from, value);
        if (rules_.calls == ReplyRules::Calls::none || answer_.tools.empty()) return end;
        for (std::string_view opener : dialect_.call_openers()) {
            const State call = builder_.literal(add_leading_space(builder_, from), opener);
            builder_.link(call, end);
            builder_.byte(call, 0, 255, call);
        }
        return end;
    }

    /// One call, or several where they may follow each other.
    Result<State> calls(State from) {
        struct Rest {
            const Tool& tool;
            int32_t rule;  // what follows the opening
        };
        std::vector<Rest> rests;
        for (const Tool& tool : answer_.tools.all()) {
            const int32_t rule = builder_.rule("call of " + tool.name);
            const State start = builder_.state();
            auto end = dialect_.add_call(builder_, start, tool);
            if (!end.ok()) return Error{ErrorKind::failed, tool.name + ": " + end.error().message, end.error().code};
            builder_.set_rule(rule, start, *end);
            rests.push_back({tool, rule});
        }
        // The prompt may have the opening of the first one already, with the name or up to it.
        const auto one_call = [&](State at, std::string_view given, State end) {
            for (const Rest& rest : rests) {
                const std::string opening = dialect_.forced_call(rest.tool.name);
                if (!opening.starts_with(given)) continue;
                builder_.call(builder_.literal(at, std::string_view(opening).substr(given.size())), rest.rule, end);
            }
        };
        const State end = builder_.state();
        one_call(from, answer_.given, end);
        if (answer_.parallel_calls) {
            const State next = builder_.state();
            builder_.link(end, next);
            builder_.byte(end, '\n', '\n', next);
            one_call(next, {}, end);
        }
        return end;
    }

    const Dialect& dialect_;
    const AnswerOptions& answer_;
    const ReplyRules& rules_;
    GrammarBuilder builder_;
};

}  // namespace

Result<Grammar> grammar_of_reply(const Dialect& dialect, const AnswerOptions& answer, const ReplyRules& rules) {
    return ReplyCompiler(dialect, answer, rules).run();
}

}  // namespace strata
