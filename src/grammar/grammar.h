// Grammars that a reply must follow, as automata over bytes. A grammar is a set of rules; a rule is a deterministic
// automaton whose edges are bytes or calls of other rules, so nesting needs a stack and nothing else does. The text
// room builds them from a notation or a JSON schema; they travel to the engine as text (grammar_text.h), where
// token_mask.h makes token masks of them. docs/structured-output.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace strata {

class Determiniser;

/// A compiled grammar. Immutable.
class Grammar {
  public:
    using Node = int32_t;  // a state of a rule's automaton
    static constexpr Node none = -1;

    struct Call {
        int32_t rule;
        Node next;  // where the caller goes on
        bool operator==(const Call&) const = default;
    };

    Node start() const { return starts_[static_cast<size_t>(root_)]; }
    Node start_of(int32_t rule) const { return starts_[static_cast<size_t>(rule)]; }
    Node next(Node node, uint8_t byte) const { return next_class(node, classes_of_[byte]); }
    Node next_class(Node node, int byte_class) const {
        return next_[static_cast<size_t>(node) * static_cast<size_t>(classes_) + static_cast<size_t>(byte_class)];
    }
    std::span<const Call> calls(Node node) const {
        const Info& info = info_[static_cast<size_t>(node)];
        return {calls_.data() + info.first_call, info.calls};
    }
    /// The rule may end here.
    bool is_final(Node node) const { return info_[static_cast<size_t>(node)].final; }
    /// The rule ends here and cannot go on.
    bool is_end(Node node) const { return info_[static_cast<size_t>(node)].end; }
    bool reads_bytes(Node node) const { return info_[static_cast<size_t>(node)].bytes > 0; }
    /// How many of the 256 bytes may come here.
    int byte_count(Node node) const { return info_[static_cast<size_t>(node)].bytes; }
    /// A node (perhaps the same) that treats the next like_bytes(node) bytes in the same way.
    Node looks_like(Node node) const { return info_[static_cast<size_t>(node)].like; }
    int like_bytes(Node node) const { return info_[static_cast<size_t>(node)].like_bytes; }

    int classes() const { return classes_; }  // of bytes that no rule tells apart
    uint8_t class_of(uint8_t byte) const { return classes_of_[byte]; }
    size_t nodes() const { return info_.size(); }
    /// Nodes are numbered rule by rule, each rule's from its start on.
    int32_t rule_of(Node node) const {
        return static_cast<int32_t>(std::upper_bound(starts_.begin(), starts_.end(), node) - starts_.begin()) - 1;
    }
    int32_t root() const { return root_; }
    int32_t rules() const { return static_cast<int32_t>(starts_.size()); }

    static constexpr int lookahead_bytes = 48;  // no token is looked at that has more

  private:
    friend class Determiniser;
    struct Info {
        uint32_t first_call = 0;
        uint32_t calls = 0;
        int32_t like = 0;
        int16_t bytes = 0;
        uint8_t like_bytes = lookahead_bytes;
        bool final = false;
        bool end = false;
    };
    std::vector<Node> next_;  // [nodes, classes]
    std::vector<Info> info_;
    std::vector<Call> calls_;
    std::vector<Node> starts_;  // [rules]
    int32_t root_ = 0;
    int classes_ = 1;
    std::array<uint8_t, 256> classes_of_{};
};

/// A set of code points as ranges, both ends included.
using CodePointRanges = std::vector<std::pair<uint32_t, uint32_t>>;
CodePointRanges complement(CodePointRanges ranges);
CodePointRanges intersect(const CodePointRanges& a, const CodePointRanges& b);

/// Builds a grammar from automata that need not be deterministic. States belong to the rule they are reached from.
class GrammarBuilder {
  public:
    using State = int32_t;

    /// A new rule; its automaton is given later, so rules may call each other in a circle.
    int32_t rule(std::string name);
    State state();
    void set_rule(int32_t rule, State start, State end);

    void byte(State from, uint8_t low, uint8_t high, State to);
    void link(State from, State to);  // without reading anything
    void call(State from, int32_t rule, State to);

    // Pieces from a state on; they give the state behind.
    State literal(State from, std::string_view bytes);
    State call(State from, int32_t rule);
    void code_points(State from, const CodePointRanges& ranges, State to);

    /// State `like` treats the next `bytes` bytes (at most Grammar::lookahead_bytes count) as `state` does: it lets the
    /// same ones through and ends its rule behind the same ones. A promise that makes counted repetitions cheap.
    void looks_like(State state, State like, int bytes);

    size_t states() const { return edges_.size(); }
    bool too_large() const { return states() > max_states; }

    /// Makes the rules deterministic. Refuses rules that call themselves before reading anything, grammars that match
    /// nothing, and ones with more than max_states states.
    Result<Grammar> build(int32_t root);

    static constexpr size_t max_states = 100'000;

  private:
    struct Edge {
        enum class Type : uint8_t { bytes, link, call } type;
        uint8_t low, high;
        int32_t rule;
        State to;
    };
    struct Rule {
        std::string name;
        State start = -1;
        State end = -1;
    };
    std::vector<std::vector<Edge>> edges_;  // [states]
    struct Like {
        State state;
        int bytes;
    };
    std::vector<Like> like_;  // [states]
    std::vector<Rule> rules_;
    friend class Determiniser;
};

}  // namespace strata
