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

/// The code point that starts at `at` (before `end`). Overlong forms, surrogates and values beyond U+10FFFF are not
/// valid; a bad byte is a unit of one byte.
inline CodePoint decode_utf8(const char* at, const char* end) {
    const auto byte = [at](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
    const uint32_t first = byte(0);
    if (first < 0x80) return {first, 1, true};
    const auto left = end - at;
    const auto continues = [&](int i) { return (byte(i) & 0xC0) == 0x80; };
    if (first >= 0xC2 && first <= 0xDF) {
        if (left >= 2 && continues(1)) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2, true};
    } else if (first >= 0xE0 && first <= 0xEF) {
        if (left >= 3 && continues(1) && continues(2)) {
            const uint32_t value = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
            if (value >= 0x800 && (value < 0xD800 || value > 0xDFFF)) return {value, 3, true};
        }
    } else if (first >= 0xF0 && first <= 0xF4) {
        if (left >= 4 && continues(1) && continues(2) && continues(3)) {
            const uint32_t value =
                (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
            if (value >= 0x10000 && value <= 0x10FFFF) return {value, 4, true};
        }
    }
    return {0xFFFD, 1, false};
}

/// The same at a byte of a text (at < text.size()).
inline CodePoint decode_utf8(std::string_view text, size_t at) {
    return decode_utf8(text.data() + at, text.data() + text.size());
}

/// Appends a code point; values that are none become U+FFFD.
void append_utf8(std::string& out, uint32_t code_point);

/// Units of the text: code points and bad bytes.
size_t utf8_length(std::string_view text);

/// How many bytes at the end of the text are the beginning of a code point whose rest may still come (0 to 3).
size_t utf8_cut(std::string_view text);

}  // namespace strata
