#include "grammar/token_parts.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/hash.h"

namespace strata {

TokenParts::TokenParts(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                       ReplyStates& states)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      states_(states),
      words_((trie_->vocab_size() + 63) / 64),
      weights_(static_cast<size_t>(grammar_->classes())) {
    for (int byte = 0; byte < 256; ++byte) {
        const auto b = static_cast<uint8_t>(byte);
        if (const uint32_t top = trie_->first(b); top != TokenTrie::none)
            weights_[grammar_->class_of(b)] += trie_->nodes()[top].end - top;
    }
}

void TokenParts::forget() {
    parts_.clear();
    rests_.clear();
    rests_numbers_.clear();
    wide_.clear();
    bytes_ = 0;
}

const TokenParts::Part& TokenParts::part(RestsId rests, Grammar::Node node) {
    if (grammar_->like_bytes(node) >= Grammar::lookahead_bytes) node = grammar_->looks_like(node);
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(rests)) << 32 | static_cast<uint32_t>(node);
    if (const auto known = parts_.find(key); known != parts_.end()) return known->second;
    Part part;
    if (rests == whole) {
        whole_tokens(node, part);
    } else {
        Found found;
        walk_rests(rests, 0, states_.at(node, ReplyStates::outside), found);
        keep(found, part);
    }
    return parts_.emplace(key, std::move(part)).first->second;
}

void TokenParts::whole_tokens(Grammar::Node node, Part& part) {
    if (like_another(node, part) || like_a_neighbour(node, part)) {
        if (!part.many.empty()) wide_.push_back(node);
        return;
    }
    Found found = tried(node, 0);
    keep(found, part);
    if (!part.many.empty()) wide_.push_back(node);
}

/// Tries all tokens that are longer than so many bytes.
TokenParts::Found TokenParts::tried(Grammar::Node node, int longer_than) {
    Found found;
    const ReplyStates::Id start = states_.at(node, ReplyStates::outside);
    for (int byte = 0; byte < 256; ++byte) {
        const uint32_t top = trie_->first(static_cast<uint8_t>(byte));
        if (top != TokenTrie::none) walk(top, start, longer_than, found);
    }
    return found;
}

/// Tokens that are no longer than another node is alike for do the same there; the others are tried.
bool TokenParts::like_another(Grammar::Node node, Part& part) {
    const int alike = grammar_->like_bytes(node);
    const Grammar::Node other = grammar_->looks_like(node);
    if (other == node || alike == 0) return false;
    const Part& like = this->part(whole, other);
    if (like.many.empty()) return false;
    Found found = tried(node, alike);
    part.many = like.many;
    const auto short_tokens = trie_->at_most(alike);
    for (size_t i = 0; i < words_; ++i) part.many[i] &= short_tokens[i];
    for (const int32_t token : found.tokens) set(part.many, token);
    bytes_ += words_ * sizeof(uint64_t);
    if (like.leaves) {
        for (const uint32_t exit : rests_[static_cast<size_t>(like.rests)][0].nodes) {
            if (trie_->nodes()[exit].depth <= alike) found.exits.push_back(exit);
        }
    }
    leave(found.exits, part);
    return true;
}

/// Places often go on in the same way with nearly all bytes (in a text that must not contain a mark, or in a key that
/// must not be one of a few): only the tokens that begin with others are tried.
bool TokenParts::like_a_neighbour(Grammar::Node node, Part& part) {
    constexpr size_t kLook = 8;
    const auto weight = [&](auto counts) {
        size_t sum = 0;
        for (int c = 0; c < grammar_->classes(); ++c)
            if (counts(c)) sum += weights_[static_cast<size_t>(c)];
        return sum;
    };
    size_t least = weight([&](int c) { return grammar_->next_class(node, c) != Grammar::none; }) / 2;
    Grammar::Node other = Grammar::none;
    for (size_t i = wide_.size(); i-- > 0 && wide_.size() - i <= kLook;) {
        if (!std::ranges::equal(grammar_->calls(node), grammar_->calls(wide_[i]))) continue;
        const size_t differing =
            weight([&](int c) { return grammar_->next_class(node, c) != grammar_->next_class(wide_[i], c); });
        if (differing >= least) continue;
        least = differing;
        other = wide_[i];
    }
    if (other == Grammar::none) return false;

    const Part& like = this->part(whole, other);
    const auto nodes = trie_->nodes();
    const auto differs = [&](uint8_t byte) { return grammar_->next(node, byte) != grammar_->next(other, byte); };
    part.many = like.many;
    bytes_ += words_ * sizeof(uint64_t);
    Found found;
    const ReplyStates::Id start = states_.at(node, ReplyStates::outside);
    for (int byte = 0; byte < 256; ++byte) {
        const uint32_t top = trie_->first(static_cast<uint8_t>(byte));
        if (top == TokenTrie::none || !differs(static_cast<uint8_t>(byte))) continue;
        for (uint32_t n = top; n < nodes[top].end; ++n) {
            for (int32_t token = nodes[n].token; token >= 0; token = trie_->same_piece(token))
                part.many[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
        }
        walk(top, start, 0, found);
    }
    for (const int32_t token : found.tokens) set(part.many, token);
    if (like.leaves) {
        uint32_t end = 0;  // of the tree below a first byte
        bool keeps = false;
        for (const uint32_t exit : rests_[static_cast<size_t>(like.rests)][0].nodes) {
            while (exit >= end) {
                keeps = !differs(nodes[end].byte);
                end = nodes[end].end;
            }
            if (keeps) found.exits.push_back(exit);
        }
    }
    leave(found.exits, part);
    return true;
}

/// Tries the tokens at and below a node of their tree that are longer than so many bytes.
void TokenParts::walk(uint32_t top, ReplyStates::Id before, int longer_than, Found& found) {
    const auto nodes = trie_->nodes();
    const uint32_t end = nodes[top].end;
    way_[nodes[top].depth - 1u] = before;
    for (uint32_t i = top; i < end;) {
        const TokenTrie::Node& at = nodes[i];
        ++visited_;
        const ReplyStates::Id state = at.deepest > longer_than
                                          ? states_.step(way_[at.depth - 1u], grammar_->class_of(at.byte))
                                          : ReplyStates::dead;
        if (state == ReplyStates::dead) {
            i = at.end;
            continue;
        }
        way_[at.depth] = state;
        if (at.depth > longer_than) {
            for (int32_t token = at.token; token >= 0; token = trie_->same_piece(token)) found.tokens.push_back(token);
            if (at.end > i + 1 && states_[state].exits) found.exits.push_back(i);
        }
        ++i;
    }
}

/// The same of the rests behind one that has led to a state.
void TokenParts::walk_rests(RestsId rests, uint32_t rest, ReplyStates::Id state, Found& found) {
    Rests& tree = rests_[static_cast<size_t>(rests)];
    if (states_[state].exits) {
        for (const uint32_t node : tree[rest].nodes) {
            if (trie_->nodes()[node].end > node + 1) found.exits.push_back(node);
        }
    }
    if (states_[state].configs.empty()) return;
    if (!tree[rest].open) open(rests, rest);
    for (size_t i = 0; i < tree[rest].longer.size(); ++i) {
        const uint32_t longer = tree[rest].longer[i];
        ++visited_;
        const ReplyStates::Id next = states_.step(state, grammar_->class_of(tree[longer].byte));
        if (next == ReplyStates::dead) continue;
        found.tokens.insert(found.tokens.end(), tree[longer].tokens.begin(), tree[longer].tokens.end());
        walk_rests(rests, longer, next, found);
    }
}

/// Gathers the rests that are a byte longer.
void TokenParts::open(RestsId rests, uint32_t rest) {
    const auto nodes = trie_->nodes();
    Rests& tree = rests_[static_cast<size_t>(rests)];
    tree[rest].open = true;
    std::array<uint32_t, 256> by_byte{};
    const std::vector<uint32_t> parents = tree[rest].nodes;
    for (const uint32_t parent : parents) {
        for (uint32_t child = parent + 1; child < nodes[parent].end; child = nodes[child].end) {
            ++visited_;
            uint32_t& longer = by_byte[nodes[child].byte];
            if (longer == 0) {
                longer = static_cast<uint32_t>(tree.size());
                tree.push_back({nodes[child].byte});
                tree[rest].longer.push_back(longer);
                bytes_ += sizeof(Rest);
            }
            tree[longer].nodes.push_back(child);
            bytes_ += sizeof(uint32_t);
            for (int32_t token = nodes[child].token; token >= 0; token = trie_->same_piece(token)) {
                tree[longer].tokens.push_back(token);
                bytes_ += sizeof(int32_t);
            }
        }
    }
}

void TokenParts::keep(Found& found, Part& part) {
    if (found.tokens.size() > words_) {
        part.many.assign(words_, 0);
        for (const int32_t token : found.tokens) set(part.many, token);
        bytes_ += words_ * sizeof(uint64_t);
    } else {
        bytes_ += found.tokens.size() * sizeof(int32_t);
        part.few = std::move(found.tokens);
    }
    leave(found.exits, part);
}

/// Exits that are known as rests already are the same ones: a chain of parts through nesting comes to its end.
void TokenParts::leave(std::vector<uint32_t>& exits, Part& part) {
    bytes_ += sizeof(Part) + 2 * sizeof(void*);
    if (exits.empty()) return;
    std::sort(exits.begin(), exits.end());
    part.leaves = true;
    const uint64_t hash = hash_bytes(std::as_bytes(std::span(exits)));
    const auto [from, to] = rests_numbers_.equal_range(hash);
    for (auto known = from; known != to; ++known) {
        part.rests = known->second;
        if (rests_[static_cast<size_t>(part.rests)][0].nodes == exits) return;
    }
    part.rests = static_cast<RestsId>(rests_.size());
    bytes_ += exits.size() * sizeof(uint32_t) + sizeof(Rest);
    rests_.emplace_back().push_back({.nodes = std::move(exits)});
    rests_numbers_.emplace(hash, part.rests);
}

/// Parts take up to milliseconds (inside of strings nearly anything may come), a step of an answer must not: so they
/// are computed before the reply begins, the largest first, until some 50 milliseconds are spent.
void TokenParts::warm_up() {
    const int64_t most = visited_ + 16'000'000;
    const auto enough = [&] { return visited_ > most || bytes_ > size_t{16} << 20; };
    struct Work {
        Grammar::Node node;
        size_t weight;
    };
    std::vector<Work> work;
    for (size_t i = 0; i < grammar_->nodes(); ++i) {
        const auto node = static_cast<Grammar::Node>(i);
        if (!grammar_->reads_bytes(node)) continue;
        size_t weight = 0;
        for (int c = 0; c < grammar_->classes(); ++c)
            if (grammar_->next_class(node, c) != Grammar::none) weight += weights_[static_cast<size_t>(c)];
        work.push_back({node, weight});
    }
    std::ranges::stable_sort(work, std::greater(), &Work::weight);
    std::set<std::pair<int32_t, RestsId>> left;  // rules and the rests with which tokens leave them
    std::vector<std::pair<int32_t, RestsId>> open;
    const auto compute = [&](RestsId rests, Grammar::Node node) {
        const Part& done = part(rests, node);
        if (!done.leaves) return;
        const std::pair way(grammar_->rule_of(node), done.rests);
        if (left.insert(way).second) open.push_back(way);
    };
    for (const Work& one : work) {
        if (enough()) return;
        compute(whole, one.node);
    }
    if (grammar_->nodes() > 20'000) return;
    const auto returns = returns_of_rules();
    for (size_t i = 0; i < open.size(); ++i) {
        const auto [rule, rests] = open[i];
        for (const Grammar::Node node : returns[static_cast<size_t>(rule)]) {
            if (enough()) return;
            compute(rests, node);
        }
    }
}

/// By rule: the nodes that may lie on top of the stack while it is followed. Of a call behind which nothing is left to
/// do (ReplyStates), those of the caller.
std::vector<std::set<Grammar::Node>> TokenParts::returns_of_rules() const {
    std::vector<std::set<Grammar::Node>> returns(static_cast<size_t>(grammar_->rules()));
    std::vector<std::pair<int32_t, int32_t>> inherits;  // caller, called
    for (size_t i = 0; i < grammar_->nodes(); ++i) {
        const auto node = static_cast<Grammar::Node>(i);
        for (const Grammar::Call& call : grammar_->calls(node)) {
            if (grammar_->is_end(call.next))
                inherits.emplace_back(grammar_->rule_of(node), call.rule);
            else
                returns[static_cast<size_t>(call.rule)].insert(call.next);
        }
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (const auto& [caller, called] : inherits) {
            auto& own = returns[static_cast<size_t>(called)];
            const size_t before = own.size();
            if (caller != called)
                own.insert(returns[static_cast<size_t>(caller)].begin(), returns[static_cast<size_t>(caller)].end());
            changed |= own.size() != before;
        }
    }
    return returns;
}

}  // namespace strata
