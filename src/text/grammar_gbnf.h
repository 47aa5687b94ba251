// Grammars written down by people.
//
//     root   ::= "yes" | "no" | number
//     number ::= "-"? [0-9]+ ("." [0-9]{1,3})?      # a comment
//
// Alternatives |, sequences, groups ( ), repetition * + ? {n} {n,} {n,m}, literals in double quotes, character classes
// [a-z] and [^..], and . for any character. Escapes: \n \r \t \\ \" \] \[ \- \^ \xHH \uHHHH \UHHHHHHHH. A rule ends
// where the next one begins. The reply must match `root` as a whole.
#pragma once

#include <string_view>

#include "grammar/grammar.h"

namespace strata {

/// Errors say the line.
Result<Grammar> parse_gbnf(std::string_view text);

/// Adds its rules to a grammar that is being built; gives the rule of `root`.
Result<int32_t> add_gbnf(GrammarBuilder& builder, std::string_view text);

}  // namespace strata
