#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "text/jinja_text.h"
#include "text/utf8.h"

namespace strata::jinja {
namespace {

bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_name_part(char c) {
    return is_name_start(c) || is_digit(c);
}

class Lexer {
  public:
    Lexer(std::string_view source, Arena& arena) : source_(source), arena_(arena) {}

    std::vector<Token> run() {
        while (at_ < source_.size()) {
            size_t tag = next_tag();
            if (tag == source_.npos) {
                put(Token::Type::text, source_.substr(at_));
                advance(source_.size());
                break;
            }
            std::string_view text = source_.substr(at_, tag - at_);
            char kind = source_[tag + 1];
            size_t inside = tag + 2;
            char sign = inside < source_.size() ? source_[inside] : '\0';
            if (sign == '-') {
                text = strip(text, false, true);
            } else if (sign != '+' && kind != '{') {
                text = without_indent(text);
            }
            if (sign == '-' || sign == '+') ++inside;
            if (!text.empty()) put(Token::Type::text, text);
            advance(tag);
            if (kind == '#') {
                comment(inside);
            } else if (kind == '%' && raw_begins(inside)) {
                raw();
            } else {
                bool block = kind == '%';
                put(block ? Token::Type::block_begin : Token::Type::print_begin, source_.substr(tag, 2));
                advance(inside);
                expression(block);
            }
        }
        put(Token::Type::end, {});
        return std::move(tokens_);
    }

  private:
    void put(Token::Type type, std::string_view text) { tokens_.push_back({type, line_, text}); }

    void advance(size_t to) {
        line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                             source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
        if (to > at_) line_start_ = source_[to - 1] == '\n';
        at_ = to;
    }

    size_t next_tag() const {
        for (size_t i = at_; (i = source_.find('{', i)) != source_.npos; ++i) {
            if (i + 1 < source_.size() && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) {
                return i;
            }
        }
        return source_.npos;
    }

    /// lstrip_blocks: without the white space from the start of the line, where nothing else is on it.
    std::string_view without_indent(std::string_view text) const {
        size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
        if (line == 0 && !line_start_) return text;
        std::string_view indent = text.substr(line);
        return strip(indent).empty() ? text.substr(0, line) : text;
    }

    /// Behind the end of a tag that starts at `end` ("%}", "-}}", ..): trim_blocks, and all white space after a minus.
    size_t after_end(size_t end, bool trim) const {
        bool minus = source_[end] == '-', plus = source_[end] == '+';
        size_t next = end + (minus || plus ? 3 : 2);
        if (minus) {
            std::string_view rest = source_.substr(next);
            return next + (rest.size() - strip(rest, true, false).size());
        }
        if (trim && !plus && next < source_.size() && source_[next] == '\n') ++next;
        return next;
    }

    void comment(size_t inside) {
        size_t close = source_.find("#}", inside);
        if (close == source_.npos) syntax_error(line_, "a comment is not closed: '#}' is missing");
        if (close > inside && (source_[close - 1] == '-' || source_[close - 1] == '+')) --close;
        advance(after_end(close, true));
    }

    size_t skip_space(size_t at) const {
        std::string_view rest = source_.substr(at);
        return at + (rest.size() - strip(rest, true, false).size());
    }

    /// Whether a tag's inside is `word` and its end; gives where the end starts.
    bool is_tag(size_t inside, std::string_view word, size_t& end) const {
        size_t at = skip_space(inside);
        if (source_.substr(at, word.size()) != word) return false;
        at = skip_space(at + word.size());
        end = at;
        if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
        return source_.substr(at, 2) == "%}";
    }

    bool raw_begins(size_t inside) { return is_tag(inside, "raw", raw_end_); }

    void raw() {
        advance(after_end(raw_end_, false));
        int start_line = line_;
        for (size_t i = at_; (i = source_.find("{%", i)) != source_.npos; ++i) {
            size_t inside = i + 2, end = 0;
            char sign = inside < source_.size() ? source_[inside] : '\0';
            if (sign == '-' || sign == '+') ++inside;
            if (!is_tag(inside, "endraw", end)) continue;
            std::string_view text = source_.substr(at_, i - at_);
            if (sign == '-') {
                text = strip(text, false, true);
            } else if (sign != '+') {
                text = without_indent(text);
            }
            if (!text.empty()) put(Token::Type::text, text);
            advance(after_end(end, true));
            return;
        }
        syntax_error(start_line, "{% raw %} without {% endraw %}");
    }

    /// The tokens up to the tag's end.
    void expression(bool block) {
        int open = 0;
        int start_line = line_;
        while (true) {
            advance(skip_space(at_));
            if (at_ >= source_.size()) {
                syntax_error(start_line,
                             block ? "a tag is not closed: '%}' is missing" : "a tag is not closed: '}}' is missing");
            }
            if (open == 0) {
                size_t end = at_;
                if (source_[end] == '-' || (block && source_[end] == '+')) ++end;
                if (source_.substr(end, 2) == (block ? "%}" : "}}")) {
                    put(block ? Token::Type::block_end : Token::Type::print_end, source_.substr(at_, 2));
                    advance(after_end(at_, block));
                    return;
                }
            }
            char c = source_[at_];
            if (is_name_start(c)) {
                size_t end = at_;
                while (end < source_.size() && is_name_part(source_[end])) ++end;
                put(Token::Type::name, source_.substr(at_, end - at_));
                advance(end);
            } else if (is_digit(c)) {
                number();
            } else if (c == '"' || c == '\'') {
                quoted();
            } else {
                symbol(open);
            }
        }
    }

    void symbol(int& open) {
        static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
        std::string_view two = source_.substr(at_, 2);
        for (std::string_view known : kTwo) {
            if (two != known) continue;
            put(Token::Type::symbol, two);
            return advance(at_ + 2);
        }
        char c = source_[at_];
        if (std::string_view("+-/*%~[](){}><=.:|,").find(c) == std::string_view::npos) {
            syntax_error(line_, std::string("unexpected character '") + c + "'");
        }
        if (c == '(' || c == '[' || c == '{') ++open;
        if ((c == ')' || c == ']' || c == '}') && --open < 0) {
            syntax_error(line_, std::string("unexpected '") + c + "'");
        }
        put(Token::Type::symbol, source_.substr(at_, 1));
        advance(at_ + 1);
    }

    void number() {
        // After a dot only digits count: a.0.1 is two steps.
        bool after_dot = !tokens_.empty() && tokens_.back().is_symbol(".");
        std::string digits;
        size_t i = at_;
        auto take_digits = [&] {
            while (i < source_.size() && (is_digit(source_[i]) ||
                                          (source_[i] == '_' && i + 1 < source_.size() && is_digit(source_[i + 1])))) {
                if (source_[i] != '_') digits += source_[i];
                ++i;
            }
        };
        if (source_[i] == '0' && i + 2 < source_.size() && !after_dot) {
            char mark = static_cast<char>(source_[i + 1] | 0x20);
            int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
            if (base && source_[i + 2] != '-') {
                const char* start = source_.data() + i + 2;
                int64_t value = 0;
                auto read = std::from_chars(start, source_.data() + source_.size(), value, base);
                if (read.ec != std::errc()) syntax_error(line_, "a number cannot be read");
                Token token{Token::Type::integer, line_, source_.substr(i, 1), value};
                tokens_.push_back(token);
                return advance(static_cast<size_t>(read.ptr - source_.data()));
            }
        }
        take_digits();
        bool is_real = false;
        if (!after_dot) {
            if (i + 1 < source_.size() && source_[i] == '.' && is_digit(source_[i + 1])) {
                is_real = true;
                digits += '.';
                ++i;
                take_digits();
            }
            size_t e = i;
            if (e < source_.size() && (source_[e] | 0x20) == 'e') {
                ++e;
                if (e < source_.size() && (source_[e] == '+' || source_[e] == '-')) ++e;
                if (e < source_.size() && is_digit(source_[e])) {
                    is_real = true;
                    digits += source_.substr(i, e - i);
                    i = e;
                    take_digits();
                }
            }
        }
        Token token{Token::Type::integer, line_, source_.substr(at_, i - at_)};
        if (is_real) {
            token.type = Token::Type::real;
            token.real = std::strtod(digits.c_str(), nullptr);
        } else if (std::from_chars(digits.data(), digits.data() + digits.size(), token.integer).ec != std::errc()) {
            token.type = Token::Type::big_integer;
            size_t zeros = std::min(digits.find_first_not_of('0'), digits.size());
            token.text = arena_.copy(std::string_view(digits).substr(zeros));
        }
        tokens_.push_back(token);
        advance(i);
    }

    void quoted() {
        char quote = source_[at_];
        size_t end = at_ + 1;
        bool escapes = false;
        while (end < source_.size() && source_[end] != quote) {
            if (source_[end] == '\\') {
                escapes = true;
                ++end;
            }
            ++end;
        }
        if (end >= source_.size()) syntax_error(line_, "a string is not closed");
        std::string_view text = source_.substr(at_ + 1, end - at_ - 1);
        put(Token::Type::string, escapes ? arena_.copy(unescape(text)) : text);
        advance(end + 1);
    }

    std::string unescape(std::string_view text) {
        std::string out;
        for (size_t i = 0; i < text.size(); ++i) {
            if (text[i] != '\\' || i + 1 >= text.size()) {
                out += text[i];
                continue;
            }
            char c = text[++i];
            switch (c) {
                case 'n': out += '\n'; break;
                case 't': out += '\t'; break;
                case 'r': out += '\r'; break;
                case 'a': out += '\a'; break;
                case 'b': out += '\b'; break;
                case 'f': out += '\f'; break;
                case 'v': out += '\v'; break;
                case '\\':
                case '\'':
                case '"': out += c; break;
                case '\n': break;  // a line that goes on
                case 'x': append_utf8(out, hex(text, i, 2)); break;
                case 'u': append_utf8(out, hex(text, i, 4)); break;
                case 'U': append_utf8(out, hex(text, i, 8)); break;
                default:
                    if (c >= '0' && c <= '7') {
                        uint32_t value = 0;
                        size_t digits = 0;
                        for (; digits < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++digits, ++i) {
                            value = value * 8 + static_cast<uint32_t>(text[i] - '0');
                        }
                        --i;
                        append_utf8(out, value);
                    } else {  // no escape: both characters stay
                        out += '\\';
                        out += c;
                    }
            }
        }
        return out;
    }

    uint32_t hex(std::string_view text, size_t& i, size_t digits) {
        uint32_t value = 0;
        const char* start = text.data() + i + 1;
        if (text.size() - i - 1 < digits || std::from_chars(start, start + digits, value, 16).ptr != start + digits) {
            syntax_error(line_, "an escape in a string has too few digits");
        }
        i += digits;
        return value;
    }

    std::string_view source_;
    Arena& arena_;
    std::vector<Token> tokens_;
    size_t at_ = 0;
    size_t raw_end_ = 0;
    int line_ = 1;
    bool line_start_ = true;  // what was read ends with a line's end
};

}  // namespace

void syntax_error(int line, const std::string& message) {
    throw Stop{"template_syntax", "line " + std::to_string(line) + ": " + message};
}

std::vector<Token> tokenize(std::string_view source, Arena& arena) {
    return Lexer(source, arena).run();
}

}  // namespace strata::jinja
