// Schemas and grammars from nowhere, and replies that follow their masks: no crash, no hang; a mask allows what
// accept() takes and never leaves a reply stuck. The first byte says what the input is: a schema, a grammar as people
// write it, or one as it travels to the engine.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "grammar/grammar_text.h"
#include "grammar/token_mask.h"
#include "text/grammar_gbnf.h"
#include "text/schema.h"

namespace {

using namespace strata;

std::shared_ptr<const TokenTrie> make_trie() {
    static std::vector<std::string> bytes;
    for (int i = 0; i < 256; ++i) bytes.emplace_back(1, static_cast<char>(i));
    for (const char* more :
         {"{\"", "\":", "\",", "\"}", "true", "null", "12", "  ", "\n  ", "abc", "]}", "\\u00", "\xC3\xA9"})
        bytes.emplace_back(more);
    std::vector<std::string_view> pieces(bytes.begin(), bytes.end());
    pieces.push_back({});
    return std::make_shared<const TokenTrie>(pieces);
}

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const auto kTrie = make_trie();
    if (size < 2) return 0;
    std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    Result<Grammar> grammar = failure("");
    if (data[0] & 4) {
        grammar = parse_grammar_text(text);
    } else if (data[0] & 1) {
        auto schema = parse_json(text);
        if (!schema.ok()) return 0;
        grammar = grammar_of_schema(*schema, {.strict = (data[0] & 2) != 0});
    } else {
        grammar = parse_gbnf(text);
    }
    if (!grammar.ok()) return 0;
    const std::string written = grammar_text(*grammar);
    grammar = parse_grammar_text(written);  // as it reaches the engine
    require(grammar.ok(), "a grammar's text cannot be read");
    const int32_t ends[] = {static_cast<int32_t>(kTrie->vocab_size()) - 1};
    TokenMask mask(std::make_shared<const Grammar>(std::move(*grammar)), kTrie, ends);
    for (size_t step = 0; step < 40; ++step) {
        auto bits = mask.mask();
        int32_t chosen = -1, allowed = 0;
        auto wanted = static_cast<int32_t>(data[step % size]);
        for (size_t token = 0; token < kTrie->vocab_size(); ++token) {
            if (!(bits[token / 64] >> (token % 64) & 1)) continue;
            if (allowed++ <= wanted) chosen = static_cast<int32_t>(token);
        }
        require(allowed > 0, "the reply is stuck");
        require(mask.allows(chosen), "the mask allows what the grammar does not");
        require(mask.accept(chosen), "an allowed token is not accepted");
        if (kTrie->piece(chosen).empty()) break;
    }
    return 0;
}
