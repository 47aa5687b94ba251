// Python's view of text, as templates rely on it: its white space, its letter cases, its notation of strings.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::jinja {

/// Python's str.isspace for one code point.
bool is_space(uint32_t code_point);

/// Without white space, or without the code points of `set`, on the sides asked for. A part of the text.
std::string_view strip(std::string_view text, bool left = true, bool right = true);
std::string_view strip(std::string_view text, std::string_view set, bool left, bool right);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // the first letter upper, the rest lower
std::string title(std::string_view text);       // str.title: a letter after a non-letter upper, others lower

/// All code points pass the test and there is one: str.isdigit and so on.
bool is_all_digits(std::string_view text);
bool is_all_letters(std::string_view text);
bool is_all_space(std::string_view text);
bool is_all_alphanumeric(std::string_view text);
/// There is a cased letter and none of the other case: str.islower, str.isupper.
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);

/// str.split, rsplit, splitlines; parts of the text. limit < 0: none.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string_view> split_space(std::string_view text, int64_t limit);
std::vector<std::string_view> split_space_right(std::string_view text, int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

/// First place of a text at or after `from`, or npos. Linear in both lengths whatever they are.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t find_text_last(std::string_view text, std::string_view needle);
size_t count_text(std::string_view text, std::string_view needle);
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit, size_t max_size);

/// Code points [from, to) of the text; both already within its length.
std::string_view slice(std::string_view text, size_t from, size_t to);

/// Python's repr of a string.
void append_python_string(std::string& out, std::string_view text);

}  // namespace strata::jinja
