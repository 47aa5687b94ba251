// JSON as the programs of people need it: key order is kept, 1 and 1.0 stay different, integers never lose digits, and
// every reading has limits. Templates print what was sent, so what was sent must survive.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata {

/// A JSON value with its keys in the order they came in. Write it with json_text(), not dump(): dump() throws on text
/// that is not UTF-8 and does not know the big integers below.
using Json = nlohmann::ordered_json;

/// Reads one JSON text. Linear in its length; a key that comes twice keeps its first place and its last value. Integers
/// beyond 64 bits become big integers. Deeper than max_depth is refused.
Result<Json> parse_json(std::string_view text, int max_depth = 128);

/// Integers beyond 64 bits are kept as their decimal text (a Json binary value of a subtype of its own).
Json big_integer(std::string_view digits);
bool is_big_integer(const Json& value);
std::string_view big_integer_digits(const Json& value);  // only where is_big_integer()

/// How JSON is written. The default is the compact form for clients.
struct JsonStyle {
    std::string_view item_separator = ",";  // with an indent: trailing white space is the caller's choice
    std::string_view key_separator = ":";
    int indent = -1;  // spaces a level; below 0: one line
    bool ascii = false;
    bool sort_keys = false;
};

/// The value as JSON text. Numbers print as Python prints them (1, 1.0, 1e+16); bytes that are not UTF-8 pass
/// unchanged.
std::string json_text(const Json& value, const JsonStyle& style = {});

/// The shortest text that reads back as the same double, in Python's layout: 1.0, 0.1, 1e+16, 1e-05, inf, nan.
std::string float_text(double value);

/// Appends text as a JSON string, quotes included.
void append_json_string(std::string& out, std::string_view text, bool ascii = false);

/// Appends the inside of a JSON string: escapes without the quotes around. Pieces appended one after another give the
/// same as the whole at once, as long as no UTF-8 sequence is cut.
void append_json_escaped(std::string& out, std::string_view text, bool ascii = false);

/// Lays out JSON text piece by piece: separators, new lines and indents are its own business, values the caller's.
class JsonWriter {
  public:
    JsonWriter(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

    void begin(char bracket) {
        out_ += bracket;
        ++depth_;
        first_ = true;
    }
    void end(char bracket) {
        --depth_;
        if (!first_) new_line();
        out_ += bracket;
        first_ = false;
    }
    void item() {
        if (!first_) out_ += style_.item_separator;
        first_ = false;
        new_line();
    }
    void key(std::string_view name) {
        item();
        append_json_string(out_, name, style_.ascii);
        out_ += style_.key_separator;
    }
    void string(std::string_view text) { append_json_string(out_, text, style_.ascii); }
    void raw(std::string_view text) { out_ += text; }
    const JsonStyle& style() const { return style_; }

  private:
    void new_line() {
        if (style_.indent < 0) return;
        out_ += '\n';
        out_.append(static_cast<size_t>(style_.indent) * static_cast<size_t>(depth_), ' ');
    }

    std::string& out_;
    JsonStyle style_;
    int depth_ = 0;
    bool first_ = true;
};

}  // namespace strata
