// Made-up vocabularies of real size: bytes, special tokens at their real ids, and merges of letters that stand for the
// rest, so that any text becomes tokens (about three letters each) and comes back. Source: specs page tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/writer.h"

namespace strata::synth {

enum class TokenType : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct FixedToken {
    uint32_t id;
    std::string_view text;
    TokenType type;
};

/// A family's tokenizer.
struct VocabularySpec {
    std::string_view model;  // "gpt2" or "gemma4"
    std::string_view pre;    // split rule; empty: the key is left out
    uint32_t size = 0;
    uint32_t merges = 0;
    std::vector<FixedToken> fixed;
    int64_t bos = -1, eos = -1, eot = -1, eom = -1, pad = -1, unknown = -1, mask = -1;  // -1: no such key
    bool add_bos = false;
    std::string_view chat_template;
};

struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    std::vector<std::string> merges;
};
Vocabulary make_vocabulary(const VocabularySpec& spec);

/// Writes every tokenizer key.
void add_tokenizer(gguf::KeyList& keys, const VocabularySpec& spec);

// The families (vocabularies.cpp).
const VocabularySpec& qwen_vocabulary();
const VocabularySpec& gemma_vocabulary();
const VocabularySpec& lfm_vocabulary(bool large);  // large: LFM2.5's
const VocabularySpec& kolibri_vocabulary();
const VocabularySpec& flint_vocabulary();
const VocabularySpec& deepseek_vocabulary();
const VocabularySpec& glm_vocabulary();

}  // namespace strata::synth
