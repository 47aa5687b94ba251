// JSON schemas as grammars: a reply that follows one is JSON that fits the schema. docs/structured-output.md lists what
// is supported; anything else is refused by name and place.
#pragma once

#include <string_view>

#include "grammar/grammar.h"
#include "text/json.h"

namespace strata {

struct SchemaOptions {
    bool strict = false;  // additionalProperties is false where `properties` is there and the schema does not say
};

/// The grammar of a schema (draft 2020-12's commonly used part). Errors have the code "unsupported_schema" and say the
/// keyword and where: `$.properties.a: 'patternProperties' is not supported`.
Result<Grammar> grammar_of_schema(const Json& schema, const SchemaOptions& options = {});

/// Any JSON object (response_format json_object).
Result<Grammar> grammar_of_json_object();

/// Adds the rules of a schema to a grammar that is being built; gives the rule of its value. `root`: where its $refs
/// lead.
Result<int32_t> add_schema(GrammarBuilder& builder, const Json& schema, const Json& root, const SchemaOptions& options);
/// The same of any JSON object.
int32_t add_json_object(GrammarBuilder& builder);

/// White space that some models write in front of their content: at most a blank and a line end, or two line ends.
GrammarBuilder::State add_leading_space(GrammarBuilder& builder, GrammarBuilder::State from);

}  // namespace strata
