// A template's source as tokens: white space control is done here, so the parser sees the text as it will be printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace strata::jinja {

struct Token {
    enum class Type : uint8_t {
        text,         // between tags, to be printed
        block_begin,  // {%
        block_end,
        print_begin,  // {{
        print_end,
        name,
        integer,
        big_integer,
        real,
        string,
        symbol,  // an operator or a bracket
        end,
    };
    Type type;
    int line;
    std::string_view text;  // of the source, of the arena for strings with escapes
    int64_t integer = 0;
    double real = 0;

    bool is(Type other) const { return type == other; }
    bool is_symbol(std::string_view symbol) const { return type == Type::symbol && text == symbol; }
    bool is_name(std::string_view name) const { return type == Type::name && text == name; }
};

/// Throws Stop "template_syntax" at line N: "line N: ...".
[[noreturn]] void syntax_error(int line, const std::string& message);

/// The tokens of a source whose line ends are LF. Views point into the source and the arena.
std::vector<Token> tokenize(std::string_view source, Arena& arena);

}  // namespace strata::jinja
