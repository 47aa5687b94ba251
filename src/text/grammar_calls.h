// Calls that must fit their tool's schema: what follows the forced opening of a call (Dialect::forced_call with a
// name), up to the block's end, as a grammar.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "grammar/grammar.h"
#include "text/chat_dialect.h"

namespace strata {

/// The grammar of a call's rest. Refuses schemas as grammar_of_schema does, and dialects that cannot be constrained
/// (code "unsupported_schema").
Result<Grammar> grammar_of_call(const Dialect& dialect, const Tool& tool);

/// How a dialect writes parameters one after another.
struct ParameterShape {
    std::function<std::string(const std::string& key, bool is_text)> before;  // up to where the value begins
    std::string after;                                                        // the value's end
    std::string separator = {};                                               // between two parameters
    enum class Text : uint8_t {
        raw,  // any text up to `text_after`, which it cannot contain, or one of the schema's `enum`
        json  // a string of JSON
    } text = Text::raw;
    std::string text_after = {};  // in place of `after`; empty: `after`
};

/// The tool's parameters in the schema's order, optional ones may be left out.
Result<GrammarBuilder::State> add_parameters(GrammarBuilder& builder, GrammarBuilder::State from, const Tool& tool,
                                             const ParameterShape& shape);

/// Any text up to the first delimiter, and the delimiter.
GrammarBuilder::State add_text_until(GrammarBuilder& builder, GrammarBuilder::State from, std::string_view delimiter);

}  // namespace strata
