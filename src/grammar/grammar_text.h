// A compiled grammar as text without white space: how it travels from the server to the engine (docs/protocol.md).
//
//     v2:ROOT:rule|rule|..          ROOT: the number of the rule that the reply follows
//     rule = node;node;..           the first node is where it begins
//     node = [!][~LIKE.BYTES~]edge,edge,..   !: the rule may end here; LIKE, BYTES: Grammar::looks_like, like_bytes
//     edge = LOW>TO | LOW-HIGH>TO   bytes, in decimal
//          | @RULE>TO               another rule, then on at TO
//
// Nodes are numbered within their rule.
#pragma once

#include <string>
#include <string_view>

#include "grammar/grammar.h"

namespace strata {

std::string grammar_text(const Grammar& grammar);

/// Refuses what is not in that form, what leads outside of it, and what GrammarBuilder::build refuses.
Result<Grammar> parse_grammar_text(std::string_view text);

}  // namespace strata
