// A tokenizer's keys in a GGUF file.
#include <cstdint>

#include "gguf/metadata.h"
#include "text/tokenizer.h"

namespace strata {
namespace {

constexpr int64_t lowest = INT64_MIN, highest = INT64_MAX;  // ids are checked against the vocabulary later

Result<std::vector<int64_t>> ints(const gguf::Metadata& file, const char* name) {
    STRATA_TRY_ASSIGN(auto found, file.find_ints(name, lowest, highest));
    return found ? found->to_vector() : std::vector<int64_t>();
}

Result<std::optional<int64_t>> id(const gguf::Metadata& file, const char* name) {
    return file.find_int(name, lowest, highest);
}

}  // namespace

Result<Vocabulary> read_vocabulary(const gguf::Metadata& file) {
    Vocabulary vocabulary;
    vocabulary.source = file.file_name();
    STRATA_TRY_ASSIGN(vocabulary.model, file.get_string("tokenizer.ggml.model"));
    STRATA_TRY_ASSIGN(auto pre, file.find_string("tokenizer.ggml.pre"));
    if (pre) vocabulary.pre = *pre;
    STRATA_TRY_ASSIGN(vocabulary.tokens, file.get_strings("tokenizer.ggml.tokens"));
    STRATA_TRY_ASSIGN(vocabulary.merges, file.get_strings("tokenizer.ggml.merges"));
    STRATA_TRY_ASSIGN(auto types, file.find_ints("tokenizer.ggml.token_type", INT32_MIN, INT32_MAX));
    if (types) {
        vocabulary.types.reserve(types->size());
        for (uint64_t i = 0; i < types->size(); ++i) vocabulary.types.push_back(static_cast<int32_t>((*types)[i]));
    }
    STRATA_TRY_ASSIGN(vocabulary.bos, id(file, "tokenizer.ggml.bos_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.eos, id(file, "tokenizer.ggml.eos_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.eot, id(file, "tokenizer.ggml.eot_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.eom, id(file, "tokenizer.ggml.eom_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.unknown, id(file, "tokenizer.ggml.unknown_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.padding, id(file, "tokenizer.ggml.padding_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.fim_pad, id(file, "tokenizer.ggml.fim_pad_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.fim_repository, id(file, "tokenizer.ggml.fim_rep_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.fim_separator, id(file, "tokenizer.ggml.fim_sep_token_id"));
    STRATA_TRY_ASSIGN(vocabulary.more_ends, ints(file, "tokenizer.ggml.eos_token_ids"));
    STRATA_TRY_ASSIGN(vocabulary.suppressed, ints(file, "tokenizer.ggml.suppress_tokens"));
    STRATA_TRY_ASSIGN(vocabulary.add_bos, file.find_bool("tokenizer.ggml.add_bos_token"));
    STRATA_TRY_ASSIGN(vocabulary.add_eos, file.find_bool("tokenizer.ggml.add_eos_token"));
    STRATA_TRY_ASSIGN(auto add_space_prefix, file.find_bool("tokenizer.ggml.add_space_prefix"));
    vocabulary.add_space_prefix = add_space_prefix.value_or(false);
    return vocabulary;
}

Result<Tokenizer> Tokenizer::load(const gguf::Metadata& file, std::string_view force_pre) {
    STRATA_TRY_ASSIGN(Vocabulary vocabulary, read_vocabulary(file));
    return make(vocabulary, force_pre);
}

}  // namespace strata
