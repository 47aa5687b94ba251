// Which tokens may come next, so that a reply follows a grammar. docs/structured-output.md has the idea.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace strata {

/// A vocabulary's pieces as a tree of bytes, in the order of a walk. Immutable: build it once a model.
class TokenTrie {
  public:
    /// pieces[id]: the token's bytes; empty for tokens that a constrained reply must not contain (control tokens). The
    /// views are not kept. Pieces longer than Grammar::lookahead_bytes (a few long words and runs of
    /// blanks) are left out, too.
    explicit TokenTrie(std::span<const std::string_view> pieces);

    struct Node {
        uint8_t byte;
        uint16_t depth;  // 1 for a first byte
        uint32_t end;    // the first node behind this one and all below it
        int32_t token;   // whose piece ends here, or -1; others with the same piece follow in same_piece()
    };
    std::span<const Node> nodes() const { return nodes_; }
    int32_t same_piece(int32_t token) const { return same_piece_[static_cast<size_t>(token)]; }  // or -1
    std::string_view piece(int32_t token) const;
    size_t vocab_size() const { return same_piece_.size(); }

  private:
    std::vector<Node> nodes_;
    std::vector<int32_t> same_piece_;  // [vocabulary]
    std::vector<uint32_t> piece_start_;
    std::vector<char> piece_bytes_;
};

/// Follows one reply through a grammar and says which tokens may come next. Not safe to use from several threads at
/// once. What it learns about the grammar it keeps, so use the same one again (reset()) for the next reply.
class TokenMask {
  public:
    /// `end_tokens` end a reply where it may end; they are the only ones that need no piece.
    TokenMask(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
              std::span<const int32_t> end_tokens);
    ~TokenMask();
    TokenMask(TokenMask&&) noexcept;
    TokenMask& operator=(TokenMask&&) noexcept;

    /// Bit i of word i / 64 is set when token i may come next: [vocabulary / 64, rounded up]. End tokens are among them
    /// when the reply may end. At least one bit is set as long as no accept() failed and the vocabulary has a token for
    /// every byte. Valid until the next call.
    std::span<const uint64_t> mask();
    bool allows(int32_t token);

    /// The reply goes on with a token, or with bytes. False, and nothing changes, where the grammar does not allow it.
    /// An end token is accepted where the reply may end, and changes nothing.
    bool accept(int32_t token);
    bool accept(std::string_view bytes);

    /// The reply may end here.
    bool can_end() const;
    /// Nothing may follow but the end.
    bool must_end() const;
    /// Back to the reply's start.
    void reset();

    /// From look_ahead() on, accept() is a try: come_back() returns to where the reply was. Not nested.
    void look_ahead();
    void come_back();

  private:
    class Machine;
    std::unique_ptr<Machine> machine_;
};

}  // namespace strata
