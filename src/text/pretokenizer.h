// Split rules: how text is cut into pieces that merging never joins. docs/tokenizers.md states each rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

enum class SplitRule : uint8_t { qwen2, qwen35, llama_bpe, deepseek_v3, deepseek_llm, gpt2, laguna };

/// What a name of `tokenizer.ggml.pre` stands for.
struct PreTokenizer {
    std::string_view name;
    SplitRule rule;
    bool ignore_merges = false;  // a piece that is a token as a whole becomes it without merging
    bool adds_bos = false;       // where the file does not say
    bool verified = true;        // false: the rule is a guess for this name
};

/// The rule of this name, or null.
const PreTokenizer* find_pre_tokenizer(std::string_view name);

/// Every name, for messages: "qwen35, qwen2, ...".
std::string pre_tokenizer_names();

/// Cuts a fragment of text and adds the end offset (in bytes) of every piece to `ends`; the last one is text.size().
/// `scratch` is working memory. Linear in the text's length. A byte that is not UTF-8 is a character of its own, of the
/// classes of U+FFFD.
void split(SplitRule rule, std::string_view text, std::vector<size_t>& ends, std::vector<size_t>& scratch);

/// A place at or after `from` where the text may be cut before splitting without changing any piece: before a letter at
/// the beginning of a line. The text's size where there is none (gpt-2 has none: its white space looks past newlines).
size_t certain_edge(SplitRule rule, std::string_view text, size_t from);

/// split() with memory of its own.
std::vector<size_t> split(SplitRule rule, std::string_view text);

}  // namespace strata
