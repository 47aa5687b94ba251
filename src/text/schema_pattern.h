// Regular expressions as automata over the text of a JSON string.
#pragma once

#include <string_view>

#include "grammar/grammar.h"

namespace strata {

/// Adds an automaton that reads the inside of a JSON string (escapes and all) whose text matches the pattern; gives the
/// state behind it. As in JSON schemas the pattern may match anywhere unless ^ and $ say otherwise. Supported:
/// characters, ., classes, \d \w \s \D \W \S, groups, |, * + ? {n,m} (lazy or not), ^ at the start and $ at the end.
/// Look-around, back references and \b are refused by name.
Result<GrammarBuilder::State> add_pattern(GrammarBuilder& builder, GrammarBuilder::State from,
                                          std::string_view pattern);

/// One character of a string as JSON writes it: raw, or its short escape.
void add_json_character(GrammarBuilder& builder, GrammarBuilder::State from, const CodePointRanges& ranges,
                        GrammarBuilder::State to);

}  // namespace strata
