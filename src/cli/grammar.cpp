// polystrata grammar: a JSON schema or a grammar as people write it, compiled for the engine (GEN's key `grammar`).

#include <cstdio>

#include "cli/command.h"
#include "grammar/grammar_text.h"
#include "setup/run_config.h"
#include "text/grammar_gbnf.h"
#include "text/schema.h"

namespace strata::cli {
namespace {

struct Flags {
    std::string schema;
    std::string gbnf;
    bool strict = false;
};

Result<Grammar> compile(const Flags& flags) {
    if (flags.schema.empty() && flags.gbnf.empty()) return usage_error("--schema FILE or --gbnf FILE is missing");
    const std::string& path = flags.schema.empty() ? flags.gbnf : flags.schema;
    STRATA_TRY_ASSIGN(const std::string text, read_text_file(path));
    const auto refused = [&](const Error& error) { return file_error(path + ": " + error.message, error.code); };
    if (flags.schema.empty()) {
        auto grammar = parse_gbnf(text);
        if (!grammar) return refused(grammar.error());
        return grammar;
    }
    const auto schema = parse_json(text);
    if (!schema) return refused(schema.error());
    auto grammar = grammar_of_schema(*schema, {.strict = flags.strict});
    if (!grammar) return refused(grammar.error());
    return grammar;
}

Outcome run(const Flags& flags) {
    STRATA_TRY_ASSIGN(const Grammar grammar, compile(flags));
    const std::string text = grammar_text(grammar) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
}

}  // namespace

Run declare_grammar(FlagSet& set) {
    auto flags = std::make_shared<Flags>();
    const Flag schema = set.text("--schema", flags->schema, "A JSON schema", "FILE");
    set.text("--gbnf", flags->gbnf, "A grammar: root ::= \"yes\" | \"no\"", "FILE").excludes(schema);
    set.toggle("--strict", flags->strict, "Objects have no other properties where the schema does not say");
    return [flags] { return run(*flags); };
}

}  // namespace strata::cli
