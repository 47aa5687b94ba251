// Text to token ids and back: byte-level BPE (`gpt2`) and BPE on characters with byte tokens (`gemma4`), as GGUF files
// describe them. docs/tokenizers.md has the rules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata {

namespace gguf {
class Metadata;
}
struct TokenizerParts;

/// What an id is for, as `tokenizer.ggml.token_type` numbers it.
enum class TokenType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// The keys `tokenizer.ggml.*` of a model file that make a tokenizer. Views point into the file and need to live only
/// while the tokenizer is built.
struct Vocabulary {
    std::string source;                    // the file's path, for messages
    std::string model;                     // `gpt2` or `gemma4`
    std::string pre;                       // name of the split rule; not used by `gemma4`
    std::vector<std::string_view> tokens;  // [ids], as stored
    std::vector<int32_t> types;            // [ids] or empty (all normal)
    std::vector<std::string_view> merges;  // in order of rank
    std::optional<int64_t> bos, eos, eot, eom, unknown, padding;
    std::optional<int64_t> fim_pad, fim_repository, fim_separator;
    std::vector<int64_t> more_ends;   // `eos_token_ids`
    std::vector<int64_t> suppressed;  // `suppress_tokens`
    std::optional<bool> add_bos, add_eos;
    bool add_space_prefix = false;
};

/// Reads those keys. Refuses missing and wrong ones.
Result<Vocabulary> read_vocabulary(const gguf::Metadata& file);

enum class TokenizerKind : uint8_t { byte_level_bpe, gemma4 };

/// Whether encode() puts BOS in front and EOS behind (where the model has them and adds them).
enum class AddSpecial : uint8_t {
    none,
    once,    // not where the text itself already begins (ends) with it
    always,  // even then
};

/// What encode() makes of bytes that are not UTF-8.
enum class InvalidUtf8 : uint8_t {
    replace,  // each becomes U+FFFD, as the models were trained; decoding gives U+FFFD
    keep,     // each is kept as its byte token; decoding gives the bytes back
};

struct EncodeOptions {
    bool parse_special = true;  // control tokens spelled in the text become their ids; user-defined ones always do
    AddSpecial add_special = AddSpecial::none;
    InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
};

/// A model's tokenizer. It owns all it needs (the file may be closed), never changes, and is safe to use from several
/// threads at once.
class Tokenizer {
  public:
    /// Builds it from metadata. Refuses (ErrorKind::file) kinds and split rules that it does not know and vocabularies
    /// that cannot work; what it could repair is in warnings(). `force_pre` replaces the file's split rule.
    static Result<Tokenizer> make(const Vocabulary& vocabulary, std::string_view force_pre = {});

    /// The same from an open model file, or from its keys alone.
    static Result<Tokenizer> load(const gguf::Metadata& file, std::string_view force_pre = {});

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // --- text to ids ---

    /// Ids of any bytes. Linear in the text's length (n log n in that of a piece that no rule can cut).
    std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

    /// The same, added to `ids`, whose capacity is used.
    void encode(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const;

    /// Ids of a prompt that the model is to continue, chat or raw: control tokens are recognised, and it begins with
    /// exactly one BOS where the model wants one.
    std::vector<int32_t> encode_prompt(std::string_view text) const {
        return encode(text, {.parse_special = true, .add_special = AddSpecial::once});
    }

    // --- ids to text ---

    /// The bytes of an id: any part of a character, or several. Special tokens (control, unknown, ends) have none
    /// unless shown; unused ids and ids outside the vocabulary never have any. The view lives as long as the tokenizer.
    std::string_view piece(int32_t id, bool show_special = false) const;

    /// The pieces joined. Bytes, not necessarily UTF-8: see Detokenizer (detokenizer.h) for text.
    std::string decode(std::span<const int32_t> ids, bool show_special = false) const;

    // --- what it is ---

    TokenizerKind kind() const;
    std::string_view kind_name() const;   // `gpt2` or `gemma4`, as the file says
    std::string_view split_rule() const;  // the name in force; empty for `gemma4`
    int32_t vocab_size() const;           // the number of logits

    std::optional<int32_t> bos() const;
    std::optional<int32_t> eos() const;
    std::optional<int32_t> padding() const;
    std::optional<int32_t> unknown() const;
    bool adds_bos() const;
    bool adds_eos() const;
    std::string_view bos_text() const;  // what templates print as bos_token; empty when there is none
    std::string_view eos_text() const;

    bool is_end_of_generation(int32_t id) const;
    const std::vector<int32_t>& end_of_generation() const;  // ascending
    const std::vector<int32_t>& suppressed() const;         // ids never to be sampled, ascending

    /// The id with this text: the stored string of a special token or, failing that, of any other (byte-level tokens:
    /// the bytes they stand for).
    std::optional<int32_t> token_id(std::string_view text) const;

    /// The type in force: ids that end a reply count as control whatever the file says. Ids outside are unused.
    TokenType type(int32_t id) const;

    /// What was odd about the file, a sentence each, for the log.
    const std::vector<std::string>& warnings() const;

  private:
    explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
    std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace strata
