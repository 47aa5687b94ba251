#include "cli/eval_check.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace strata::cli {
namespace {

constexpr size_t kStory = 150;  // bytes that a story has at least

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kWhite = " \t\r\n";
    const size_t from = text.find_first_not_of(kWhite);
    return from == text.npos ? std::string_view{} : text.substr(from, text.find_last_not_of(kWhite) + 1 - from);
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
bool in_word(char c) {
    return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z');
}
std::string lowered(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), lower);
    return out;
}

/// Whether the word is in the text with no letter or digit before or behind it.
bool has_word(std::string_view text, std::string_view word) {
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
        const size_t end = at + word.size();
        if ((at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]))) return true;
    }
    return false;
}

std::string_view without_stop(std::string_view text) {
    text = trimmed(text);
    return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
}

/// Whether the text ends with the value, and not with a part of a longer number or word that ends so.
bool ends_with(std::string_view text, std::string_view value) {
    text = without_stop(text);
    value = without_stop(value);
    if (value.empty() || !text.ends_with(value)) return false;
    if (text.size() == value.size()) return true;
    const char before = text[text.size() - value.size() - 1];
    return !in_word(before) && !(is_digit(value[0]) && (before == '-' || before == '.'));
}

bool is_json(std::string_view text, const Json& value) {
    for (const std::string_view fence : {"```json\n", "```\n"})
        if (text.starts_with(fence) && text.ends_with("\n```") && text.size() >= fence.size() + 4) {
            text = text.substr(fence.size(), text.size() - fence.size() - 4);
            break;
        }
    const auto json = parse_json(text);
    return json.ok() && nlohmann::json(*json) == nlohmann::json(value);  // whatever the order of keys
}

/// A value of a call as text, so that "5" from a file without types equals 5.
std::string value_text(const Json& value) {
    return value.is_string() ? value.get<std::string>() : json_text(value);
}

bool are_calls(const std::vector<Answer::Call>& calls, const Json& wanted) {
    if (calls.size() != wanted.size()) return false;
    for (size_t i = 0; i < calls.size(); ++i) {
        const auto arguments = parse_json(calls[i].arguments);
        const Json& want = wanted[i][1];
        if (!calls[i].complete || calls[i].name != wanted[i][0].get<std::string>() || !arguments.ok() ||
            !arguments->is_object() || arguments->size() != want.size())
            return false;
        for (const auto& [key, value] : want.items())
            if (!arguments->contains(key) || value_text((*arguments)[key]) != value_text(value)) return false;
    }
    return true;
}

bool is_call(const Json& call) {
    return call.is_array() && call.size() == 2 && call[0].is_string() && call[1].is_object();
}

}  // namespace

Result<void> test_check(const Json& check) {
    const Error wrong{ErrorKind::file, "\"check\" must be an object with \"kind\" and a \"value\" of that kind",
                      "json"};
    if (!check.is_object() || !check.contains("kind") || !check["kind"].is_string() || !check.contains("value"))
        return wrong;
    const std::string kind = check["kind"];
    const Json& value = check["value"];
    const auto all = [&](auto&& is) { return value.is_array() && std::ranges::all_of(value, is); };
    const bool fits = kind == "exact" || kind == "ends"       ? value.is_string()
                      : kind == "contains" || kind == "story" ? all([](const Json& v) { return v.is_string(); })
                      : kind == "calls"                       ? all(is_call)
                                                              : kind == "json";
    if (!fits) return wrong;
    return {};
}

bool passes(const Json& check, const Answer& answer) {
    const std::string kind = check["kind"];
    const Json& value = check["value"];
    if (kind == "calls") return are_calls(answer.calls, value);
    if (!answer.calls.empty() && check.value("no_call", false)) return false;
    const std::string_view content = trimmed(answer.content);
    if (kind == "exact") return content == trimmed(value.get_ref<const std::string&>());
    if (kind == "ends") return ends_with(content, value.get_ref<const std::string&>());
    if (kind == "json") return is_json(content, value);
    if (kind == "story" && content.size() < kStory) return false;
    const std::string text = lowered(content);
    return std::ranges::all_of(value,
                               [&](const Json& v) { return has_word(text, lowered(v.get_ref<const std::string&>())); });
}

}  // namespace strata::cli
