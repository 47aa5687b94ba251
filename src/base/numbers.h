// Numbers from text: the whole text is the number, or there is none.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// A decimal integer in [lo, hi].
template <class Int>
std::optional<Int> parse_int(std::string_view text, Int lo = std::numeric_limits<Int>::min(),
                             Int hi = std::numeric_limits<Int>::max()) {
    Int value{};
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || at != end || value < lo || value > hi) return std::nullopt;
    return value;
}

/// A finite decimal number.
inline std::optional<double> parse_number(std::string_view text) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || at != end || !std::isfinite(value)) return std::nullopt;
    return value;
}

/// Token ids, not negative, separated by commas; nothing where one is no id or missing. The empty text is no list.
inline std::optional<std::vector<int32_t>> parse_ids(std::string_view text) {
    std::vector<int32_t> ids;
    while (true) {
        const size_t comma = text.find(',');
        const auto id = parse_int<int32_t>(text.substr(0, comma), 0);
        if (!id) return std::nullopt;
        ids.push_back(*id);
        if (comma == std::string_view::npos) return ids;
        text.remove_prefix(comma + 1);
    }
}

/// The shortest decimal text that reads back as the same value.
template <class Number>
std::string number_text(Number value) {
    char buffer[64];
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
    return error == std::errc{} ? std::string(buffer, end) : std::string("0");
}

}  // namespace strata
