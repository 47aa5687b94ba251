// Which tokens may come next, so that a reply follows a grammar. docs/structured-output.md has the idea.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "grammar/grammar.h"
#include "grammar/token_trie.h"

namespace strata {

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
