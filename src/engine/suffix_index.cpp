#include "engine/suffix_index.h"

#include "engine/random.h"

namespace strata {

SuffixIndex::SuffixIndex() : level_(1024) {
    states_.push_back({0, -1, -1});
    first_edge_.push_back(-1);
    for (size_t i = 0; i < level_; ++i) buckets_.push_back(-1);
}

size_t SuffixIndex::bucket(StateId from, int32_t token) const {
    const uint64_t hash = mix64(static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(token));
    const size_t at = hash & (2 * level_ - 1);
    return at < buckets_.size() ? at : at - level_;
}

int32_t SuffixIndex::find_edge(StateId from, int32_t token) const {
    int32_t edge = buckets_[bucket(from, token)];
    while (edge >= 0) {
        const Edge& e = edges_[static_cast<size_t>(edge)];
        if (e.from == from && e.token == token) break;
        edge = e.next;
    }
    return edge;
}

void SuffixIndex::add_edge(StateId from, int32_t token, StateId to) {
    if (edges_.size() >= buckets_.size()) add_bucket();
    const auto edge = static_cast<int32_t>(edges_.size());
    int32_t& head = buckets_[bucket(from, token)];
    edges_.push_back({from, token, to, head});
    head = edge;
    sibling_.push_back(first_edge_[static_cast<size_t>(from)]);
    first_edge_[static_cast<size_t>(from)] = edge;
}

/// Linear hashing (Litwin 1980): buckets are added one by one, and each takes its edges from one other. Newest edges
/// stay first in both: cutting takes edges off in the order of their age.
void SuffixIndex::add_bucket() {
    const size_t old = buckets_.size() - level_, added = buckets_.size();
    buckets_.push_back(-1);
    int32_t edge = buckets_[old];
    int32_t *old_end = &buckets_[old], *added_end = &buckets_[added];
    while (edge >= 0) {
        Edge& e = edges_[static_cast<size_t>(edge)];
        int32_t*& end = bucket(e.from, e.token) == added ? added_end : old_end;
        *end = edge;
        end = &e.next;
        edge = e.next;
    }
    *old_end = *added_end = -1;
    if (buckets_.size() == 2 * level_) level_ *= 2;
}

void SuffixIndex::copy_edges(StateId from, StateId to) {
    for (int32_t edge = first_edge_[static_cast<size_t>(from)]; edge >= 0; edge = sibling_[static_cast<size_t>(edge)]) {
        const Edge e = edges_[static_cast<size_t>(edge)];
        add_edge(to, e.token, e.to);
    }
}

int32_t& SuffixIndex::target(Change::Kind kind, int32_t what) {
    const auto i = static_cast<size_t>(what);
    if (kind == Change::edge_target) return edges_[i].to;
    return kind == Change::state_link ? states_[i].link : states_[i].end;
}

void SuffixIndex::set(Change::Kind kind, int32_t what, int32_t value) {
    int32_t& place = target(kind, what);
    changes_.push_back({kind, what, place});
    place = value;
}

void SuffixIndex::append(int32_t token) {
    steps_.push_back({static_cast<int32_t>(states_.size()), static_cast<int32_t>(edges_.size()),
                      static_cast<int32_t>(changes_.size()), last_});
    const auto end = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
    const auto add_state = [&](State state) {
        states_.push_back(state);
        first_edge_.push_back(-1);
        return static_cast<StateId>(states_.size()) - 1;
    };
    // Where the text's old end was matched is the newest place of it now.
    if (const StateId match = states_[static_cast<size_t>(last_)].link; match > 0)
        set(Change::state_end, match, end - 1);

    const StateId current = add_state({end + 1, 0, end});
    StateId p = last_;
    int32_t edge = -1;
    for (; p >= 0 && (edge = find_edge(p, token)) < 0; p = states_[static_cast<size_t>(p)].link)
        add_edge(p, token, current);
    if (p >= 0) {
        const StateId q = edges_[static_cast<size_t>(edge)].to;
        const State shorter = states_[static_cast<size_t>(p)];
        if (states_[static_cast<size_t>(q)].length == shorter.length + 1) {
            states_[static_cast<size_t>(current)].link = q;
        } else {
            // q's longer texts do not end here: the shorter ones get a state of their own.
            const StateId clone = add_state(
                {shorter.length + 1, states_[static_cast<size_t>(q)].link, states_[static_cast<size_t>(q)].end});
            copy_edges(q, clone);
            for (; p >= 0; p = states_[static_cast<size_t>(p)].link) {
                edge = find_edge(p, token);
                if (edge < 0 || edges_[static_cast<size_t>(edge)].to != q) break;
                set(Change::edge_target, edge, clone);
            }
            set(Change::state_link, q, clone);
            states_[static_cast<size_t>(current)].link = clone;
        }
    }
    last_ = current;
}

void SuffixIndex::cut(int64_t size) {
    while (static_cast<int64_t>(tokens_.size()) > size) {
        const Step step = steps_.back();
        steps_.pop_back();
        for (; static_cast<int32_t>(changes_.size()) > step.changes; changes_.pop_back())
            target(changes_.back().kind, changes_.back().what) = changes_.back().before;
        for (; static_cast<int32_t>(edges_.size()) > step.edges; edges_.pop_back(), sibling_.pop_back()) {
            const Edge& e = edges_.back();
            buckets_[bucket(e.from, e.token)] = e.next;
            first_edge_[static_cast<size_t>(e.from)] = sibling_.back();
        }
        states_.shrink(static_cast<size_t>(step.states));
        first_edge_.shrink(static_cast<size_t>(step.states));
        last_ = step.last;
        tokens_.pop_back();
    }
}

SuffixIndex::Match SuffixIndex::longest_match() const {
    const StateId match = states_[static_cast<size_t>(last_)].link;
    if (match <= 0) return {};
    const State& state = states_[static_cast<size_t>(match)];
    return {state.length, state.end + 1};
}

int SuffixIndex::guess(std::span<int32_t> out) const {
    const Match match = longest_match();
    if (match.length == 0) return 0;
    for (size_t i = 0; i < out.size(); ++i) {
        const auto at = static_cast<size_t>(match.next) + i;
        out[i] = at < tokens_.size() ? tokens_[at] : out[at - tokens_.size()];
    }
    return static_cast<int>(out.size());
}

}  // namespace strata
