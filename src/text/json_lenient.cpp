#include "text/json_lenient.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/utf8.h"

namespace strata {
namespace {

constexpr int kMaxDepth = 128;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$' ||
           static_cast<unsigned char>(c) >= 0x80;
}

std::optional<uint32_t> hex(std::string_view text, size_t at, size_t digits) {
    if (at + digits > text.size()) return std::nullopt;
    uint32_t value = 0;
    const char* start = text.data() + at;
    if (std::from_chars(start, start + digits, value, 16).ptr != start + digits) return std::nullopt;
    return value;
}

}  // namespace

void LenientReader::skip_space() {
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\n' || text_[at] == '\r' || text_[at] == '\t')) ++at;
}

bool LenientReader::accept(char c) {
    skip_space();
    if (peek() != c || ended()) return false;
    ++at;
    return true;
}

std::string_view LenientReader::word(std::string_view more) {
    size_t start = at;
    while (at < text_.size() && (is_word(text_[at]) || more.find(text_[at]) != more.npos)) ++at;
    return text_.substr(start, at - start);
}

std::optional<Json> LenientReader::value(int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    skip_space();
    char c = peek();
    if (c == '{') {
        ++at;
        return object(depth);
    }
    if (c == '[' || c == '(') {
        ++at;
        return container(c == '[' ? ']' : ')', depth);
    }
    if (c == '"' || c == '\'') {
        auto text = string(false);
        if (!text) return std::nullopt;
        return Json(std::move(*text));
    }
    if (is_digit(c) || c == '-' || c == '+' || c == '.') return number();
    std::string_view name = word();
    if (name == "true" || name == "True") return Json(true);
    if (name == "false" || name == "False") return Json(false);
    if (name == "null" || name == "None") return Json(nullptr);
    return std::nullopt;
}

std::optional<Json> LenientReader::container(char close, int depth) {
    Json items = Json::array();
    while (true) {
        if (accept(close)) return items;
        if (ended()) return may_lack_brackets ? std::optional(items) : std::nullopt;
        auto item = value(depth + 1);
        if (!item) return std::nullopt;
        items.push_back(std::move(*item));
        if (accept(',')) continue;
        skip_space();
        if (peek() != close && !(ended() && may_lack_brackets)) return std::nullopt;
    }
}

std::optional<Json> LenientReader::object(int depth) {
    Json members = Json::object();
    while (true) {
        if (accept('}')) return members;
        if (ended()) return may_lack_brackets ? std::optional(members) : std::nullopt;
        std::string key;
        if (peek() == '"' || peek() == '\'') {
            auto text = string(true);
            if (!text) return std::nullopt;
            key = std::move(*text);
        } else {
            key = word("-.");
            if (key.empty()) return std::nullopt;
        }
        if (!accept(':')) return std::nullopt;
        auto member = value(depth + 1);
        if (!member) return std::nullopt;
        members[key] = std::move(*member);
        if (accept(',')) continue;
        skip_space();
        if (peek() != '}' && !(ended() && may_lack_brackets)) return std::nullopt;
    }
}

std::optional<std::string> LenientReader::string(bool is_key) {
    char quote = text_[at++];
    std::string out;
    while (at < text_.size()) {
        char c = text_[at++];
        if (c == quote) {
            if (!ends_string || ends_string(text_.substr(at), is_key)) return out;
            out += c;
            continue;
        }
        if (c != '\\' || at >= text_.size()) {
            out += c;
            continue;
        }
        char escape = text_[at++];
        switch (escape) {
            case 'n': out += '\n'; break;
            case 't': out += '\t'; break;
            case 'r': out += '\r'; break;
            case 'b': out += '\b'; break;
            case 'f': out += '\f'; break;
            case '\\':
            case '/':
            case '"':
            case '\'': out += escape; break;
            case '\n': break;
            case 'x':
            case 'u':
            case 'U': {
                size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
                auto unit = hex(text_, at, digits);
                if (!unit) {
                    out += '\\';
                    out += escape;
                    break;
                }
                at += digits;
                if (*unit >= 0xD800 && *unit < 0xDC00 && text_.substr(at, 2) == "\\u") {
                    auto low = hex(text_, at + 2, 4);
                    if (low && *low >= 0xDC00 && *low < 0xE000) {
                        unit = 0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00);
                        at += 6;
                    }
                }
                append_utf8(out, *unit);
                break;
            }
            default:  // no escape: both characters stay
                out += '\\';
                out += escape;
        }
    }
    return std::nullopt;
}

std::optional<Json> LenientReader::number() {
    std::string digits;
    if (peek() == '+') {
        ++at;
    } else if (peek() == '-') {
        digits += text_[at++];
    }
    bool real = false, any = false;
    auto take_digits = [&] {
        while (is_digit(peek()) || (peek() == '_' && any && at + 1 < text_.size() && is_digit(text_[at + 1]))) {
            if (peek() != '_') digits += peek();
            any = true;
            ++at;
        }
    };
    take_digits();
    if (peek() == '.') {
        real = true;
        if (!any) digits += '0';
        ++at;
        digits += '.';
        take_digits();
        if (digits.back() == '.') digits += '0';
    }
    if (!any) return std::nullopt;
    if (peek() == 'e' || peek() == 'E') {
        size_t start = at;
        std::string exponent = "e";
        ++at;
        if (peek() == '+' || peek() == '-') exponent += text_[at++];
        size_t before = exponent.size();
        while (is_digit(peek())) exponent += text_[at++];
        if (exponent.size() == before) {
            at = start;
        } else {
            digits += exponent;
            real = true;
        }
    }
    if (!ended() && is_word(peek())) return std::nullopt;
    if (real) {
        double value = std::strtod(digits.c_str(), nullptr);
        if (!std::isfinite(value)) return std::nullopt;
        return Json(value);
    }
    int64_t whole = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), whole).ec == std::errc()) return Json(whole);
    return big_integer(digits);
}

std::optional<Json> read_lenient_json(std::string_view text) {
    if (auto strict = parse_json(text); strict.ok()) return std::move(*strict);
    LenientReader reader(text);
    reader.may_lack_brackets = true;
    auto value = reader.value();
    reader.skip_space();
    if (!value || !reader.ended()) return std::nullopt;
    return value;
}

}  // namespace strata
