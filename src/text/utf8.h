// UTF-8 text as code points. Bytes that are not UTF-8 are never lost: each counts as one unit and passes unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

struct CodePoint {
    uint32_t value;  // U+FFFD where the bytes are not UTF-8
    uint32_t size;   // bytes, at least 1
    bool valid;
};

/// The code point that starts at a byte of the text (at < text.size()). Overlong forms, surrogates and values beyond
/// U+10FFFF are not valid; a bad byte is a unit of one byte.
CodePoint decode_utf8(std::string_view text, size_t at);

/// Appends a code point; values that are none become U+FFFD.
void append_utf8(std::string& out, uint32_t code_point);

/// Units of the text: code points and bad bytes.
size_t utf8_length(std::string_view text);

/// How many bytes at the end of the text are the beginning of a code point whose rest may still come (0 to 3).
size_t utf8_cut(std::string_view text);

}  // namespace strata
