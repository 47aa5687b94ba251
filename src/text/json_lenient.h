// JSON as models write it: what strict JSON refuses but everybody can read. docs/chat-formats.md, "Lenient reading".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/json.h"

namespace strata {

/// Reads one value. Strict JSON is tried first; then Python's words (True, False, None), single quotes, keys without
/// quotes, raw control characters in strings, trailing commas, tuples, missing closing brackets at the end, and numbers
/// with a plus or a bare point are accepted, too. Nothing where text follows the value or no value can be read.
std::optional<Json> read_lenient_json(std::string_view text);

/// Reads values out of a longer text, piece by piece. Positions are bytes of the text.
class LenientReader {
  public:
    explicit LenientReader(std::string_view text) : text_(text) {}

    /// Whether a quote at the position before `after` ends its string. Unset: every quote that is not escaped does.
    std::function<bool(std::string_view after, bool is_key)> ends_string;
    bool may_lack_brackets = false;  // at the end of the text

    size_t at = 0;

    std::optional<Json> value(int depth = 0);
    void skip_space();
    bool accept(char c);  // after white space
    bool ended() const { return at >= text_.size(); }
    char peek() const { return at < text_.size() ? text_[at] : '\0'; }
    std::string_view rest() const { return text_.substr(at); }
    /// Letters, digits, underscores and what else `more` lists; may be empty.
    std::string_view word(std::string_view more = {});

  private:
    std::optional<Json> container(char close, int depth);
    std::optional<Json> object(int depth);
    std::optional<std::string> string(bool is_key);
    std::optional<Json> number();

    std::string_view text_;
};

}  // namespace strata
