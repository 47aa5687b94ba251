// What tokens do between a node and the end of its rule.
//
// Trying every token in every state of a reply would take milliseconds, and nesting makes new states all the time. But
// what a token does before it leaves the rule it begins in depends on the node alone: some tokens stay inside, of
// others a rest is left when the rule ends. What a rest does depends on the node that the rule returns to, and so on
// outwards. So the tokens of a state are the union of a chain of parts, one for each frame of its stack that tokens
// reach, and a part is computed once.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/reply_states.h"
#include "grammar/token_trie.h"

namespace strata {

/// Not safe to use from several threads at once.
class TokenParts {
  public:
    /// `states` is used to walk and may be forgotten at any time.
    TokenParts(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie, ReplyStates& states);

    using RestsId = int32_t;
    static constexpr RestsId whole = -1;  // tokens from their first byte on

    struct Part {
        std::vector<int32_t> few;    // tokens that may come, or
        std::vector<uint64_t> many;  // the same as bits
        bool leaves = false;         // there are tokens of which `rests` are left when the rule ends
        RestsId rests = 0;
    };
    /// Of whole tokens, or of rests, from a node on. The reference is valid until forget().
    const Part& part(RestsId rests, Grammar::Node node);

    /// Computes parts before they are asked for.
    void warm_up();

    size_t bytes() const { return bytes_; }  // of memory, about
    void forget();

  private:
    /// Rests of tokens as one tree. It is opened as far as walks have come: behind a blank all words follow, and hardly
    /// ever may one come.
    struct Rest {
        uint8_t byte = 0;
        bool open = false;
        std::vector<uint32_t> nodes;   // of the tree of tokens, behind which this rest has been read; ascending
        std::vector<int32_t> tokens;   // whose rest this is
        std::vector<uint32_t> longer;  // rests with another byte
    };
    using Rests = std::vector<Rest>;  // [0]: nothing has been read
    struct Found {
        std::vector<int32_t> tokens;
        std::vector<uint32_t> exits;  // nodes of the tree of tokens behind which the rule has been left
    };

    Found tried(Grammar::Node node, int longer_than);
    void whole_tokens(Grammar::Node node, Part& part);
    bool like_another(Grammar::Node node, Part& part);
    bool like_a_neighbour(Grammar::Node node, Part& part);
    void walk(uint32_t top, ReplyStates::Id before, int longer_than, Found& found);
    void walk_rests(RestsId rests, uint32_t rest, ReplyStates::Id state, Found& found);
    void open(RestsId rests, uint32_t rest);
    void keep(Found& found, Part& part);
    void leave(std::vector<uint32_t>& exits, Part& part);
    std::vector<std::set<Grammar::Node>> returns_of_rules() const;
    void set(std::vector<uint64_t>& bits, int32_t token) const {
        bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    }

    std::shared_ptr<const Grammar> grammar_;
    std::shared_ptr<const TokenTrie> trie_;
    ReplyStates& states_;
    size_t words_;
    std::vector<size_t> weights_;  // [byte classes]: nodes of the tree of tokens below their first bytes

    std::unordered_map<uint64_t, Part> parts_;
    std::deque<Rests> rests_;
    std::unordered_multimap<uint64_t, RestsId> rests_numbers_;       // by hash of rests_[..][0].nodes
    std::vector<Grammar::Node> wide_;                                // whose parts are bits, the newest last
    std::array<ReplyStates::Id, Grammar::lookahead_bytes + 1> way_;  // states along a walk, by depth
    size_t bytes_ = 0;
    int64_t visited_ = 0;  // nodes of the tree of tokens
};

}  // namespace strata
