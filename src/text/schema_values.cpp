#include "text/schema_values.h"

#include <algorithm>
#include <map>
#include <set>

#include "text/schema_pattern.h"
#include "text/utf8.h"

namespace strata {
namespace {

/// The character that follows in a name's JSON text; an escape counts as what it stands for.
uint32_t first_character(const std::string& text, size_t at) {
    if (text[at] == '\\' && at + 1 < text.size()) {
        switch (text[at + 1]) {
            case 'n': return '\n';
            case 'r': return '\r';
            case 't': return '\t';
            case 'b': return '\b';
            case 'f': return '\f';
            case 'u': return 0;  // a control character: nobody's key can begin with it unescaped
            default: return static_cast<unsigned char>(text[at + 1]);
        }
    }
    return decode_utf8(text, at).value;
}

}  // namespace

/// White space between tokens: nothing, a space, or a new line and an indentation.
JsonRules::State JsonRules::space(State from) {
    if (space_ < 0) {
        space_ = builder_.rule("white space");
        State start = builder_.state(), end = builder_.state();
        builder_.link(start, end);
        builder_.byte(start, ' ', ' ', end);
        State line = builder_.state();
        builder_.byte(start, '\n', '\n', line);
        for (int i = 0; i <= 32; ++i) {
            builder_.link(line, end);
            State next = builder_.state();
            builder_.byte(line, ' ', ' ', next);
            line = next;
        }
        builder_.set_rule(space_, start, end);
    }
    return builder_.call(from, space_);
}

/// Characters of a string, any number of them; escapes as JSON has them.
void JsonRules::characters(State from, State to) {
    add_json_character(builder_, from, {{0, 0x10FFFF}}, to);
    State escape = builder_.state(), hex = builder_.state();
    builder_.byte(from, '\\', '\\', escape);
    builder_.byte(escape, '/', '/', to);
    builder_.byte(escape, 'u', 'u', hex);
    for (int i = 0; i < 4; ++i) {
        State next = i == 3 ? to : builder_.state();
        builder_.byte(hex, '0', '9', next);
        builder_.byte(hex, 'a', 'f', next);
        builder_.byte(hex, 'A', 'F', next);
        hex = next;
    }
}

int32_t JsonRules::string() {
    if (string_ >= 0) return string_;
    string_ = builder_.rule("string");
    State start = builder_.state();
    State inside = builder_.literal(start, "\"");
    characters(inside, inside);
    builder_.set_rule(string_, start, builder_.literal(inside, "\""));
    return string_;
}

/// A string of `low` to `high` characters; high < 0: no limit.
int32_t JsonRules::counted_string(int64_t low, int64_t high) {
    int32_t rule = builder_.rule("string");
    State start = builder_.state(), end = builder_.state();
    State at = builder_.literal(start, "\"");
    const int64_t count = high < 0 ? low : high;
    // Before `low` characters, and from there on, places behave alike until the next limit, which is at least as many
    // bytes away as characters.
    struct Alike {
        State first = -1, states = 0;
    } bound, free;
    for (int64_t i = 0; i <= count; ++i) {
        const State begin = at;
        if (i >= low) builder_.byte(at, '"', '"', end);
        if (i == count) {
            if (high < 0) characters(at, at);
            break;
        }
        const State next = builder_.state();
        const auto inside = static_cast<State>(builder_.states());  // states from here on: inside of a character
        add_json_character(builder_, at, {{0, 0x10FFFF}}, next);
        Alike& alike = i < low ? bound : free;
        if (alike.first < 0) alike = {begin, inside};
        const auto bytes = static_cast<int>(std::min<int64_t>((i < low ? low : high) - i, Grammar::lookahead_bytes));
        if (begin != alike.first) builder_.looks_like(begin, alike.first, bytes);
        for (State state = inside; state < static_cast<State>(builder_.states()) && inside != alike.states; ++state)
            builder_.looks_like(state, alike.states + (state - inside), bytes);
        at = next;
    }
    builder_.set_rule(rule, start, end);
    return rule;
}

JsonRules::State JsonRules::digits(State from, int low, int high) {
    State end = builder_.state();
    for (int i = 0; i < high; ++i) {
        if (i >= low) builder_.link(from, end);
        State next = builder_.state();
        builder_.byte(from, '0', '9', next);
        from = next;
    }
    builder_.link(from, end);
    return end;
}

/// 0, or digits without a leading zero.
JsonRules::State JsonRules::natural(State from) {
    State end = builder_.state(), more = builder_.state();
    builder_.byte(from, '0', '0', end);
    builder_.byte(from, '1', '9', more);
    builder_.link(digits(more, 0, 18), end);
    return end;
}

int32_t JsonRules::integer() {
    if (integer_ >= 0) return integer_;
    integer_ = builder_.rule("integer");
    State start = builder_.state(), positive = builder_.state();
    builder_.link(start, positive);
    builder_.byte(start, '-', '-', positive);
    builder_.set_rule(integer_, start, natural(positive));
    return integer_;
}

int32_t JsonRules::number() {
    if (number_ >= 0) return number_;
    number_ = builder_.rule("number");
    State start = builder_.state(), positive = builder_.state(), end = builder_.state();
    builder_.link(start, positive);
    builder_.byte(start, '-', '-', positive);
    State whole = natural(positive), fraction = builder_.state(), exponent = builder_.state();
    builder_.link(whole, end);
    builder_.byte(whole, '.', '.', fraction);
    State real = digits(fraction, 1, 20);
    builder_.link(real, end);
    for (State from : {whole, real}) {
        builder_.byte(from, 'e', 'e', exponent);
        builder_.byte(from, 'E', 'E', exponent);
    }
    State sign = builder_.state();
    builder_.link(exponent, sign);
    builder_.byte(exponent, '+', '+', sign);
    builder_.byte(exponent, '-', '-', sign);
    builder_.link(digits(sign, 1, 2), end);  // any such number is a finite double
    builder_.set_rule(number_, start, end);
    return number_;
}

/// Decimal digits from low to high, which have the same number of them.
void JsonRules::digits_between(State from, std::string_view low, std::string_view high, State to) {
    if (low.empty()) return builder_.link(from, to);
    auto step = [&](char a, char b) {
        State next = builder_.state();
        builder_.byte(from, static_cast<uint8_t>(a), static_cast<uint8_t>(b), next);
        return next;
    };
    std::string zeros(low.size() - 1, '0'), nines(low.size() - 1, '9');
    char a = low[0], b = high[0];
    if (a == b) return digits_between(step(a, a), low.substr(1), high.substr(1), to);
    bool cut_low = low.substr(1) != zeros, cut_high = high.substr(1) != nines;
    if (cut_low) digits_between(step(a, a), low.substr(1), nines, to);
    if (cut_high) digits_between(step(b, b), zeros, high.substr(1), to);
    char first = static_cast<char>(a + (cut_low ? 1 : 0)), last = static_cast<char>(b - (cut_high ? 1 : 0));
    if (first <= last) {
        builder_.link(digits(step(first, last), static_cast<int>(low.size()) - 1, static_cast<int>(low.size()) - 1),
                      to);
    }
}

/// Integers from low to high, both at least 0.
void JsonRules::naturals_between(State from, uint64_t low, uint64_t high, State to) {
    std::string a = std::to_string(low), b = std::to_string(high);
    for (size_t size = a.size(); size <= b.size(); ++size) {
        std::string first = size == a.size() ? a : "1" + std::string(size - 1, '0');
        std::string last = size == b.size() ? b : std::string(size, '9');
        digits_between(from, first, last, to);
    }
}

int32_t JsonRules::integers_between(int64_t low, int64_t high) {
    int32_t rule = builder_.rule("integer");
    State start = builder_.state(), end = builder_.state();
    if (high >= 0) {
        naturals_between(start, static_cast<uint64_t>(std::max<int64_t>(low, 0)), static_cast<uint64_t>(high), end);
    }
    if (low < 0) {
        State minus = builder_.state();
        builder_.byte(start, '-', '-', minus);
        naturals_between(minus, static_cast<uint64_t>(-std::min<int64_t>(high, -1)), static_cast<uint64_t>(-low), end);
    }
    builder_.set_rule(rule, start, end);
    return rule;
}

/// Any JSON value; any_object_ comes with it.
int32_t JsonRules::any_value() {
    if (any_value_ >= 0) return any_value_;
    any_value_ = builder_.rule("value");
    any_object_ = builder_.rule("object");
    any_array_ = builder_.rule("array");
    State start = builder_.state(), end = builder_.state();
    for (int32_t rule : {string(), number(), any_object_, any_array_}) builder_.call(start, rule, end);
    for (const char* word : {"true", "false", "null"}) builder_.link(builder_.literal(start, word), end);
    builder_.set_rule(any_value_, start, end);

    State object = builder_.state(), object_end = builder_.state();
    State first = space(builder_.literal(object, "{")), next = builder_.state(), after = builder_.state();
    builder_.link(builder_.literal(first, "}"), object_end);
    builder_.link(first, next);
    State key = builder_.call(next, string());
    builder_.link(builder_.call(space(builder_.literal(key, ":")), any_value_), after);
    builder_.link(space(builder_.literal(after, ",")), next);
    builder_.link(builder_.literal(space(after), "}"), object_end);
    builder_.set_rule(any_object_, object, object_end);

    State array = builder_.state(), array_end = builder_.state();
    State items = space(builder_.literal(array, "[")), item = builder_.state(), behind = builder_.state();
    builder_.link(builder_.literal(items, "]"), array_end);
    builder_.link(items, item);
    builder_.call(item, any_value_, behind);
    builder_.link(space(builder_.literal(behind, ",")), item);
    builder_.link(builder_.literal(space(behind), "]"), array_end);
    builder_.set_rule(any_array_, array, array_end);
    return any_value_;
}

/// A JSON value as it stands, with white space where it may be.
JsonRules::State JsonRules::constant(State from, const Json& value) {
    if (value.is_object()) {
        State at = space(builder_.literal(from, "{"));
        bool first = true;
        for (const auto& [key, inner] : value.items()) {
            if (!first) at = space(builder_.literal(at, ","));
            first = false;
            at = constant(space(builder_.literal(at, json_text(Json(key)) + ":")), inner);
        }
        return builder_.literal(first ? at : space(at), "}");
    }
    if (value.is_array()) {
        State at = space(builder_.literal(from, "["));
        bool first = true;
        for (const Json& inner : value) {
            if (!first) at = space(builder_.literal(at, ","));
            first = false;
            at = constant(at, inner);
        }
        return builder_.literal(first ? at : space(at), "]");
    }
    return builder_.literal(from, json_text(value));
}

/// A key that is none of the names.
JsonRules::State JsonRules::other_key(State from, const std::vector<std::string>& names) {
    if (names.empty()) return builder_.call(from, string());
    std::set<std::string> texts;  // as JSON writes them, with the closing quote
    for (const std::string& name : names) texts.insert(json_text(Json(name)).substr(1));
    State inside = builder_.literal(from, "\""), end = builder_.state(), free = builder_.state();
    characters(free, free);
    builder_.byte(free, '"', '"', end);
    // Along the names byte by byte: whatever leaves them is free; a quote that completes one leads nowhere.
    std::map<std::string, State> places{{"", inside}};
    for (const std::string& text : texts) {
        for (size_t i = 1; i < text.size(); ++i) {
            std::string prefix = text.substr(0, i);
            if (places.contains(prefix)) continue;
            State place = builder_.state();
            places.emplace(prefix, place);
            auto byte = static_cast<uint8_t>(text[i - 1]);
            builder_.byte(places.at(text.substr(0, i - 1)), byte, byte, place);
        }
    }
    for (const auto& [prefix, place] : places) {
        // Only whole characters leave: inside of one, or of an escape, the names' own bytes go on.
        bool escape = false;
        for (char c : prefix) escape = !escape && c == '\\';
        bool inside_character = utf8_cut(prefix) > 0;
        if (escape || inside_character) continue;
        CodePointRanges others;
        std::set<uint32_t> taken;
        for (const std::string& text : texts) {
            if (text.starts_with(prefix) && text.size() > prefix.size() + 1)
                taken.insert(first_character(text, prefix.size()));
        }
        CodePointRanges used;
        for (uint32_t value : taken) used.emplace_back(value, value);
        add_json_character(builder_, place, complement(used), free);
        if (!texts.contains(prefix + "\"")) builder_.byte(place, '"', '"', end);
    }
    return end;
}

int32_t JsonRules::any_object() {
    any_value();
    return any_object_;
}

}  // namespace strata
