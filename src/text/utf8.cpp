#include "text/utf8.h"

namespace strata {

void append_utf8(std::string& out, uint32_t code_point) {
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) code_point = 0xFFFD;
    if (code_point < 0x80) {
        out += static_cast<char>(code_point);
    } else if (code_point < 0x800) {
        out += static_cast<char>(0xC0 | code_point >> 6);
        out += static_cast<char>(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        out += static_cast<char>(0xE0 | code_point >> 12);
        out += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (code_point & 0x3F));
    } else {
        out += static_cast<char>(0xF0 | code_point >> 18);
        out += static_cast<char>(0x80 | (code_point >> 12 & 0x3F));
        out += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (code_point & 0x3F));
    }
}

size_t utf8_length(std::string_view text) {
    size_t units = 0;
    for (size_t i = 0; i < text.size(); i += decode_utf8(text, i).size) ++units;
    return units;
}

size_t utf8_cut(std::string_view text) {
    size_t most = text.size() < 3 ? text.size() : 3;
    for (size_t back = 1; back <= most; ++back) {
        unsigned char c = static_cast<unsigned char>(text[text.size() - back]);
        if ((c & 0xC0) == 0x80) continue;
        size_t wants = c >= 0xF0 && c <= 0xF4 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 1;
        return c >= 0xC2 && c <= 0xF4 && wants > back ? back : 0;
    }
    return 0;
}

}  // namespace strata
