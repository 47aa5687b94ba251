#include "server/stages.h"

#include "grammar/grammar_text.h"
#include "text/reply_grammar.h"

namespace strata::server {

Api<std::unique_ptr<Stages>> Stages::make(const ModelText& text, const AnswerRequest& request,
                                          const TokenPrompt& prompt) {
    std::unique_ptr<Stages> stages(new Stages(text, request, prompt));
    // A budget means something where the prompt opened the reasoning.
    stages->budget_ = request.raw.empty() && request.reasoning_budget.has_value() &&
                      prompt.chat.answer.start == AnswerStart::reasoning;
    STRATA_TRY(stages->make_grammar());
    return stages;
}

Api<void> Stages::make_grammar() {
    const ChatPrompt& chat = prompt_.chat;
    const bool raw = !request_.raw.empty();
    const bool must_call = !raw && (!chat.force_call.empty() || !chat.answer.given.empty());
    const bool form = request_.format.kind != OutputFormat::Kind::text;
    if (!must_call && !form) return {};

    ReplyRules rules;
    if (request_.format.kind == OutputFormat::Kind::json_schema) {
        rules.content = ReplyRules::Content::schema;
        rules.schema = request_.format.schema;
        rules.strict = request_.format.strict;
    }
    if (must_call)
        rules.calls = ReplyRules::Calls::must;
    else if (!raw && !chat.answer.tools.empty())
        rules.calls = ReplyRules::Calls::may;
    AnswerOptions answer = raw ? AnswerOptions{} : chat.answer;
    if (raw || budget_) answer.start = AnswerStart::content;  // the grammar begins behind the reasoning
    const Dialect& dialect = raw ? plain_dialect(false) : text_.chat()->dialect();
    if (must_call) {
        // A call of a certain tool: the others are not for this reply.
        Json named = Json::array();
        for (const Tool& tool : answer.tools.all()) {
            const std::string opening = dialect.forced_call(tool.name);
            if (chat.force_call.ends_with(opening) || chat.answer.given.ends_with(opening))
                named.push_back(
                    {{"type", "function"}, {"function", {{"name", tool.name}, {"parameters", tool.parameters}}}});
        }
        if (!named.empty()) answer.tools = ToolSet(named);
    }
    const auto grammar = grammar_of_reply(dialect, answer, rules);
    if (grammar) {
        grammar_ = grammar_text(*grammar);
        return {};
    }
    if (!must_call) return unsupported_value("response_format", grammar.error().message);
    force_call_ = true;
    return {};
}

AnswerOptions Stages::answer_options() const {
    AnswerOptions options = prompt_.chat.answer;
    if (!grammar_.empty()) options.forced.clear();  // the grammar writes the opening
    return options;
}

std::vector<int32_t> Stages::ids(std::string_view mark) const {
    return mark.empty() ? std::vector<int32_t>{} : text_.tokenizer().encode(mark, {.parse_special = true});
}

Stage Stages::next(AnswerParser& parser) {
    Stage stage;
    if ((budget_ || force_call_) && parser.phase() == AnswerParser::Phase::reasoning) {
        stage.reasoning = true;
        stage.last = false;
        const std::vector<int32_t> closer = ids(text_.chat()->dialect().reasoning_closer());
        if (closer.size() == 1) stage.more_stops = closer;
        if (!budget_) return stage;
        stage.most = *request_.reasoning_budget - reasoning_;
        if (stage.most > 0) return stage;
        budget_ = false;
        stage.most = 0;
        stage.forced = ids(prompt_.chat.close_reasoning);
        return stage;
    }
    stage.grammar = grammar_;
    if (force_call_) stage.forced = ids(parser.take_forced());
    return stage;
}

}  // namespace strata::server
