#include "text/schema_pattern.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "text/utf8.h"

namespace strata {
namespace {

using State = GrammarBuilder::State;

const CodePointRanges kDigits{{'0', '9'}};
const CodePointRanges kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePointRanges kSpace{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                             {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePointRanges kAny{{0, 0x10FFFF}};

class PatternParser {
  public:
    PatternParser(GrammarBuilder& builder, std::string_view text) : builder_(builder), text_(text) {}

    Result<State> run(State from) {
        State end = builder_.state();
        // Each alternative is anchored or not by itself: ^a|b$ is a at the start or b at the end.
        do {
            State at = from;
            if (peek() == '^') {
                ++at_;
            } else {
                at = any_text(from);
            }
            STRATA_TRY_ASSIGN(at, sequence(at, 0));
            if (peek() == '$' && (at_ + 1 == text_.size() || peek(1) == '|')) {
                ++at_;
            } else {
                at = any_text(at);
            }
            builder_.link(at, end);
        } while (accept('|'));
        if (at_ < text_.size()) return error("an unmatched ')'");
        return end;
    }

  private:
    static Error error(const std::string& what) { return failure("in 'pattern', " + what + " is not supported"); }
    char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

    State any_text(State from) {
        State loop = builder_.state();
        builder_.link(from, loop);
        add_json_character(builder_, loop, kAny, loop);
        return loop;
    }

    bool accept(char c) {
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    Result<State> alternatives(State from, int depth) {
        if (depth > 50) return error("such deep nesting");
        State end = builder_.state();
        do {
            State at = builder_.state();
            builder_.link(from, at);
            STRATA_TRY_ASSIGN(at, sequence(at, depth));
            builder_.link(at, end);
        } while (accept('|'));
        return end;
    }

    Result<State> sequence(State at, int depth) {
        while (at_ < text_.size() && peek() != '|' && peek() != ')') {
            bool last = peek() == '$' && depth == 0 && (at_ + 1 == text_.size() || peek(1) == '|');
            if (last) break;
            STRATA_TRY_ASSIGN(at, repeated(at, depth));
        }
        return at;
    }

    std::optional<int> number() {
        int value = 0;
        auto read = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (read.ec != std::errc() || value < 0 || value > 10000) return std::nullopt;
        at_ = static_cast<size_t>(read.ptr - text_.data());
        return value;
    }

    Result<State> repeated(State from, int depth) {
        size_t item_at = at_;
        State first_start = builder_.state();
        STRATA_TRY_ASSIGN(State first_end, item(first_start, depth));
        int low = 1, high = 1;
        char c = peek();
        if (c == '*' || c == '+' || c == '?') {
            ++at_;
            low = c == '+' ? 1 : 0;
            high = c == '?' ? 1 : -1;
        } else if (c == '{') {
            ++at_;
            auto count = number();
            if (!count) return error("'{' without a number");
            low = high = *count;
            if (peek() == ',') {
                ++at_;
                auto most = number();
                high = most ? *most : -1;
            }
            if (peek() != '}' || (high >= 0 && high < low)) return error("such a '{..}'");
            ++at_;
        }
        if (at_ != item_at && peek() == '?' && (low != 1 || high != 1)) ++at_;  // lazy: the same texts
        if (peek() == '+' && (low != 1 || high != 1)) return error("a possessive repetition");
        size_t end_at = at_;
        State end = builder_.state(), at = from;
        if (high == 0) return from;
        int copies = high < 0 ? std::max(low, 1) : high;
        for (int i = 0; i < copies; ++i) {
            if (builder_.too_large()) return failure("the pattern grows too large");
            State start = first_start, stop = first_end;
            if (i > 0) {
                at_ = item_at;
                start = builder_.state();
                STRATA_TRY_ASSIGN(stop, item(start, depth));
                at_ = end_at;
            }
            if (i >= low) builder_.link(at, end);
            builder_.link(at, start);
            if (high < 0 && i == copies - 1) {
                State loop = builder_.state();
                builder_.link(stop, loop);
                builder_.link(loop, start);
                stop = loop;
            }
            at = stop;
        }
        builder_.link(at, end);
        return end;
    }

    Result<State> item(State from, int depth) {
        char c = peek();
        if (c == '(') {
            ++at_;
            if (text_.substr(at_).starts_with("?:")) {
                at_ += 2;
            } else if (peek() == '?' && peek(1) == '<' && peek(2) != '=' && peek(2) != '!') {  // a named group
                size_t close = text_.find('>', at_);
                if (close == text_.npos) return error("an open group");
                at_ = close + 1;
            } else if (peek() == '?') {
                return error("look-around '(" + std::string(text_.substr(at_, 2)) + "'");
            }
            STRATA_TRY_ASSIGN(State end, alternatives(from, depth + 1));
            if (peek() != ')' || at_ >= text_.size()) return error("an open group");
            ++at_;
            return end;
        }
        if (c == '^' || c == '$') return error(std::string("'") + c + "' inside of the pattern");
        if (c == '*' || c == '+' || c == '?' || c == '{')
            return error(std::string("'") + c + "' without something to repeat");
        CodePointRanges ranges;
        if (c == '[') {
            STRATA_TRY_ASSIGN(ranges, char_class());
        } else if (c == '.') {
            ++at_;
            ranges = complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
        } else {
            STRATA_TRY_ASSIGN(ranges, unit());
        }
        State to = builder_.state();
        add_json_character(builder_, from, ranges, to);
        return to;
    }

    /// A character or an escape, which may stand for a class.
    Result<CodePointRanges> unit() {
        if (at_ >= text_.size()) return error("an end in the middle");
        if (peek() != '\\') {
            CodePoint point = decode_utf8(text_, at_);
            at_ += point.size;
            return CodePointRanges{{point.value, point.value}};
        }
        ++at_;
        char c = peek();
        ++at_;
        auto one = [](uint32_t value) { return CodePointRanges{{value, value}}; };
        switch (c) {
            case 'd': return kDigits;
            case 'D': return complement(kDigits);
            case 'w': return kWord;
            case 'W': return complement(kWord);
            case 's': return kSpace;
            case 'S': return complement(kSpace);
            case 'n': return one('\n');
            case 'r': return one('\r');
            case 't': return one('\t');
            case 'f': return one('\f');
            case 'v': return one('\v');
            case '0': return one(0);
            case 'x':
            case 'u': {
                size_t digits = c == 'x' ? 2 : 4;
                uint32_t value = 0;
                const char* start = text_.data() + std::min(at_, text_.size());
                if (at_ + digits > text_.size() ||
                    std::from_chars(start, start + digits, value, 16).ptr != start + digits) {
                    return error("such an escape");
                }
                at_ += digits;
                return one(value);
            }
            default:
                if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9') || c == '\0') {
                    return error(std::string("'\\") + c + "'");
                }
                return one(static_cast<unsigned char>(c));
        }
    }

    Result<CodePointRanges> char_class() {
        ++at_;  // [
        bool negated = peek() == '^';
        if (negated) ++at_;
        CodePointRanges all;
        for (bool first = true; peek() != ']' || first; first = false) {
            if (at_ >= text_.size()) return error("an open character class");
            if (first && peek() == ']') break;
            STRATA_TRY_ASSIGN(CodePointRanges low, unit());
            if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size() && low.size() == 1 &&
                low[0].first == low[0].second) {
                ++at_;
                STRATA_TRY_ASSIGN(CodePointRanges high, unit());
                if (high.size() != 1 || high[0].second < low[0].first)
                    return error("such a range in a character class");
                low[0].second = high[0].second;
            }
            all.insert(all.end(), low.begin(), low.end());
        }
        ++at_;
        return negated ? complement(std::move(all)) : all;
    }

    GrammarBuilder& builder_;
    std::string_view text_;
    size_t at_ = 0;
};

}  // namespace

void add_json_character(GrammarBuilder& builder, State from, const CodePointRanges& ranges, State to) {
    static const CodePointRanges kPlain{{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10FFFF}};
    builder.code_points(from, intersect(ranges, kPlain), to);
    auto has = [&](uint32_t value) {
        return std::any_of(ranges.begin(), ranges.end(),
                           [&](auto& range) { return range.first <= value && value <= range.second; });
    };
    constexpr std::pair<char, char> kEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\n', 'n'}, {'\r', 'r'},
                                                  {'\t', 't'}, {'\b', 'b'},  {'\f', 'f'}};
    State escaped = -1;
    for (auto [value, letter] : kEscapes) {
        if (!has(static_cast<uint32_t>(value))) continue;
        if (escaped < 0) {
            escaped = builder.state();
            builder.byte(from, '\\', '\\', escaped);
        }
        builder.byte(escaped, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), to);
    }
}

Result<State> add_pattern(GrammarBuilder& builder, State from, std::string_view pattern) {
    return PatternParser(builder, pattern).run(from);
}

}  // namespace strata
