// The grammar of a whole reply to a chat: reasoning as the model likes, then content that follows a schema or a
// grammar, or calls that fit their tools. docs/structured-output.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "text/chat_answer.h"
#include "text/chat_dialect.h"
#include "text/json.h"

namespace strata {

/// What the content must be. Calls: none; or the model may begin one instead (then it is free); or there must be one,
/// whose arguments fit the tool's schema, and no content.
struct ReplyRules {
    enum class Content : uint8_t { json_object, schema, grammar } content = Content::json_object;
    Json schema;          // of Content::schema
    bool strict = false;  // SchemaOptions::strict
    std::string grammar;  // of Content::grammar: the notation of grammar_gbnf.h

    enum class Calls : uint8_t { none, may, must } calls = Calls::none;
};

/// `answer` says how the reply begins, which tools there are (for Calls::must: those of which one must be called), and
/// whether several calls may follow each other. The grammar forces the opening of a call itself, so leave
/// AnswerOptions::forced empty for the parser. Errors: "unsupported_schema" (also for dialects whose calls cannot be
/// held to a schema), "grammar".
Result<Grammar> grammar_of_reply(const Dialect& dialect, const AnswerOptions& answer, const ReplyRules& rules);

}  // namespace strata
