// Where the end of a conversation occurred before: the source of guesses from repeats.
//
// A suffix automaton (Blumer et al. 1985), extended token by token: the suffix link of the state of the whole text is
// the longest end of it that occurs earlier, so the longest match costs nothing to find. Every extension is logged, so
// that the text can be cut back (a conversation continued from a checkpoint) at the cost of what is cut.
#pragma once

#include <cstdint>
#include <span>

#include "engine/segments.h"

namespace strata {

class SuffixIndex {
  public:
    SuffixIndex();

    int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

    /// Amortised constant time; about three states and edges of memory a token at most.
    void append(int32_t token);
    /// Keeps the first `size` tokens.
    void cut(int64_t size);

    struct Match {
        int64_t length = 0;  // tokens of the text's end that occur earlier; 0: none
        int64_t next = 0;    // place of the token that came after them there
    };
    /// The longest end of the text that occurs earlier too (overlapping allowed). Of several places the one that was
    /// matched last.
    Match longest_match() const;

    /// Guesses for what comes next, from the longest match; past the text's end they continue with themselves (a
    /// period). Returns how many of `out` were filled: all, or none without a match.
    int guess(std::span<int32_t> out) const;

  private:
    using StateId = int32_t;
    struct State {
        int32_t length;  // of the longest text of the state
        StateId link;    // state of the longest suffix that occurs in more places
        int32_t end;     // a place where its texts end, the last one that was matched
    };
    struct Edge {
        StateId from;
        int32_t token;
        StateId to;
        int32_t next;  // edge of the same bucket, or -1
    };
    struct Change {
        enum Kind : int32_t { edge_target, state_link, state_end } kind;
        int32_t what;
        int32_t before;
    };
    /// What an append added, to be taken back.
    struct Step {
        int32_t states, edges, changes;  // counts before it
        StateId last;
    };

    int32_t find_edge(StateId from, int32_t token) const;
    void add_edge(StateId from, int32_t token, StateId to);
    void copy_edges(StateId from, StateId to);
    void set(Change::Kind kind, int32_t what, int32_t value);
    int32_t& target(Change::Kind kind, int32_t what);
    size_t bucket(StateId from, int32_t token) const;
    void add_bucket();

    Segments<int32_t> tokens_;
    Segments<State> states_;
    Segments<Edge> edges_;
    Segments<int32_t> first_edge_;  // [states]: last added edge of the state, chained by sibling_
    Segments<int32_t> sibling_;     // [edges]
    Segments<int32_t> buckets_;     // hash table over edges_: newest edge of the bucket, or -1
    size_t level_;                  // the largest power of two that is at most the number of buckets
    Segments<Change> changes_;
    Segments<Step> steps_;
    StateId last_ = 0;
};

}  // namespace strata
