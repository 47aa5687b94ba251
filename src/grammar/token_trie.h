// A vocabulary's pieces as a tree of bytes, in the order of a walk.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace strata {

/// Immutable: build it once a model.
class TokenTrie {
  public:
    /// pieces[id]: the token's bytes; empty for tokens that a constrained reply must not contain (control tokens). The
    /// views are not kept. Pieces longer than Grammar::lookahead_bytes (a few long words and runs of
    /// blanks) are left out, too.
    explicit TokenTrie(std::span<const std::string_view> pieces);

    struct Node {
        uint8_t byte;
        uint8_t depth;    // 1 for a first byte
        uint8_t deepest;  // of this node and all below it
        uint32_t end;     // the first node behind this one and all below it
        int32_t token;    // whose piece ends here, or -1; others with the same piece follow in same_piece()
    };
    std::span<const Node> nodes() const { return nodes_; }
    /// The node of a first byte, or none.
    static constexpr uint32_t none = UINT32_MAX;
    uint32_t first(uint8_t byte) const { return first_[byte]; }

    int32_t same_piece(int32_t token) const { return same_piece_[static_cast<size_t>(token)]; }  // or -1
    std::string_view piece(int32_t token) const;
    size_t vocab_size() const { return same_piece_.size(); }
    /// Bits of the tokens of at most so many bytes, as in TokenMask::mask(); bytes from 1 to Grammar::lookahead_bytes.
    std::span<const uint64_t> at_most(int bytes) const {
        const size_t words = (vocab_size() + 63) / 64;
        return {at_most_.data() + static_cast<size_t>(bytes - 1) * words, words};
    }

  private:
    std::vector<Node> nodes_;
    std::array<uint32_t, 256> first_;
    std::vector<int32_t> same_piece_;  // [vocabulary]
    std::vector<uint64_t> at_most_;    // [lookahead_bytes, vocabulary / 64 rounded up]
    std::vector<uint32_t> piece_start_;
    std::vector<char> piece_bytes_;
};

}  // namespace strata
