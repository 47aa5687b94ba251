#include "text/grammar_gbnf.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "text/utf8.h"

namespace strata {
namespace {

class Parser {
  public:
    Parser(GrammarBuilder& builder, std::string_view text) : text_(text), builder_(builder) {}

    Result<int32_t> run() {
        int32_t root = rule_named("root");
        skip();
        while (at_ < text_.size()) {
            STRATA_TRY(rule());
            skip();
        }
        for (const auto& [name, known] : rules_) {
            if (!known.defined) {
                return Error{ErrorKind::failed,
                             name == "root"
                                 ? "the grammar has no rule 'root'"
                                 : "line " + std::to_string(known.line) + ": rule '" + name + "' is not defined",
                             "grammar"};
            }
        }
        return root;
    }

  private:
    using State = GrammarBuilder::State;
    struct Known {
        int32_t rule;
        int line;
        bool defined;
    };
    struct Piece {
        State start, end;
    };

    Error error(const std::string& message) const {
        return {ErrorKind::failed, "line " + std::to_string(line_) + ": " + message, "grammar"};
    }

    int32_t rule_named(const std::string& name) {
        auto [place, fresh] = rules_.try_emplace(name, Known{0, line_, false});
        if (fresh) place->second.rule = builder_.rule(name);
        return place->second.rule;
    }

    char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

    /// White space and comments.
    void skip() {
        while (at_ < text_.size()) {
            char c = text_[at_];
            if (c == '#') {
                while (at_ < text_.size() && text_[at_] != '\n') ++at_;
            } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
                line_ += c == '\n';
                ++at_;
            } else {
                return;
            }
        }
    }

    bool accept(char c) {
        skip();
        if (peek() != c) return false;
        ++at_;
        return true;
    }

    static bool is_name(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    }

    std::string name() {
        size_t start = at_;
        while (is_name(peek())) ++at_;
        return std::string(text_.substr(start, at_ - start));
    }

    /// Whether a name and ::= follow: the next rule.
    bool at_rule() const {
        size_t i = at_;
        while (i < text_.size() && is_name(text_[i])) ++i;
        if (i == at_) return false;
        while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t')) ++i;
        return text_.substr(i, 3) == "::=";
    }

    Result<void> rule() {
        std::string title = name();
        if (title.empty()) return error(std::string("expected the name of a rule but found '") + peek() + "'");
        skip();
        if (text_.substr(at_, 3) != "::=") return error("'::=' is missing behind '" + title + "'");
        at_ += 3;
        int32_t number = rule_named(title);
        Known& known = rules_.at(title);
        if (known.defined) return error("rule '" + title + "' is defined twice");
        known.defined = true;
        STRATA_TRY_ASSIGN(Piece body, alternatives(0));
        builder_.set_rule(number, body.start, body.end);
        return {};
    }

    Result<Piece> alternatives(int depth) {
        if (depth > 100) return error("groups are nested too deeply");
        Piece all{builder_.state(), builder_.state()};
        do {
            State at = builder_.state();
            builder_.link(all.start, at);
            while (true) {
                skip();
                char c = peek();
                if (c == '\0' || c == '|' || c == ')' || at_rule()) break;
                STRATA_TRY_ASSIGN(at, repeated(at, depth));
            }
            builder_.link(at, all.end);
        } while (accept('|'));
        return all;
    }

    /// One item and how often it comes.
    Result<State> repeated(State from, int depth) {
        size_t item_at = at_;
        int item_line = line_;
        STRATA_TRY_ASSIGN(Piece first, item(depth));
        long low = 1, high = 1;
        if (peek() == '*' || peek() == '+' || peek() == '?') {
            char sign = text_[at_++];
            low = sign == '+' ? 1 : 0;
            high = sign == '?' ? 1 : -1;
        } else if (peek() == '{') {
            ++at_;
            auto count = number();
            if (!count) return error("a number is missing in { }");
            low = high = *count;
            if (accept(',')) {
                skip();
                auto most = number();
                high = most ? *most : -1;
            }
            if (!accept('}')) return error("'}' is missing");
            if (high >= 0 && high < low) return error("the numbers in { } are the wrong way round");
        }
        size_t end_at = at_;
        int end_line = line_;
        // The item again for each time it may come: read once more from its source.
        auto again = [&]() -> Result<Piece> {
            at_ = item_at;
            line_ = item_line;
            auto piece = item(depth);
            at_ = end_at;
            line_ = end_line;
            return piece;
        };
        State at = from, end = builder_.state();
        long copies = high < 0 ? std::max(low, 1L) : high;
        if (copies == 0) return from;
        if (high < 0 && low == 0) {  // *: a loop around one copy
            State loop = builder_.state();
            builder_.link(at, loop);
            builder_.link(loop, first.start);
            builder_.link(first.end, loop);
            builder_.link(loop, end);
            return end;
        }
        for (long i = 0; i < copies; ++i) {
            if (builder_.too_large())
                return error("the grammar grows past " + std::to_string(GrammarBuilder::max_states) + " states");
            Piece piece = first;
            if (i > 0) {
                STRATA_TRY_ASSIGN(piece, again());
            }
            if (i >= low) builder_.link(at, end);
            builder_.link(at, piece.start);
            at = piece.end;
            if (high < 0 && i == copies - 1) builder_.link(piece.end, piece.start);  // and more of the last
        }
        builder_.link(at, end);
        return end;
    }

    std::optional<long> number() {
        long value = 0;
        auto read = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (read.ec != std::errc() || value < 0 || value > 100000) return std::nullopt;
        at_ = static_cast<size_t>(read.ptr - text_.data());
        return value;
    }

    Result<Piece> item(int depth) {
        char c = peek();
        if (c == '(') {
            ++at_;
            STRATA_TRY_ASSIGN(Piece group, alternatives(depth + 1));
            if (!accept(')')) return error("')' is missing");
            return group;
        }
        State start = builder_.state();
        if (c == '"') {
            ++at_;
            std::string bytes;
            while (peek() != '"') {
                if (at_ >= text_.size()) return error("a literal is not closed");
                STRATA_TRY_ASSIGN(std::string unit, unit_text());
                bytes += unit;
            }
            ++at_;
            return Piece{start, builder_.literal(start, bytes)};
        }
        if (c == '[') {
            STRATA_TRY_ASSIGN(CodePointRanges ranges, char_class());
            State end = builder_.state();
            builder_.code_points(start, ranges, end);
            return Piece{start, end};
        }
        if (c == '.') {
            ++at_;
            State end = builder_.state();
            builder_.code_points(start, {{0, 0x10FFFF}}, end);
            return Piece{start, end};
        }
        if (is_name(c)) {
            std::string called = name();
            return Piece{start, builder_.call(start, rule_named(called))};
        }
        return error(std::string("unexpected '") + c + "'");
    }

    /// One character of a literal or a class, escapes read.
    Result<uint32_t> unit() {
        if (peek() != '\\') {
            CodePoint point = decode_utf8(text_, at_);
            if (!point.valid) return error("the grammar is not valid UTF-8");
            line_ += point.value == '\n';
            at_ += point.size;
            return point.value;
        }
        ++at_;
        char c = peek();
        ++at_;
        switch (c) {
            case 'n': return '\n';
            case 'r': return '\r';
            case 't': return '\t';
            case 'x':
            case 'u':
            case 'U': {
                size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
                uint32_t value = 0;
                const char* start = text_.data() + std::min(at_, text_.size());
                if (at_ + digits > text_.size() ||
                    std::from_chars(start, start + digits, value, 16).ptr != start + digits || value > 0x10FFFF) {
                    return error("an escape has wrong digits");
                }
                at_ += digits;
                return value;
            }
            case '\\':
            case '"':
            case '[':
            case ']':
            case '-':
            case '^': return static_cast<uint32_t>(c);
            default: return error(std::string("there is no escape '\\") + c + "'");
        }
    }

    Result<std::string> unit_text() {
        STRATA_TRY_ASSIGN(uint32_t value, unit());
        std::string text;
        append_utf8(text, value);
        return text;
    }

    Result<CodePointRanges> char_class() {
        ++at_;  // [
        bool negated = peek() == '^';
        if (negated) ++at_;
        CodePointRanges ranges;
        while (peek() != ']') {
            if (at_ >= text_.size()) return error("a character class is not closed");
            STRATA_TRY_ASSIGN(uint32_t low, unit());
            uint32_t high = low;
            if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
                ++at_;
                STRATA_TRY_ASSIGN(high, unit());
                if (high < low) return error("a range in a character class is the wrong way round");
            }
            ranges.emplace_back(low, high);
        }
        ++at_;
        if (negated) ranges = complement(std::move(ranges));
        return ranges;
    }

    std::string_view text_;
    size_t at_ = 0;
    int line_ = 1;
    GrammarBuilder& builder_;
    std::unordered_map<std::string, Known> rules_;
};

}  // namespace

Result<int32_t> add_gbnf(GrammarBuilder& builder, std::string_view text) {
    return Parser(builder, text).run();
}

Result<Grammar> parse_gbnf(std::string_view text) {
    GrammarBuilder builder;
    STRATA_TRY_ASSIGN(int32_t root, add_gbnf(builder, text));
    auto grammar = builder.build(root);
    if (!grammar.ok())
        return Error{ErrorKind::failed, "the grammar cannot be used: " + grammar.error().message, "grammar"};
    return grammar;
}

}  // namespace strata
