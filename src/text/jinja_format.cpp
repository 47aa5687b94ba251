// Python's two ways to format: "%5.1f" % x and "{:>5}".format(x).
#include <algorithm>
#include <cstdio>

#include "text/jinja_builtins.h"
#include "text/jinja_render.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace strata::jinja {
namespace {

constexpr int kMostWidth = 1000;  // of a field, and of its precision

/// A number within the text, moving past it; -1 where there is none.
int read_number(std::string_view text, size_t& at) {
    int value = -1;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
        value = std::max(value, 0) * 10 + (text[at] - '0');
        if (value > kMostWidth) over_limit("a format asks for more than " + std::to_string(kMostWidth) + " characters");
    }
    return value;
}

struct Spec {
    char fill = ' ';
    char align = 0;  // < > ^ =, or by kind
    char sign = '-';
    bool alternate = false;
    bool commas = false;
    int width = -1;
    int precision = -1;
    char type = 0;
};

std::string aligned(const Spec& spec, std::string text, bool number) {
    int size = static_cast<int>(std::min<size_t>(utf8_length(text), kMostWidth + 1));
    if (size >= spec.width) return text;
    auto missing = static_cast<size_t>(spec.width - size);
    char align = spec.align ? spec.align : number ? '>' : '<';
    if (align == '=') {
        size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
        return text.insert(sign, missing, spec.fill);
    }
    size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    return std::string(left, spec.fill) + text + std::string(missing - left, spec.fill);
}

std::string formatted_integer(const Spec& spec, int64_t value, char type) {
    bool minus = value < 0;
    uint64_t size = minus ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    std::string digits;
    do {
        if (spec.commas && digits.size() % 4 == 3) digits += ',';
        digits += (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[size % base];
        size /= base;
    } while (size != 0);
    while (static_cast<int>(digits.size()) < spec.precision) digits += '0';
    std::reverse(digits.begin(), digits.end());
    std::string prefix = minus ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    if (spec.alternate && base != 10) prefix += std::string("0") + (base == 2 ? 'b' : base == 8 ? 'o' : type);
    return prefix + digits;
}

std::string formatted_real(const Spec& spec, double value, char type) {
    char format[] = {'%', '.', '*', type, '\0'};
    char buffer[kMostWidth + 400];
    int size = std::snprintf(buffer, sizeof buffer, format, spec.precision < 0 ? 6 : spec.precision, value);
    std::string text(buffer, static_cast<size_t>(std::clamp(size, 0, static_cast<int>(sizeof buffer) - 1)));
    if (spec.commas) {
        size_t start = text.starts_with('-') ? 1 : 0;
        size_t end = std::min(text.find_first_not_of("0123456789", start), text.size());
        for (size_t i = end; i > start + 3; i -= 3) text.insert(i - 3, 1, ',');
    }
    if (spec.sign != '-' && !text.starts_with('-')) text.insert(0, 1, spec.sign);
    return text;
}

int64_t integer_for(const Value& value, char type) {
    if (value.is_integral()) return value.as_integer();
    if (value.is(Kind::real) && value.real > -9.2e18 && value.real < 9.2e18 && type == 'd') {
        return static_cast<int64_t>(value.real);
    }
    fail(std::string("format '") + type + "' needs an int, not " + kind_name(value));
}

double real_for(const Value& value, char type) {
    if (value.is_number()) return value.as_real();
    fail(std::string("format '") + type + "' needs a number, not " + kind_name(value));
}

std::string cut(std::string_view text, int precision) {
    return std::string(precision < 0 ? text : slice(text, 0, static_cast<size_t>(precision)));
}

Spec parse_spec(std::string_view text) {
    Spec spec;
    size_t at = 0;
    auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (text.size() >= 2 && is_align(text[1])) {
        spec.fill = text[0];
        spec.align = text[1];
        at = 2;
    } else if (!text.empty() && is_align(text[0])) {
        spec.align = text[at++];
    }
    auto take = [&](char c) { return at < text.size() && text[at] == c ? (++at, true) : false; };
    if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
    spec.alternate = take('#');
    if (take('0') && !spec.align) {
        spec.fill = '0';
        spec.align = '=';
    }
    spec.width = read_number(text, at);
    spec.commas = take(',');
    if (take('.')) spec.precision = std::max(read_number(text, at), 0);
    if (at < text.size()) spec.type = text[at++];
    if (at != text.size()) fail("a format " + quoted(text) + " cannot be read");
    return spec;
}

std::string by_spec(Renderer& renderer, const Value& value, std::string_view text) {
    if (text.empty()) return std::string(renderer.printed(value));
    Spec spec = parse_spec(text);
    bool number = value.is_number() && !value.is(Kind::boolean);
    switch (spec.type) {
        case 'd':
        case 'x':
        case 'X':
        case 'o':
        case 'b': return aligned(spec, formatted_integer(spec, integer_for(value, spec.type), spec.type), true);
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G': return aligned(spec, formatted_real(spec, real_for(value, spec.type), spec.type), true);
        case '%': return aligned(spec, formatted_real(spec, real_for(value, '%') * 100, 'f') + "%", true);
        case 0:
        case 's': break;
        default: fail(std::string("there is no format '") + spec.type + "'");
    }
    if (number && spec.type == 0) {
        if (value.is(Kind::integer)) return aligned(spec, formatted_integer(spec, value.integer, 'd'), true);
        if (spec.precision >= 0) return aligned(spec, formatted_real(spec, value.as_real(), 'g'), true);
        std::string plain(renderer.printed(value));
        if (spec.sign != '-' && !plain.starts_with('-')) plain.insert(0, 1, spec.sign);
        return aligned(spec, plain, true);
    }
    return aligned(spec, cut(renderer.printed(value), spec.precision), false);
}

void check_size(Renderer& renderer, const std::string& out) {
    if (out.size() > renderer.text_limit()) over_limit("a text grows too long");
}

}  // namespace

std::string format_percent(Renderer& renderer, std::string_view format, const Value& values) {
    std::string out;
    size_t taken = 0;
    auto next_value = [&]() -> Value {
        if (values.is(Kind::tuple)) {
            if (taken >= values.size) fail("a format has more fields than values");
            return values.items[taken++];
        }
        if (taken++ > 0) fail("a format has more fields than values");
        return values;
    };
    for (size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%') {
            out += format[i];
            continue;
        }
        renderer.step();
        if (++i >= format.size()) fail("a format ends in '%'");
        if (format[i] == '%') {
            out += '%';
            continue;
        }
        Value value;
        bool named = format[i] == '(';
        if (named) {
            size_t close = format.find(')', i);
            if (close == format.npos) fail("a format's '(' is not closed");
            if (!values.is(Kind::dict)) fail("a format with names needs a dict");
            const Value* found = values.dict->find(format.substr(i + 1, close - i - 1));
            if (!found) fail("a format names " + quoted(format.substr(i + 1, close - i - 1)) + ", which is not given");
            value = *found;
            i = close + 1;
        }
        Spec spec;
        bool zero = false;
        for (; i < format.size() && std::string_view("-+ #0").find(format[i]) != std::string_view::npos; ++i) {
            if (format[i] == '-') spec.align = '<';
            if (format[i] == '+' || (format[i] == ' ' && spec.sign != '+')) spec.sign = format[i];
            if (format[i] == '#') spec.alternate = true;
            if (format[i] == '0') zero = true;
        }
        spec.width = read_number(format, i);
        if (i < format.size() && format[i] == '.') {
            ++i;
            spec.precision = std::max(read_number(format, i), 0);
        }
        if (i >= format.size()) fail("a format ends within a field");
        char type = format[i];
        if (!named) value = next_value();
        std::string text;
        bool number = true;
        switch (type) {
            case 'd':
            case 'i':
            case 'u': text = formatted_integer(spec, integer_for(value, 'd'), 'd'); break;
            case 'x':
            case 'X':
            case 'o': text = formatted_integer(spec, integer_for(value, type), type); break;
            case 'e':
            case 'E':
            case 'f':
            case 'F':
            case 'g':
            case 'G': text = formatted_real(spec, real_for(value, type), type); break;
            case 'c':
                number = false;
                if (value.is_integral()) {
                    append_utf8(text, static_cast<uint32_t>(std::clamp<int64_t>(value.as_integer(), 0, 0x110000)));
                } else {
                    text = cut(renderer.printed(value), 1);
                }
                break;
            case 's':
                number = false;
                text = cut(renderer.printed(value), spec.precision);
                break;
            case 'r':
            case 'a':
                number = false;
                print_quoted(text, value, renderer.text_limit());
                text = cut(text, spec.precision);
                break;
            default: fail(std::string("there is no format '%") + type + "'");
        }
        if (zero && number && !spec.align) {
            spec.fill = '0';
            spec.align = '=';
        }
        if (!spec.align) spec.align = '>';
        out += aligned(spec, std::move(text), number);
        check_size(renderer, out);
    }
    if (values.is(Kind::tuple) && taken < values.size) fail("a format has fewer fields than values");
    return out;
}

std::string format_braces(Renderer& renderer, std::string_view format, const Call& call) {
    std::string out;
    size_t taken = 0;
    for (size_t i = 0; i < format.size(); ++i) {
        char c = format[i];
        if (c != '{' && c != '}') {
            out += c;
            continue;
        }
        renderer.step();
        if (i + 1 < format.size() && format[i + 1] == c) {
            out += c;
            ++i;
            continue;
        }
        size_t close = format.find('}', i);
        if (c == '}' || close == format.npos) fail("a brace in a format stands alone");
        std::string_view field = format.substr(i + 1, close - i - 1);
        if (field.find('{') != field.npos) fail("fields within fields of a format are not supported");
        i = close;
        std::string_view spec;
        if (size_t colon = field.find(':'); colon != field.npos) {
            spec = field.substr(colon + 1);
            field = field.substr(0, colon);
        }
        bool as_quoted = false;
        if (size_t mark = field.find('!'); mark != field.npos) {
            as_quoted = field.substr(mark + 1) == "r";
            field = field.substr(0, mark);
        }
        size_t path = std::min(field.find_first_of(".["), field.size());
        if (path != field.size()) fail("attributes in a format are not supported");
        Value value;
        if (field.empty() || field.find_first_not_of("0123456789") == field.npos) {
            size_t at = 0;
            size_t place = field.empty() ? taken++ : static_cast<size_t>(std::max(read_number(field, at), 0));
            if (place >= call.positional.size()) fail("a format has more fields than values");
            value = call.positional[place];
        } else {
            const Value* found = nullptr;
            for (const auto& [name, given] : call.keyword) {
                if (name == field) found = &given;
            }
            if (!found) fail("a format names " + quoted(field) + ", which is not given");
            value = *found;
        }
        if (as_quoted) {
            std::string text;
            print_quoted(text, value, renderer.text_limit());
            value = renderer.text(text);
        }
        out += by_spec(renderer, value, spec);
        check_size(renderer, out);
    }
    return out;
}

}  // namespace strata::jinja
