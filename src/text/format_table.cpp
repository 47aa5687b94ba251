// Which dialect a model file speaks.
#include "text/chat_dialect.h"

namespace strata {
namespace {

struct Row {
    const Dialect& (*dialect)();
    bool (*fits)(const DialectClues&);
};

bool mentions(const DialectClues& clues, std::string_view text) {
    return clues.chat_template.find(text) != std::string_view::npos;
}

// The first that fits. Templates say it best, because fine-tunes change them; an architecture decides where a file has
// no template.
constexpr Row kRows[] = {
    {gemma_dialect, [](const DialectClues& c) { return mentions(c, "<|tool_call>call:"); }},
    {dsml_dialect, [](const DialectClues& c) { return mentions(c, "DSML"); }},
    {lfm_dialect, [](const DialectClues& c) { return mentions(c, "<|tool_call_start|>") || c.has_tool_call_token; }},
    {glm_dialect, [](const DialectClues& c) { return mentions(c, "<arg_key>"); }},
    {qwen_dialect, [](const DialectClues& c) { return mentions(c, "<function="); }},
    {json_dialect, [](const DialectClues& c) { return mentions(c, "<tool_call>"); }},
    {gemma_dialect,
     [](const DialectClues& c) {
         return c.chat_template.empty() && (c.tokenizer_kind == "gemma4" || c.architecture.starts_with("gemma4"));
     }},
};

}  // namespace

const Dialect& pick_dialect(const DialectClues& clues) {
    for (const Row& row : kRows) {
        if (row.fits(clues)) return row.dialect();
    }
    return plain_dialect(mentions(clues, "<think>") || mentions(clues, "</think>") || clues.has_think_token);
}

const Dialect* find_dialect(std::string_view name) {
    for (const Dialect* dialect : {&qwen_dialect(), &glm_dialect(), &json_dialect(), &dsml_dialect(), &lfm_dialect(),
                                   &gemma_dialect(), &plain_dialect(true)}) {
        if (dialect->name() == name) return dialect;
    }
    return nullptr;
}

}  // namespace strata
