// Unicode as the split rules of the tokenizers need it: character classes of version 15.1.
//
// The classes are a table of our own (unicode_table.cpp) and not the installed Unicode library's: token ids must not
// change when a distribution moves to another Unicode version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace strata::unicode {

/// A code point's classes, as bits. The first five are the first letter of the general category; no bit: separators,
/// control, format, private-use and unassigned characters.
enum Class : uint8_t {
    letter = 1,
    mark = 2,
    number = 4,
    punctuation = 8,
    symbol = 16,
    white_space = 32,       // U+0009-000D 0020 0085 00A0 1680 2000-200A 2028 2029 202F 205F 3000
    newline = 64,           // U+000A and U+000D; white space as well
    deepseek_letter = 128,  // the letters that the rule deepseek-llm lists (docs/tokenizers.md)
};

inline constexpr uint32_t last_code_point = 0x10FFFF;
inline constexpr std::string_view replacement_utf8 = "\xEF\xBF\xBD";

/// The classes of every code point, [last_code_point + 1] bytes; filled at the first call. Thread-safe.
const uint8_t* classes();

/// Code points first to last, both included, and the class they share.
struct ClassRange {
    uint32_t first;
    uint32_t last;
    uint8_t classes;
};

/// General categories of Unicode 15.1, in ascending order; code points of no range have no class.
std::span<const ClassRange> category_ranges();

/// How many bytes of text come before its first invalid one (all of them when it is valid).
size_t valid_prefix(std::string_view text);

/// text with every byte that is part of no valid sequence replaced by U+FFFD.
std::string replace_invalid(std::string_view text);

}  // namespace strata::unicode
