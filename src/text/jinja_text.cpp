#include "text/jinja_text.h"

#include <algorithm>
#include <cstring>
#include <utf8proc.h>

#include "text/jinja_value.h"
#include "text/utf8.h"

namespace strata::jinja {
namespace {

utf8proc_category_t category(uint32_t code_point) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool is_letter(uint32_t code_point) {
    auto kind = category(code_point);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(uint32_t code_point) {
    return category(code_point) == UTF8PROC_CATEGORY_ND;
}

bool is_cased(uint32_t code_point) {
    auto kind = category(code_point);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LT;
}

bool is_printable(uint32_t code_point) {
    if (code_point == ' ') return true;
    auto kind = category(code_point);
    return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

void append_upper(std::string& out, CodePoint point, std::string_view bytes) {
    if (!point.valid) {
        out += bytes;
    } else if (point.value == 0xDF) {
        out += "SS";  // the one expansion that is common
    } else {
        append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point.value))));
    }
}

void append_lower(std::string& out, CodePoint point, std::string_view bytes) {
    if (!point.valid) {
        out += bytes;
    } else {
        append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))));
    }
}

/// Calls visit(code point, its bytes) for each unit until it returns false.
template <class Visit>
void each(std::string_view text, Visit visit) {
    for (size_t i = 0; i < text.size();) {
        CodePoint point = decode_utf8(text, i);
        if (!visit(point, text.substr(i, point.size))) return;
        i += point.size;
    }
}

template <class Test>
bool all_of(std::string_view text, Test test) {
    bool all = !text.empty();
    each(text, [&](CodePoint point, std::string_view) { return all = point.valid && test(point.value); });
    return all;
}

/// The size of the text's last unit.
size_t last_size(std::string_view text) {
    for (size_t back = 2; back <= 4 && back <= text.size(); ++back) {
        CodePoint point = decode_utf8(text, text.size() - back);
        if (point.valid && point.size == back) return back;
    }
    return 1;
}

template <class Drop>
std::string_view strip_where(std::string_view text, bool left, bool right, Drop drop) {
    while (left && !text.empty()) {
        CodePoint point = decode_utf8(text, 0);
        if (!drop(point, text.substr(0, point.size))) break;
        text.remove_prefix(point.size);
    }
    while (right && !text.empty()) {
        size_t size = last_size(text);
        std::string_view bytes = text.substr(text.size() - size);
        if (!drop(decode_utf8(bytes, 0), bytes)) break;
        text.remove_suffix(size);
    }
    return text;
}

}  // namespace

bool is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip(std::string_view text, bool left, bool right) {
    return strip_where(text, left, right,
                       [](CodePoint point, std::string_view) { return point.valid && is_space(point.value); });
}

std::string_view strip(std::string_view text, std::string_view set, bool left, bool right) {
    std::vector<std::string_view> units;
    each(set, [&](CodePoint, std::string_view bytes) { return units.push_back(bytes), true; });
    std::sort(units.begin(), units.end());
    return strip_where(text, left, right, [&](CodePoint, std::string_view bytes) {
        return std::binary_search(units.begin(), units.end(), bytes);
    });
}

std::string upper(std::string_view text) {
    std::string out;
    each(text, [&](CodePoint point, std::string_view bytes) { return append_upper(out, point, bytes), true; });
    return out;
}

std::string lower(std::string_view text) {
    std::string out;
    each(text, [&](CodePoint point, std::string_view bytes) { return append_lower(out, point, bytes), true; });
    return out;
}

std::string capitalize(std::string_view text) {
    std::string out;
    bool first = true;
    each(text, [&](CodePoint point, std::string_view bytes) {
        first ? append_upper(out, point, bytes) : append_lower(out, point, bytes);
        first = false;
        return true;
    });
    return out;
}

std::string title(std::string_view text) {
    std::string out;
    bool after_letter = false;
    each(text, [&](CodePoint point, std::string_view bytes) {
        after_letter ? append_lower(out, point, bytes) : append_upper(out, point, bytes);
        after_letter = point.valid && is_cased(point.value);
        return true;
    });
    return out;
}

bool is_all_digits(std::string_view text) {
    return all_of(text, is_digit);
}
bool is_all_letters(std::string_view text) {
    return all_of(text, is_letter);
}
bool is_all_space(std::string_view text) {
    return all_of(text, is_space);
}
bool is_all_alphanumeric(std::string_view text) {
    return all_of(text, [](uint32_t c) { return is_letter(c) || is_digit(c); });
}

bool is_lower(std::string_view text) {
    bool cased = false, other = false;
    each(text, [&](CodePoint point, std::string_view) {
        auto kind = category(point.value);
        cased |= kind == UTF8PROC_CATEGORY_LL;
        other |= kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LT;
        return !other;
    });
    return cased && !other;
}

bool is_upper(std::string_view text) {
    bool cased = false, other = false;
    each(text, [&](CodePoint point, std::string_view) {
        auto kind = category(point.value);
        cased |= kind == UTF8PROC_CATEGORY_LU;
        other |= kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
        return !other;
    });
    return cased && !other;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit) {
    std::vector<std::string_view> parts;
    size_t start = 0;
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
        size_t at = find_text(text, separator, start);
        if (at == text.npos) break;
        parts.push_back(text.substr(start, at - start));
        start = at + separator.size();
    }
    parts.push_back(text.substr(start));
    return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, int64_t limit) {
    if (limit < 0) return split(text, separator, limit);
    std::string backwards(text.rbegin(), text.rend());
    std::string backwards_separator(separator.rbegin(), separator.rend());
    std::vector<std::string_view> parts = split(backwards, backwards_separator, limit);
    for (std::string_view& part : parts) {
        size_t end = text.size() - static_cast<size_t>(part.data() - backwards.data());
        part = text.substr(end - part.size(), part.size());
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<std::string_view> split_space(std::string_view text, int64_t limit) {
    std::vector<std::string_view> parts;
    text = strip(text, true, false);
    while (!text.empty()) {
        if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
            parts.push_back(text);  // with the white space at its end, as Python
            break;
        }
        size_t end = 0;
        each(text, [&](CodePoint point, std::string_view) {
            if (point.valid && is_space(point.value)) return false;
            end += point.size;
            return true;
        });
        parts.push_back(text.substr(0, end));
        text = strip(text.substr(end), true, false);
    }
    return parts;
}

std::vector<std::string_view> split_space_right(std::string_view text, int64_t limit) {
    if (limit < 0) return split_space(text, limit);
    std::vector<std::string_view> parts;
    text = strip(text, false, true);
    while (!text.empty()) {
        if (static_cast<int64_t>(parts.size()) == limit) {
            parts.push_back(text);
            break;
        }
        size_t start = text.size();
        while (start > 0) {
            size_t size = last_size(text.substr(0, start));
            CodePoint point = decode_utf8(text.substr(0, start), start - size);
            if (point.valid && is_space(point.value)) break;
            start -= size;
        }
        parts.push_back(text.substr(start));
        text = strip(text.substr(0, start), false, true);
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
    std::vector<std::string_view> lines;
    size_t start = 0;
    for (size_t i = 0; i < text.size();) {
        CodePoint point = decode_utf8(text, i);
        uint32_t c = point.valid ? point.value : 0;
        bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
        size_t next = i + point.size;
        if (ends) {
            if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
            lines.push_back(text.substr(start, (keep_ends ? next : i) - start));
            start = next;
        }
        i = next;
    }
    if (start < text.size()) lines.push_back(text.substr(start));
    return lines;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
    if (from > text.size()) return text.npos;
    if (needle.empty()) return from;
    if (needle.size() > text.size() - from) return text.npos;  // also keeps an empty view's null from memmem
    // memmem is the two-way algorithm: no text and needle make it quadratic.
    const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
    if (!found) return text.npos;
    return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_text_last(std::string_view text, std::string_view needle) {
    if (needle.empty()) return text.size();
    std::string backwards(text.rbegin(), text.rend());
    std::string backwards_needle(needle.rbegin(), needle.rend());
    size_t at = find_text(backwards, backwards_needle);
    return at == text.npos ? at : text.size() - at - needle.size();
}

size_t count_text(std::string_view text, std::string_view needle) {
    if (needle.empty()) return utf8_length(text) + 1;
    size_t count = 0;
    for (size_t at = 0; (at = find_text(text, needle, at)) != text.npos; at += needle.size()) ++count;
    return count;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit, size_t max_size) {
    std::string out;
    auto put = [&](std::string_view piece) {
        out += piece;
        if (out.size() > max_size) over_limit("a text grows beyond " + std::to_string(max_size) + " bytes");
    };
    if (from.empty()) {  // before every unit and at the end
        each(text, [&](CodePoint, std::string_view bytes) {
            if (limit != 0) {
                put(to);
                --limit;
            }
            put(bytes);
            return true;
        });
        if (limit != 0) put(to);
        return out;
    }
    size_t start = 0;
    for (; limit != 0; --limit) {
        size_t at = find_text(text, from, start);
        if (at == text.npos) break;
        put(text.substr(start, at - start));
        put(to);
        start = at + from.size();
    }
    put(text.substr(start));
    return out;
}

std::string_view slice(std::string_view text, size_t from, size_t to) {
    size_t i = 0, unit = 0;
    for (; unit < from && i < text.size(); ++unit) i += decode_utf8(text, i).size;
    size_t start = i;
    for (; unit < to && i < text.size(); ++unit) i += decode_utf8(text, i).size;
    return text.substr(start, i - start);
}

void append_python_string(std::string& out, std::string_view text) {
    char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
    auto escape = [&](char letter, uint32_t value, int digits) {
        static constexpr char kHex[] = "0123456789abcdef";
        out += '\\';
        out += letter;
        for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) out += kHex[value >> shift & 15];
    };
    out += quote;
    each(text, [&](CodePoint point, std::string_view bytes) {
        uint32_t c = point.value;
        if (!point.valid) {
            escape('x', static_cast<unsigned char>(bytes[0]), 2);
        } else if (c == static_cast<unsigned char>(quote) || c == '\\') {
            out += '\\';
            out += bytes;
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (is_printable(c)) {
            out += bytes;
        } else if (c < 0x100) {
            escape('x', c, 2);
        } else if (c < 0x10000) {
            escape('u', c, 4);
        } else {
            escape('U', c, 8);
        }
        return true;
    });
    out += quote;
}

}  // namespace strata::jinja
