// What a Tokenizer is made of; for its own files only.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/bpe.h"
#include "text/bpe_joints.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_memory.h"
#include "text/tokenizer_special.h"
#include "text/tokenizer_strings.h"

namespace strata {

/// The alphabet in which `gpt2` vocabularies show bytes: printable ones as the character of the same code point, the
/// other 68, in increasing order, as U+0100 to U+0143.
class ByteAlphabet {
  public:
    ByteAlphabet();
    uint32_t code_point(uint8_t byte) const { return code_points_[byte]; }
    int byte(uint32_t code_point) const { return code_point < 0x144 ? bytes_[code_point] : -1; }  // -1: none

    /// Adds text's bytes in the alphabet, as UTF-8.
    void show(std::string_view bytes, std::string& text) const;
    /// Adds the bytes that text shows; a character outside the alphabet is itself.
    void read(std::string_view text, std::string& bytes) const;

  private:
    uint32_t code_points_[256];
    int16_t bytes_[0x144];
};
const ByteAlphabet& byte_alphabet();

/// How `gemma4` vocabularies write a space (U+2581).
inline constexpr std::string_view shown_space = "\xE2\x96\x81";

/// `gemma4`: the symbols of single characters.
class CharacterSymbols {
  public:
    void set(uint32_t code_point, int32_t symbol) {
        if (bmp_.empty()) bmp_.assign(0x10000, -1);
        if (code_point < bmp_.size()) {
            bmp_[code_point] = symbol;
        } else {
            beyond_[code_point] = symbol;
        }
    }
    /// The symbol of a character, or -1.
    int32_t find(uint32_t code_point) const {
        if (code_point < bmp_.size()) return bmp_[code_point];
        const auto found = beyond_.find(code_point);
        return found == beyond_.end() ? -1 : found->second;
    }

  private:
    std::vector<int32_t> bmp_;
    std::unordered_map<uint32_t, int32_t> beyond_;
};

/// Pieces seen lately and their ids. Of fixed size: a new piece takes the place of an old one of the same hash.
class PieceCache {
  public:
    static constexpr size_t most_bytes = 30;
    static constexpr size_t most_ids = 8;
    struct alignas(64) Entry {
        uint8_t key = 0;  // the piece's bytes, and `part` for one that was cut from a longer piece; 0: free
        uint8_t ids = 0;
        char piece[most_bytes];
        int32_t id[most_ids];
    };
    static constexpr uint8_t part = 0x80;

    PieceCache();
    /// The place of a piece of 1 to most_bytes bytes; it holds that piece if holds() says so.
    Entry& at(std::string_view piece);
    static bool holds(const Entry& entry, std::string_view piece, uint8_t part_or_0) {
        return entry.key == (piece.size() | part_or_0) && std::memcmp(entry.piece, piece.data(), piece.size()) == 0;
    }

  private:
    static constexpr size_t entries = size_t{1} << 15;
    Table<Entry> entries_;
    uint64_t seed_;
};

/// Working memory of one encode().
struct Workspace {
    PieceCache cache;
    Merger merger;
    std::vector<Symbol> symbols;
    std::vector<size_t> ends, scratch;
    std::string line, shown;
};

/// Workspaces that no encode() uses at the moment. Thread-safe.
class WorkspacePool {
  public:
    std::unique_ptr<Workspace> take();
    void give_back(std::unique_ptr<Workspace> workspace);

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Workspace>> free_;
};

struct TokenizerParts {
    TokenizerKind kind = TokenizerKind::byte_level_bpe;
    PreTokenizer pre;  // gpt2 only
    TokenStrings strings;
    std::vector<TokenType> types;  // [ids]
    StringArena pieces;            // [ids], special tokens shown
    Joints joints;
    MergeTable merges;            // of ids; gemma4: also of characters that are no tokens, from vocab_size on
    int32_t byte_ids[256];        // the token of each byte
    CharacterSymbols characters;  // gemma4 only
    SpecialTokens specials;
    size_t longest_token = 0;  // bytes as stored

    std::optional<int32_t> bos, eos, padding, unknown;
    bool adds_bos = false;
    bool adds_eos = false;
    std::vector<int32_t> ends;  // end of generation, ascending
    std::vector<int32_t> suppressed;
    std::vector<std::string> warnings;

    mutable WorkspacePool workspaces;

    void encode(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const;
};

}  // namespace strata
