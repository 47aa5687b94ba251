// What a Tokenizer is made of; for its own files only.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
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

/// `gemma4`: the symbols of single characters, and where a line may be cut because no merge joins across.
class CharacterSymbols {
  public:
    CharacterSymbols() : bmp_(0x10000, -1) {}

    void set(uint32_t code_point, int32_t symbol) {
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

    /// Notes a merge whose left symbol ends with `last` and whose right one begins with `first`.
    void add_joint(uint32_t last, uint32_t first) {
        if (small(last) && small(first)) {
            small_joints_[index(last)][index(first)] = true;
        } else {
            joints_.insert(static_cast<uint64_t>(last) << 32 | first);
        }
    }
    /// Whether any merge can ever join two symbols that meet between these characters.
    bool may_join(uint32_t last, uint32_t first) const {
        if (small(last) && small(first)) return small_joints_[index(last)][index(first)];
        return joints_.count(static_cast<uint64_t>(last) << 32 | first) > 0;
    }

    static constexpr uint32_t space = 0x2581;  // how the kind writes U+0020

  private:
    static bool small(uint32_t code_point) { return code_point < 0x80 || code_point == space; }
    static uint32_t index(uint32_t code_point) { return code_point == space ? 0x80 : code_point; }

    std::vector<int32_t> bmp_;
    std::unordered_map<uint32_t, int32_t> beyond_;
    bool small_joints_[0x81][0x81] = {};
    std::unordered_set<uint64_t> joints_;
};

/// Pieces seen lately and their ids. Of fixed size: a new piece takes the place of an old one of the same hash.
class PieceCache {
  public:
    static constexpr size_t most_bytes = 30;
    static constexpr size_t most_ids = 8;
    struct alignas(64) Entry {
        uint8_t bytes = 0;  // 0: free
        uint8_t ids = 0;
        char piece[most_bytes];
        int32_t id[most_ids];
    };

    PieceCache();
    /// The place of a piece of 1 to most_bytes bytes; it holds that piece if holds() says so.
    Entry& at(std::string_view piece);
    static bool holds(const Entry& entry, std::string_view piece) {
        return entry.bytes == piece.size() && std::memcmp(entry.piece, piece.data(), piece.size()) == 0;
    }

  private:
    static constexpr size_t entries = size_t{1} << 15;
    std::vector<Entry> entries_;
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
    MergeTable merges;             // of ids; gemma4: also of characters that are no tokens, from vocab_size on
    int32_t byte_ids[256];         // the token of each byte
    CharacterSymbols characters;   // gemma4 only
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
