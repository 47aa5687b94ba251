#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "grammar/grammar_text.h"
#include "grammar/token_mask.h"
#include "text/chat_answer.h"
#include "text/chat_dialect.h"
#include "text/grammar_calls.h"
#include "text/grammar_gbnf.h"
#include "text/reply_grammar.h"
#include "text/schema.h"
#include "text/utf8.h"

namespace strata {
namespace {

/// Tokens: every byte, what else is given, and an end token (the last id).
std::shared_ptr<const TokenTrie> make_trie(const std::vector<std::string>& more = {}) {
    static std::vector<std::string> bytes = [] {
        std::vector<std::string> all;
        for (int i = 0; i < 256; ++i) all.emplace_back(1, static_cast<char>(i));
        return all;
    }();
    std::vector<std::string_view> pieces(bytes.begin(), bytes.end());
    for (const std::string& piece : more) pieces.push_back(piece);
    pieces.push_back({});
    return std::make_shared<const TokenTrie>(pieces);
}

TokenMask make_mask(std::shared_ptr<const Grammar> grammar, const std::shared_ptr<const TokenTrie>& trie) {
    const int32_t ends[] = {static_cast<int32_t>(trie->vocab_size()) - 1};
    return TokenMask(std::move(grammar), trie, ends);
}

/// As it reaches the engine: every test goes through the text.
std::shared_ptr<const Grammar> travelled(const Grammar& grammar) {
    const std::string text = grammar_text(grammar);
    EXPECT_EQ(text.find_first_of(" \n="), std::string::npos);
    auto read = parse_grammar_text(text);
    EXPECT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(grammar_text(*parse_grammar_text(grammar_text(*read))), grammar_text(*read));
    return std::make_shared<const Grammar>(std::move(*read));
}

std::shared_ptr<const Grammar> gbnf(std::string_view text) {
    auto grammar = parse_gbnf(text);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message;
    return travelled(*grammar);
}

std::shared_ptr<const Grammar> schema(std::string_view text, SchemaOptions options = {}) {
    auto json = parse_json(text);
    EXPECT_TRUE(json.ok()) << text;
    auto grammar = grammar_of_schema(*json, options);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message;
    return travelled(*grammar);
}

bool matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
    static auto trie = make_trie();
    TokenMask mask = make_mask(grammar, trie);
    return mask.accept(text) && mask.can_end();
}

void check_texts(const std::shared_ptr<const Grammar>& grammar, const std::vector<std::string>& good,
                 const std::vector<std::string>& bad) {
    for (const std::string& text : good) EXPECT_TRUE(matches(grammar, text)) << text;
    for (const std::string& text : bad) EXPECT_FALSE(matches(grammar, text)) << text;
}

TEST(Gbnf, ReadsEveryConstruct) {
    check_texts(gbnf("root ::= \"yes\" | \"no\""), {"yes", "no"}, {"", "y", "yesno", "maybe"});
    check_texts(gbnf("root ::= a* b+ c?\na ::= \"a\"\nb ::= \"b\"\nc ::= \"c\" # comment\n"), {"b", "aabbc", "bc"},
                {"", "a", "abcc"});
    check_texts(gbnf("root ::= [a-c0-9_]{2,4}"), {"a1", "____", "abc"}, {"a", "abcab", "zz"});
    check_texts(gbnf("root ::= [^a\\]]{2} \".\"{3} [0-9]{2,}"), {"bc...12", "é\n...123"},
                {"ab...12", "b]...12", "bc..12", "bc...1"});
    check_texts(gbnf("root ::= (\"a\" | \"b\" (\"c\" | \"d\"))+ \"\\x41\\u00e9\\n\""), {"aAé\n", "bcabdAé\n"},
                {"Aé\n", "bAé\n"});
    check_texts(gbnf("root ::=\n  \"a\"\n  | \"b\"\nother-rule ::= \"x\"\n"), {"a", "b"}, {"x", "ab"});
    check_texts(gbnf("root ::= ."), {"a", "é", "😀", "\n"}, {"", "ab", "\xff", "\xc3"});
    check_texts(gbnf("root ::= \"\""), {""}, {"a"});
    check_texts(gbnf("root ::= \"a\"{0} \"b\"{0,1}"), {"", "b"}, {"a"});
}

TEST(Gbnf, RulesMayNestWithoutEnd) {
    auto grammar = gbnf("root ::= value\nvalue ::= \"(\" value* \")\" | [0-9]+");
    check_texts(grammar, {"1", "()", "((1)(2()))"}, {"(", "(1", ")", "1)"});
    std::string deep(5000, '(');
    EXPECT_TRUE(matches(grammar, deep + std::string(5000, ')')));
    EXPECT_FALSE(matches(grammar, deep + std::string(4999, ')')));
}

TEST(Gbnf, ErrorsSayWhereAndWhat) {
    const std::pair<const char*, const char*> bad[] = {
        {"", "root"},
        {"a ::= \"x\"", "root"},
        {"root ::= b", "'b' is not defined"},
        {"root ::= \"x\"\nroot ::= \"y\"", "line 2"},
        {"root ::= \"x", "not closed"},
        {"root ::= [a", "not closed"},
        {"root ::= (\"a\"", "')'"},
        {"root ::= \"a\"{", "number"},
        {"root ::= \"a\"{3,2}", "wrong way"},
        {"root ::= [z-a]", "wrong way"},
        {"root ::= root \"a\" | \"b\"", "calls itself"},
        {"root ::= a\na ::= b? a \"x\" | \"y\"\nb ::= \"z\"", "calls itself"},
        {"root ::= \"a\" root", "no text"},
        {"root ::= ((((\"a\"{1000}){1000}){1000}){1000})", "states"},
        {"root = \"a\"", "::="},
        {"root ::= \"\\q\"", "\\q"},
    };
    for (const auto& [text, what] : bad) {
        auto grammar = parse_gbnf(text);
        ASSERT_FALSE(grammar.ok()) << text;
        EXPECT_NE(grammar.error().message.find(what), std::string::npos) << grammar.error().message;
    }
}

TEST(Schema, TypesAndNumbers) {
    check_texts(schema(R"({"type": "integer"})"), {"0", "-7", "123"}, {"1.0", "01", "", "a", "1e3", "--1", "-"});
    check_texts(schema(R"({"type": "number"})"), {"0", "-7.25", "1e10", "1.5E-3", "0.30000000000000004"},
                {".5", "1.", "+1", "NaN"});
    check_texts(schema(R"({"type": ["boolean", "null"]})"), {"true", "false", "null"}, {"0", "\"true\""});
    check_texts(schema(R"({"type": "string", "nullable": true})"), {"\"\"", "null"}, {"0"});
    check_texts(schema(R"({"type": "integer", "minimum": 5, "maximum": 120})"), {"5", "9", "10", "99", "100", "120"},
                {"4", "0", "121", "-5", "500", "1200"});
    check_texts(schema(R"({"type": "integer", "minimum": -12, "exclusiveMaximum": 3})"), {"-12", "-10", "-1", "0", "2"},
                {"-13", "3", "-20", "12"});
    check_texts(schema(R"({"type": "integer", "exclusiveMinimum": 99})"), {"100", "4711", "100000000000"},
                {"99", "0", "-100"});
    check_texts(schema(R"({"type": "integer", "maximum": -3})"), {"-3", "-4", "-1000"}, {"-2", "0", "3"});
}

TEST(Schema, EveryIntegerBoundIsExact) {
    for (auto [low, high] : {std::pair{0, 0}, {1, 9}, {7, 23}, {-23, 105}, {98, 1002}, {-110, -9}}) {
        auto grammar = schema(R"({"type": "integer", "minimum": )" + std::to_string(low) + R"(, "maximum": )" +
                              std::to_string(high) + "}");
        for (int value = -1200; value <= 1200; ++value) {
            ASSERT_EQ(matches(grammar, std::to_string(value)), value >= low && value <= high)
                << value << " of " << low << ".." << high;
        }
    }
}

TEST(Schema, Strings) {
    check_texts(schema(R"({"type": "string"})"), {"\"\"", "\"a b\"", "\"é😀\"", R"("\" \\ \n \u00e9 \/")"},
                {"\"", "a", "\"\n\"", "\"\\q\"", "\"\\u12\"", "\"\xff\"", "\"\x01\""});
    check_texts(schema(R"({"type": "string", "minLength": 2, "maxLength": 3})"), {"\"ab\"", "\"é😀x\"", R"("\n\"")"},
                {"\"a\"", "\"abcd\""});
    check_texts(schema(R"({"type": "string", "minLength": 1})"), {"\"a\"", "\"abc\""}, {"\"\""});
    check_texts(schema(R"({"type": "string", "pattern": "^[a-z]+-\\d{2}$"})"), {"\"ab-12\""},
                {"\"ab-1\"", "\"-12\"", "\"Xab-12\"", "\"ab-123\""});
    check_texts(schema(R"({"type": "string", "pattern": "\\S"})"), {"\"a\"", "\"  x \""}, {"\"\"", "\"  \""});
    check_texts(schema(R"({"type": "string", "pattern": "^(a|b\\.)*?\"?$"})"), {"\"\"", "\"ab.a\"", R"("a\"")"},
                {"\"b\"", "\"c\""});
    check_texts(schema(R"({"type": "string", "pattern": "^a|b$"})"), {"\"axx\"", "\"xxb\""}, {"\"xax\""});
    check_texts(schema(R"({"type": "string", "format": "date"})"), {"\"2026-11-30\""},
                {"\"2026-13-01\"", "\"26-01-01\""});
    check_texts(schema(R"({"type": "string", "format": "date-time"})"),
                {"\"2026-11-30T23:59:59Z\"", "\"2026-01-01T00:00:00.5+01:00\""}, {"\"2026-11-30\""});
    check_texts(schema(R"({"type": "string", "format": "uuid"})"), {"\"01234567-89ab-cdef-0123-456789ABCDEF\""},
                {"\"0123\""});
    check_texts(schema(R"({"type": "string", "format": "email"})"), {"\"anything\""}, {});
}

TEST(Schema, Objects) {
    auto grammar = schema(
        R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}},
                              "required": ["b"], "additionalProperties": false})");
    check_texts(
        grammar, {R"({"b":""})", R"({"a": 1, "b": "x"})", R"({"a":1,"b":"","c":null})", "{\n  \"b\": \"x\"\n}"},
        {"{}", R"({"a":1})", R"({"b":"","a":1})", R"({"b":"","d":1})", R"({"b":1})", R"({"b":"",})", R"({,"b":""})"});
    check_texts(schema(R"({"type": "object", "properties": {"a": {"type": "integer"}}})"),
                {"{}", R"({"a":1})", R"({"x":[1,{"y":null}]})", R"({"a":1,"aa":2})", R"({"":0})"},
                {R"({"a":"x"})", R"({"a":1,"a":"x"})"});
    check_texts(schema(R"({"type": "object", "properties": {"a": {"type": "integer"}}})", {.strict = true}),
                {"{}", R"({"a":1})"}, {R"({"x":1})"});
    check_texts(
        schema(
            R"({"type": "object", "properties": {"é\n": {"type": "integer"}, "é": {}}, "additionalProperties": {"type": "boolean"}})"),
        {R"({"é\n":1,"é":"x","éa":true})", R"({"e":true})", R"({"é\t":false})"}, {R"({"é\n":true})", R"({"e":1})"});
    check_texts(schema(R"({"type": "object"})"), {"{}", R"({"a":{"b":[]}})"}, {"[]", "1"});
    check_texts(schema(R"({"required": ["z"], "properties": {"a": {}}})"), {R"({"z":1})", R"({"a":0,"z":{}})"},
                {"{}", R"({"a":0})"});
}

TEST(Schema, Arrays) {
    check_texts(schema(R"({"type": "array", "items": {"type": "integer"}})"), {"[]", "[1]", "[1, 2,3]", "[\n 1\n]"},
                {"[1,]", "[\"a\"]", "[1 2]"});
    check_texts(schema(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})"),
                {"[1,2]", "[1,2,3]"}, {"[]", "[1]", "[1,2,3,4]"});
    check_texts(schema(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1})"), {"[1]", "[1,2,3,4,5]"},
                {"[]"});
    check_texts(schema(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})"),
                {"[]", "[1]", "[1,\"a\"]"}, {"[\"a\"]", "[1,\"a\",2]"});
    check_texts(schema(R"({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "minItems": 1})"),
                {"[1]", "[1,\"a\",\"b\"]"}, {"[]", "[1,2]"});
    check_texts(schema(R"({"type": "array"})"), {"[]", "[1,[{}]]"}, {"{}"});
}

TEST(Schema, ChoicesAndReferences) {
    check_texts(schema(R"({"enum": ["a", 1, null, {"k": [1, 2]}]})"),
                {"\"a\"", "1", "null", R"({"k":[1,2]})", R"({"k": [1, 2]})"}, {"\"b\"", "2"});
    check_texts(schema(R"({"type": "string", "enum": ["a", 1]})"), {"\"a\""}, {"1"});
    check_texts(schema(R"({"const": "x"})"), {"\"x\""}, {"\"y\""});
    check_texts(schema(R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})"), {"1", "\"a\""}, {"null"});
    check_texts(schema(R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                           "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "additionalProperties": false})"),
                {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}"});
    check_texts(schema(R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                                     {"properties": {"b": {"type": "string"}}, "required": ["b"], "additionalProperties": false}]})"),
                {R"({"a":1,"b":""})"}, {R"({"a":1})", R"({"b":""})", R"({"a":1,"b":"","c":1})"});
    check_texts(
        schema(R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"},
                           "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["v"], "additionalProperties": false}}})"),
        {R"({"v":1})", R"({"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]})"}, {R"({"kids":[]})", R"({"v":1,"kids":[1]})"});
    check_texts(
        schema(
            R"({"properties": {"a": {"$ref": "#/definitions/x", "description": "d"}}, "required": ["a"], "definitions": {"x": {"const": 1}}})"),
        {R"({"a":1})"}, {R"({"a":2})"});
    check_texts(schema("true"), {"1", "{}", "\"a\""}, {""});
    check_texts(schema("{}"), {"1", "[null]"}, {""});
    check_texts(schema(R"({"properties": {"a": {"type": "integer"}, "b": false}, "additionalProperties": false})"),
                {"{}", R"({"a":1})"}, {R"({"b":1})"});
}

TEST(Schema, ReplyMayBeginWithALineEnd) {
    check_texts(schema(R"({"const": 1})"), {"1", "\n1", "\n\n1", " 1"}, {"\n\n\n1", "1\n"});
}

TEST(Schema, UnsupportedWordsAreRefusedByNameAndPlace) {
    const std::pair<const char*, const char*> bad[] = {
        {R"({"not": {}})", "$: 'not'"},
        {R"({"properties": {"a": {"patternProperties": {}}}})", "$.properties.a: 'patternProperties'"},
        {R"({"if": {}, "then": {}})", "'if'"},
        {R"({"items": {"dependentSchemas": {}}})", "$.items: 'dependentSchemas'"},
        {R"({"$ref": "http://example.com/s.json"})", "outside"},
        {R"({"$ref": "#/nowhere"})", "not there"},
        {R"({"type": "integer", "multipleOf": 3})", "'multipleOf'"},
        {R"({"type": "string", "pattern": "(?=a)b"})", "look-around"},
        {R"({"type": "string", "pattern": "(a)\\1"})", "'\\1'"},
        {R"({"type": "string", "pattern": "a\\b"})", "'\\b'"},
        {R"({"type": "string", "pattern": "a", "maxLength": 3})", "'maxLength'"},
        {R"({"type": "string", "maxLength": 50000})", "'maxLength'"},
        {R"({"type": "thing"})", "'thing'"},
        {R"({"anyOf": [{"contains": {}}]})", "$.anyOf[0]: 'contains'"},
        {R"({"type": "array", "items": {"type": "string", "maxLength": 9000}, "maxItems": 90, "minItems": 90, "prefixItems":
             [{"type": "string", "maxLength": 9000}, {"type": "string", "maxLength": 9001}]})",
         "states"},
        {R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})", "no text"},
        {R"({"type": "integer", "minimum": 5, "maximum": 3})", "no text"},
    };
    for (const auto& [text, what] : bad) {
        auto grammar = grammar_of_schema(*parse_json(text));
        ASSERT_FALSE(grammar.ok()) << text;
        EXPECT_EQ(grammar.error().code, "unsupported_schema");
        EXPECT_NE(grammar.error().message.find(what), std::string::npos) << grammar.error().message;
    }
    EXPECT_TRUE(
        grammar_of_schema(*parse_json(R"({"type": "string", "x-vendor": 1, "title": "t", "examples": []})")).ok());
}

std::mt19937 seeded() {
    unsigned seed = std::random_device()();
    if (const char* given = std::getenv("POLYSTRATA_TEST_SEED")) seed = static_cast<unsigned>(std::atoi(given));
    std::printf("POLYSTRATA_TEST_SEED=%u\n", seed);
    return std::mt19937(seed);
}

bool is_set(std::span<const uint64_t> mask, size_t token) {
    return mask[token / 64] >> (token % 64) & 1;
}

const char* const kSchemas[] = {
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}}, "more": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
        "required": ["name", "tags"], "additionalProperties": false})",
    R"({"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}, "minItems": 1, "maxItems": 4})",
    R"({"type": "string", "minLength": 3, "maxLength": 12})",
    R"({"type": "string", "pattern": "^\\d{1,3}(px|em)$"})",
    "{}",
};

std::vector<std::string> json_tokens() {
    return {"{\"",
            "\":",
            "\": ",
            "\",",
            "\", \"",
            "\"}",
            "\"},",
            "[]",
            "{}",
            "],",
            "\"]",
            "tru",
            "true",
            "null",
            "false",
            "name",
            "age",
            "\"name\"",
            "tags",
            "red",
            "green",
            "\"red\"",
            "ab",
            "abc",
            "é",
            "\\n",
            "\\\"",
            "\\u00",
            "  ",
            "\n",
            "\n  ",
            "12",
            "123",
            "1.5",
            "}}",
            "}]",
            ":{",
            ":[\"",
            "x\":",
            "\xF0\x9F",
            "\x98\x80",
            "px",
            "em\"",
            "\xC3",
            "\n    \"name\": \"",
            "\"more\":null}",
            "abc\",\"tags\":[\"red\"]}"};
}

TEST(TokenMask, AllowsExactlyTheTokensTheGrammarTakes) {
    std::mt19937 random = seeded();
    auto trie = make_trie(json_tokens());
    for (const char* text : kSchemas) {
        SCOPED_TRACE(text);
        TokenMask mask = make_mask(schema(text), trie);
        for (int reply = 0; reply < 4; ++reply) {
            mask.reset();
            for (int step = 0; step < 120; ++step) {
                std::vector<uint64_t> bits(mask.mask().begin(), mask.mask().end());
                std::vector<int32_t> allowed;
                for (int32_t token = 0; token < static_cast<int32_t>(trie->vocab_size()); ++token) {
                    ASSERT_EQ(is_set(bits, static_cast<size_t>(token)), mask.allows(token))
                        << "token '" << trie->piece(token) << "' at step " << step;
                    if (mask.allows(token)) allowed.push_back(token);
                }
                ASSERT_FALSE(allowed.empty()) << "a reply must not get stuck";
                int32_t token = allowed[random() % allowed.size()];
                if (trie->piece(token).empty()) break;
                ASSERT_TRUE(mask.accept(token));
            }
        }
    }
}

TEST(TokenMask, WhatItAllowsIsJsonOfTheSchema) {
    std::mt19937 random = seeded();
    auto trie = make_trie(json_tokens());
    for (const char* text : kSchemas) {
        SCOPED_TRACE(text);
        auto grammar = schema(text);
        TokenMask mask = make_mask(grammar, trie);
        for (int reply = 0; reply < 20; ++reply) {
            mask.reset();
            std::string written;
            for (int step = 0; step < 400; ++step) {
                auto bits = mask.mask();
                std::vector<int32_t> allowed;
                for (int32_t token = 0; token < static_cast<int32_t>(trie->vocab_size()); ++token) {
                    if (is_set(bits, static_cast<size_t>(token))) allowed.push_back(token);
                }
                if (mask.can_end() && step > 20) break;
                // Towards the end: whatever closes.
                int32_t token = allowed[random() % allowed.size()];
                for (int32_t closer :
                     {static_cast<int32_t>('"'), static_cast<int32_t>('}'), static_cast<int32_t>(']')}) {
                    if (step > 60 && is_set(bits, static_cast<size_t>(closer))) token = closer;
                }
                if (trie->piece(token).empty()) break;
                written += trie->piece(token);
                ASSERT_TRUE(mask.accept(token));
            }
            if (!mask.can_end()) continue;
            EXPECT_TRUE(parse_json(written).ok()) << written;
            EXPECT_TRUE(matches(grammar, written)) << written;
        }
    }
}

/// A vocabulary as large as real ones: words with and without a blank, marks, numbers, other scripts, runs of blanks.
std::vector<std::string> many_tokens() {
    std::mt19937 random(1);
    std::set<std::string> all;
    const std::string marks = "\"{}[]():,;.'\\/<>=+-*_#@!?|&%$^~` \n\t";
    for (int i = 0; i < 1000; ++i) all.insert(std::to_string(i));
    for (size_t i = 2; i < 60; ++i) all.insert("\n" + std::string(i, ' '));
    while (all.size() < 12'000) {
        std::string text;
        for (unsigned i = 0, size = 2 + random() % 4; i < size; ++i) text += marks[random() % marks.size()];
        all.insert(text);
    }
    while (all.size() < 250'000) {
        std::string word = random() % 2 ? " " : "";
        for (unsigned i = 0, size = 2 + random() % 7; i < size; ++i) {
            if (random() % 9 == 0)
                append_utf8(word, 0x4E00 + random() % 0x5000);
            else
                word += static_cast<char>('a' + random() % 26);
        }
        if (random() % 8 == 0) word += marks[random() % marks.size()];
        all.insert(word);
    }
    return {all.begin(), all.end()};
}

TEST(TokenMask, IsThatOfEveryTokenTriedAtTheSizeOfRealVocabularies) {
    std::mt19937 random = seeded();
    auto trie = make_trie(many_tokens());
    ASSERT_GT(trie->vocab_size(), 250'000u);
    for (const char* text : kSchemas) {
        SCOPED_TRACE(text);
        TokenMask mask = make_mask(schema(text), trie);
        for (int step = 0; step < 10; ++step) {
            const std::vector<uint64_t> bits(mask.mask().begin(), mask.mask().end());
            std::vector<int32_t> allowed;
            for (int32_t token = 0; token < static_cast<int32_t>(trie->vocab_size()); ++token) {
                const bool allows = mask.allows(token);
                if (is_set(bits, static_cast<size_t>(token)) != allows) ADD_FAILURE() << trie->piece(token);
                if (allows) allowed.push_back(token);
            }
            ASSERT_FALSE(allowed.empty());
            const int32_t token = allowed[random() % allowed.size()];
            if (trie->piece(token).empty()) break;
            ASSERT_TRUE(mask.accept(token));
        }
    }
}

TEST(TokenMask, LongCountedStringsKeepTheirLimits) {
    auto trie = make_trie({std::string(40, 'a'), std::string(39, 'b') + "\"", std::string(200, 'c'), "é", "éé\""});
    TokenMask mask = make_mask(schema(R"({"type": "string", "minLength": 300, "maxLength": 500})"), trie);
    ASSERT_TRUE(mask.accept("\""));
    for (int length = 0; length <= 500; ++length) {
        std::vector<uint64_t> bits(mask.mask().begin(), mask.mask().end());
        for (int32_t token = 0; token < static_cast<int32_t>(trie->vocab_size()); ++token) {
            ASSERT_EQ(is_set(bits, static_cast<size_t>(token)), mask.allows(token)) << length << " " << token;
        }
        ASSERT_EQ(mask.allows('"'), length >= 300);
        ASSERT_EQ(mask.accept(length % 3 ? "x" : "é"), length < 500);
    }
}

TEST(TokenMask, ShortCountedStringsKeepTheirLimits) {
    auto trie = make_trie({"ab", "abc", "abcd\"", "éé", "é\"", "aéb", std::string(20, 'a'), std::string(19, 'b') + "\"",
                           "a\\n", "\\\"b", "\xC3", "\xA9\xC3", "a\xE2"});
    for (const char* limits : {R"("maxLength": 21)", R"("minLength": 5)", R"("minLength": 4, "maxLength": 9)",
                               R"("minLength": 20, "maxLength": 20)", R"("maxLength": 1)"}) {
        SCOPED_TRACE(limits);
        TokenMask mask = make_mask(schema(std::string(R"({"type": "string", )") + limits + "}"), trie);
        ASSERT_TRUE(mask.accept("\""));
        for (int length = 0; length <= 25; ++length) {
            const std::vector<uint64_t> bits(mask.mask().begin(), mask.mask().end());
            for (int32_t token = 0; token < static_cast<int32_t>(trie->vocab_size()); ++token)
                ASSERT_EQ(is_set(bits, static_cast<size_t>(token)), mask.allows(token)) << length << " " << token;
            if (!mask.accept(length % 3 == 0 ? "x" : length % 3 == 1 ? "é" : "\\n")) break;
        }
    }
}

TEST(TokenMask, EndTokensComeWhereTheReplyMayEnd) {
    auto trie = make_trie();
    auto end = static_cast<int32_t>(trie->vocab_size()) - 1;
    TokenMask mask = make_mask(gbnf("root ::= [0-9]{1,2}"), trie);
    EXPECT_FALSE(mask.allows(end));
    EXPECT_FALSE(mask.accept(end));
    EXPECT_TRUE(mask.accept('7'));
    EXPECT_TRUE(is_set(mask.mask(), static_cast<size_t>(end)));
    EXPECT_FALSE(mask.must_end());
    EXPECT_FALSE(mask.accept('x'));
    EXPECT_TRUE(mask.accept('7'));
    EXPECT_TRUE(mask.must_end());
    EXPECT_TRUE(mask.accept(end));
}

TEST(TokenMask, DeepRepliesStayWithinMemory) {
    auto trie = make_trie({"[[", "]]"});
    TokenMask mask = make_mask(schema("{}"), trie);
    for (int i = 0; i < 150'000; ++i) ASSERT_TRUE(mask.accept("[["));
    EXPECT_TRUE(mask.allows(']'));
    for (int i = 0; i < 150'000; ++i) ASSERT_TRUE(mask.accept("]]"));
    EXPECT_TRUE(mask.must_end());
}

TEST(TokenMask, BeginsWhenTheReasoningIsOver) {
    // As a server uses it: free while the parser says reasoning, masked from then on, whatever tokens the closer is
    // made of.
    auto trie = make_trie();
    TokenMask mask = make_mask(
        schema(
            R"({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": false})"),
        trie);
    AnswerOptions options;
    options.start = AnswerStart::reasoning;
    AnswerParser parser(qwen_dialect(), options);
    std::vector<AnswerEvent> events;
    std::string reply = "Let me see: {\"no\": 1}\n</think>\n\n{\"answer\": \"yes\"}";
    for (char c : reply) {
        if (parser.phase() == AnswerParser::Phase::content) {
            ASSERT_TRUE(is_set(mask.mask(), static_cast<unsigned char>(c)));
            ASSERT_TRUE(mask.accept(std::string_view(&c, 1)));
        }
        parser.push(std::string_view(&c, 1), events);
    }
    EXPECT_TRUE(mask.must_end());
    parser.finish(AnswerEnd::stop, events);
    Answer answer;
    answer.add(events);
    EXPECT_EQ(answer.content, "{\"answer\": \"yes\"}");
    EXPECT_EQ(answer.reasoning, "Let me see: {\"no\": 1}");
}

TEST(CallGrammar, CallsReadBackWithArgumentsOfTheSchema) {
    std::mt19937 random = seeded();
    Json tools = *parse_json(
        R"([{"function": {"name": "save", "parameters": {"type": "object", "properties": {"path": {"type": "string"},
        "lines": {"type": "integer"}, "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}}}, "required": ["path", "tags"],
        "$defs": {"tag": {"enum": ["a", "b"]}}}}}])");
    ToolSet set(tools);
    auto trie = make_trie(json_tokens());
    for (const char* name : {"qwen", "glm", "json", "dsml", "lfm", "gemma"}) {
        SCOPED_TRACE(name);
        const Dialect& dialect = *find_dialect(name);
        auto grammar = grammar_of_call(dialect, set.all()[0]);
        ASSERT_TRUE(grammar.ok()) << grammar.error().message;
        TokenMask mask = make_mask(std::make_shared<const Grammar>(std::move(*grammar)), trie);
        for (int reply = 0; reply < 10; ++reply) {
            mask.reset();
            std::string written = dialect.forced_call("save");
            for (int step = 0; step < 500 && !mask.must_end(); ++step) {
                auto bits = mask.mask();
                std::vector<int32_t> allowed, others;
                for (int32_t token = 0; token < static_cast<int32_t>(trie->vocab_size()); ++token) {
                    if (!is_set(bits, static_cast<size_t>(token))) continue;
                    others.push_back(token);
                    // Readable text, so that words come out as they went in; within a mark there is only one way on.
                    std::string_view piece = trie->piece(token);
                    if (piece.size() == 1 && static_cast<unsigned char>(piece[0]) < 0x7F) allowed.push_back(token);
                }
                if (allowed.empty()) allowed = others;
                ASSERT_FALSE(allowed.empty());
                int32_t token = allowed[random() % allowed.size()];
                // A value that goes on for long is closed the way its dialect closes values.
                for (std::string_view closer :
                     {"\n</parameter>\n", "</arg_value>", "<|\"|>", "\"", "]", "</｜DSML｜parameter>\n"}) {
                    TokenMask* m = &mask;
                    if (step % 30 == 29 && m->accept(closer)) {
                        written += closer;
                        token = -1;
                        break;
                    }
                }
                if (token < 0) continue;
                written += trie->piece(token);
                ASSERT_TRUE(mask.accept(token));
            }
            if (!mask.can_end()) continue;
            AnswerOptions options;
            options.start = AnswerStart::content;
            options.tools = set;
            AnswerParser parser(dialect, options);
            std::vector<AnswerEvent> events;
            parser.push(written, events);
            EXPECT_EQ(parser.finish(AnswerEnd::stop, events), FinishReason::tool_calls) << written;
            Answer answer;
            answer.add(events);
            ASSERT_EQ(answer.calls.size(), 1u) << written;
            auto arguments = parse_json(answer.calls[0].arguments);
            ASSERT_TRUE(arguments.ok());
            EXPECT_TRUE(arguments->contains("path") && (*arguments)["path"].is_string()) << written;
            EXPECT_TRUE(arguments->contains("tags") && (*arguments)["tags"].is_array()) << written;
            if (arguments->contains("lines")) {
                EXPECT_TRUE((*arguments)["lines"].is_number_integer()) << written;
            }
        }
    }
    EXPECT_EQ(grammar_of_call(plain_dialect(false), set.all()[0]).error().code, "unsupported_schema");
}

TEST(CallGrammar, WritesEachNotation) {
    const ToolSet tools(*parse_json(R"([{"function": {"name": "put", "parameters": {"type": "object", "properties": {
        "text": {"type": "string"}, "how": {"type": "string", "enum": ["now", "later"]}, "n": {"type": "integer"}},
        "required": ["how"]}}}])"));
    const auto call = [&](const char* dialect) {
        auto grammar = grammar_of_call(*find_dialect(dialect), tools.all()[0]);
        EXPECT_TRUE(grammar.ok()) << grammar.error().message;
        return travelled(*grammar);
    };
    check_texts(call("lfm"),
                {R"(text="it's \"so\"", how="now", n=7)]<|tool_call_end|>)", R"(how="later")]<|tool_call_end|>)"},
                {R"()]<|tool_call_end|>)", R"(how="never")]<|tool_call_end|>)", R"(how="now",n=7)]<|tool_call_end|>)",
                 R"(, how="now")]<|tool_call_end|>)", R"(text='a', how="now")]<|tool_call_end|>)"});
    check_texts(call("gemma"),
                {R"(text:<|"|>it's "so", {all}<|"|>,how:<|"|>now<|"|>,n:7}<tool_call|>)",
                 R"(how:<|"|>later<|"|>}<tool_call|>)"},
                {R"(}<tool_call|>)", R"(how:<|"|>never<|"|>}<tool_call|>)", R"(how:now}<tool_call|>)",
                 R"(,how:<|"|>now<|"|>}<tool_call|>)", R"(how:<|"|>now<|"|>n:7}<tool_call|>)"});
    check_texts(call("qwen"),
                {"<parameter=text>\na\n\n</parameter>\n<parameter=how>\nnow\n</parameter>\n</function>\n</tool_call>"},
                {"<parameter=how>\nnever\n</parameter>\n</function>\n</tool_call>"});
    const ToolSet odd(
        *parse_json(R"([{"function": {"name": "f", "parameters": {"properties": {"a, b": {"type": "string"}}}}}])"));
    for (const char* dialect : {"lfm", "gemma"})
        EXPECT_EQ(grammar_of_call(*find_dialect(dialect), odd.all()[0]).error().code, "unsupported_schema") << dialect;
}

std::shared_ptr<const Grammar> reply(const char* dialect, AnswerOptions answer, const ReplyRules& rules) {
    auto grammar = grammar_of_reply(*find_dialect(dialect), answer, rules);
    EXPECT_TRUE(grammar.ok()) << grammar.error().message;
    return travelled(*grammar);
}

ReplyRules wants_schema(std::string_view schema, ReplyRules::Calls calls = ReplyRules::Calls::none) {
    ReplyRules rules;
    rules.content = ReplyRules::Content::schema;
    rules.schema = *parse_json(schema);
    rules.calls = calls;
    return rules;
}

AnswerOptions begins(AnswerStart start, const ToolSet& tools = {}) {
    AnswerOptions answer;
    answer.start = start;
    answer.tools = tools;
    return answer;
}

TEST(ReplyGrammar, ContentIsHeldAndReasoningIsFree) {
    const ReplyRules rules = wants_schema(R"({"enum": ["yes", 1]})");
    check_texts(reply("qwen", begins(AnswerStart::content), rules), {"\"yes\"", "\n\n1"},
                {"<think>a</think>1", "no", ""});
    check_texts(reply("qwen", begins(AnswerStart::reasoning), rules),
                {"</think>1", "so {\"x\": <t\n</think>\n\n\"yes\"", "a</thin</think>1"},
                {"1", "</think>2", "</think>", "</think>1</think>1"});
    check_texts(reply("qwen", begins(AnswerStart::undecided), rules),
                {"1", "<think>hm\n</think>\n\n1", "\n<think></think>1"}, {"<think>1", "hm</think>1"});
    check_texts(reply("gemma", begins(AnswerStart::undecided), rules), {"1", "<|channel>thought\nhm<channel|>1"},
                {"hm<channel|>1"});
    ReplyRules object;
    check_texts(reply("glm", begins(AnswerStart::reasoning), object), {"a</think>{\"b\": [1]}", "</think>\n{}"},
                {"</think>[]"});
    ReplyRules grammar;
    grammar.content = ReplyRules::Content::grammar;
    grammar.grammar = "root ::= \"a\"+";
    check_texts(reply("none", begins(AnswerStart::content), grammar), {"a", "aaa"}, {"", "\na", "ab"});
    grammar.grammar = "root ::= ";
    check_texts(reply("none", begins(AnswerStart::content), grammar), {""}, {"a"});
    grammar.grammar = "root ::= [";
    EXPECT_EQ(grammar_of_reply(qwen_dialect(), begins(AnswerStart::content), grammar).error().code, "grammar");
    EXPECT_EQ(
        grammar_of_reply(qwen_dialect(), begins(AnswerStart::content), wants_schema(R"({"not": {}})")).error().code,
        "unsupported_schema");
}

TEST(ReplyGrammar, ACallMayComeInstead) {
    const ToolSet tools(*parse_json(R"([{"function": {"name": "f", "parameters": {}}}])"));
    const ReplyRules rules = wants_schema(R"({"const": 1})", ReplyRules::Calls::may);
    check_texts(reply("qwen", begins(AnswerStart::content, tools), rules),
                {"1", "<tool_call>\n<function=f>\n</function>\n</tool_call>", "\n\n<tool_call>"}, {"2", "<tool"});
    check_texts(reply("qwen", begins(AnswerStart::reasoning, tools), rules), {"a</think>\n\n<tool_call>x", "</think>1"},
                {"<tool_call>"});
    check_texts(reply("lfm", begins(AnswerStart::content, tools), rules), {"<|tool_call_start|>[f()]"},
                {"<|tool_call"});
    check_texts(reply("qwen", begins(AnswerStart::content), rules), {"1"}, {"<tool_call>"});
}

TEST(ReplyGrammar, CallsThatMustComeFitTheirTools) {
    const ToolSet tools(*parse_json(
        R"([{"function": {"name": "save", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}},
            {"function": {"name": "say", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}}])"));
    ReplyRules rules;
    rules.calls = ReplyRules::Calls::must;
    const std::string save = "<tool_call>\n<function=save>\n<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>";
    const std::string say =
        "<tool_call>\n<function=say>\n<parameter=text>\nhi\n</parameter>\n</function>\n</tool_call>";
    const auto grammar = reply("qwen", begins(AnswerStart::reasoning, tools), rules);
    check_texts(grammar, {"a</think>\n\n" + save, "</think>" + say + "\n" + save},
                {save, "</think>", "</think>hi", "</think>" + save + "hi", "</think><tool_call>\n<function=other>\n"});
    AnswerOptions one = begins(AnswerStart::content, tools);
    one.parallel_calls = false;
    check_texts(reply("qwen", one, rules), {save, say}, {say + say});
    // The prompt has the opening already, up to the name.
    one.given = qwen_dialect().forced_call("");
    check_texts(reply("qwen", one, rules), {save.substr(one.given.size())}, {save});
    one.parallel_calls = true;
    check_texts(reply("qwen", one, rules), {save.substr(one.given.size()) + say}, {});
    for (const char* dialect : {"glm", "json", "dsml", "lfm", "gemma"}) {
        SCOPED_TRACE(dialect);
        AnswerOptions answer = begins(AnswerStart::content, tools);
        TokenMask mask = make_mask(reply(dialect, answer, rules), make_trie());
        // Whatever is the only way on, and 7 or a letter elsewhere: a call that its dialect reads.
        std::string text;
        while (!mask.can_end() && text.size() < 2000) {
            int32_t next = -1;
            for (const char* wish : {"7", "\n", "<", "\"", "s", "v"})
                if (next < 0 && mask.allows(static_cast<unsigned char>(*wish)))
                    next = static_cast<unsigned char>(*wish);
            for (int32_t byte = 0; next < 0 && byte < 256; ++byte)
                if (mask.allows(byte)) next = byte;
            ASSERT_GE(next, 0);
            // Long enough: out of the number.
            if (next == '7' && text.ends_with("77"))
                for (const char* way : {"<", "}", ",", "\n"})
                    if (mask.allows(static_cast<unsigned char>(*way))) next = static_cast<unsigned char>(*way);
            ASSERT_TRUE(mask.accept(next));
            text += static_cast<char>(next);
        }
        AnswerParser parser(*find_dialect(dialect), answer);
        std::vector<AnswerEvent> events;
        parser.push(text, events);
        EXPECT_EQ(parser.finish(AnswerEnd::stop, events), FinishReason::tool_calls) << text;
    }
    EXPECT_EQ(grammar_of_reply(plain_dialect(false), begins(AnswerStart::content, tools), rules).error().code,
              "unsupported_schema");
}

}  // namespace
}  // namespace strata
