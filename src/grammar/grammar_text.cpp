#include "grammar/grammar_text.h"

#include <charconv>

#include "base/numbers.h"

namespace strata {
namespace {

constexpr std::string_view kVersion = "v2:";

void append(std::string& text, int64_t value) {
    char digits[24];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text) {}

    Result<Grammar> run() {
        if (!text_.starts_with(kVersion)) return wrong();
        at_ = kVersion.size();
        int32_t root = 0;
        if (!number(root) || !accept(':')) return wrong();
        // Rules and nodes may be named before they come: their numbers are known from the separators.
        int32_t rules = 1;
        std::vector<int32_t> nodes(1, 1);
        for (char c : text_.substr(at_)) {
            if (c == ';') ++nodes.back();
            if (c == '|') ++rules, nodes.push_back(1);
        }
        if (root >= rules) return wrong();
        for (int32_t i = 0; i < rules; ++i) builder_.rule("rule " + std::to_string(i));
        for (int32_t rule = 0; rule < rules; ++rule) {
            if (rule > 0 && !accept('|')) return wrong();
            const int32_t count = nodes[static_cast<size_t>(rule)];
            const State first = builder_.state();
            for (int32_t i = 1; i < count; ++i) builder_.state();
            const State end = builder_.state();
            if (builder_.too_large()) break;  // build() says so
            builder_.set_rule(rule, first, end);
            for (int32_t i = 0; i < count; ++i) {
                if (i > 0 && !accept(';')) return wrong();
                if (!node(first, i, count, end, rules)) return wrong();
            }
        }
        if (!builder_.too_large() && at_ < text_.size()) return wrong();
        return builder_.build(root);
    }

  private:
    using State = GrammarBuilder::State;

    Error wrong() const { return usage_error("the grammar's text is damaged at byte " + std::to_string(at_)); }

    bool accept(char c) {
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    bool number(int32_t& value) {
        const auto read = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (read.ec != std::errc() || value < 0) return false;
        at_ = static_cast<size_t>(read.ptr - text_.data());
        return true;
    }

    bool node(State first, int32_t index, int32_t count, State end, int32_t rules) {
        const State here = first + index;
        if (accept('!')) builder_.link(here, end);
        int32_t other = 0;
        if (accept('~')) {
            int32_t bytes = 0;
            if (!number(other) || other >= count || !accept('.') || !number(bytes) || !accept('~')) return false;
            builder_.looks_like(here, first + other, bytes);
        }
        const auto to = [&](State& state) {
            if (!accept('>') || !number(other) || other >= count) return false;
            state = first + other;
            return true;
        };
        for (bool more = at_ < text_.size() && text_[at_] != ';' && text_[at_] != '|'; more; more = accept(',')) {
            State state = 0;
            if (accept('@')) {
                int32_t rule = 0;
                if (!number(rule) || rule >= rules || !to(state)) return false;
                builder_.call(here, rule, state);
                continue;
            }
            int32_t low = 0, high = 0;
            if (!number(low)) return false;
            high = low;
            if (accept('-') && !number(high)) return false;
            if (low > high || high > 255 || !to(state)) return false;
            builder_.byte(here, static_cast<uint8_t>(low), static_cast<uint8_t>(high), state);
        }
        return true;
    }

    std::string_view text_;
    size_t at_ = 0;
    GrammarBuilder builder_;
};

}  // namespace

std::string grammar_text(const Grammar& grammar) {
    std::string text(kVersion);
    append(text, grammar.root());
    text += ':';
    for (int32_t rule = 0; rule < grammar.rules(); ++rule) {
        if (rule > 0) text += '|';
        const Grammar::Node first = grammar.start_of(rule);
        const Grammar::Node last =
            rule + 1 < grammar.rules() ? grammar.start_of(rule + 1) : static_cast<Grammar::Node>(grammar.nodes());
        for (Grammar::Node node = first; node < last; ++node) {
            if (node > first) text += ';';
            if (grammar.is_final(node)) text += '!';
            if (grammar.looks_like(node) != node) {
                text += '~';
                append(text, grammar.looks_like(node) - first);
                text += '.';
                append(text, grammar.like_bytes(node));
                text += '~';
            }
            bool comma = false;
            const auto edge = [&](auto write, Grammar::Node to) {
                if (comma) text += ',';
                comma = true;
                write();
                text += '>';
                append(text, to - first);
            };
            for (int low = 0; low < 256;) {
                const Grammar::Node to = grammar.next(node, static_cast<uint8_t>(low));
                int high = low;
                while (high < 255 && grammar.next(node, static_cast<uint8_t>(high + 1)) == to) ++high;
                if (to != Grammar::none) {
                    edge(
                        [&] {
                            append(text, low);
                            if (high > low) text += '-', append(text, high);
                        },
                        to);
                }
                low = high + 1;
            }
            for (const Grammar::Call& call : grammar.calls(node))
                edge([&] { text += '@', append(text, call.rule); }, call.next);
        }
    }
    return text;
}

Result<Grammar> parse_grammar_text(std::string_view text) {
    return Reader(text).run();
}

}  // namespace strata
