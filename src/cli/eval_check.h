// Whether an answer is what a prompts file says it should be: docs/commands.md, eval.
#pragma once

#include "base/result.h"
#include "text/chat_answer.h"
#include "text/json.h"

namespace strata::cli {

/// Refuses a check that eval does not know or whose value is of a wrong kind: {"kind": "exact" | "ends" | "contains" |
/// "json" | "calls" | "story", "value": ..., "no_call": true}.
Result<void> test_check(const Json& check);

/// Whether `answer` passes a check that test_check() accepts.
bool passes(const Json& check, const Answer& answer);

}  // namespace strata::cli
