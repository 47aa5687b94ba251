#include "grammar/grammar.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "base/hash.h"

namespace strata {

CodePointRanges complement(CodePointRanges ranges) {
    std::sort(ranges.begin(), ranges.end());
    CodePointRanges out;
    uint32_t next = 0;
    for (auto [low, high] : ranges) {
        if (low > next) out.emplace_back(next, low - 1);
        next = std::max(next, high + 1);
    }
    if (next <= 0x10FFFF) out.emplace_back(next, 0x10FFFF);
    return out;
}

CodePointRanges intersect(const CodePointRanges& a, const CodePointRanges& b) {
    CodePointRanges out;
    for (auto [a_low, a_high] : a) {
        for (auto [b_low, b_high] : b) {
            uint32_t low = std::max(a_low, b_low), high = std::min(a_high, b_high);
            if (low <= high) out.emplace_back(low, high);
        }
    }
    return out;
}

int32_t GrammarBuilder::rule(std::string name) {
    rules_.push_back({std::move(name)});
    return static_cast<int32_t>(rules_.size() - 1);
}

GrammarBuilder::State GrammarBuilder::state() {
    if (too_large()) return static_cast<State>(edges_.size() - 1);  // build() refuses
    edges_.emplace_back();
    like_.push_back({static_cast<State>(edges_.size() - 1), Grammar::lookahead_bytes});
    return like_.back().state;
}

void GrammarBuilder::set_rule(int32_t rule, State start, State end) {
    rules_[static_cast<size_t>(rule)].start = start;
    rules_[static_cast<size_t>(rule)].end = end;
}

void GrammarBuilder::byte(State from, uint8_t low, uint8_t high, State to) {
    if (!too_large()) edges_[static_cast<size_t>(from)].push_back({Edge::Type::bytes, low, high, 0, to});
}

void GrammarBuilder::link(State from, State to) {
    if (!too_large()) edges_[static_cast<size_t>(from)].push_back({Edge::Type::link, 0, 0, 0, to});
}

void GrammarBuilder::call(State from, int32_t rule, State to) {
    if (!too_large()) edges_[static_cast<size_t>(from)].push_back({Edge::Type::call, 0, 0, rule, to});
}

GrammarBuilder::State GrammarBuilder::literal(State from, std::string_view bytes) {
    for (char c : bytes) {
        State to = state();
        byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
        from = to;
    }
    return from;
}

GrammarBuilder::State GrammarBuilder::call(State from, int32_t rule) {
    State to = state();
    call(from, rule, to);
    return to;
}

void GrammarBuilder::looks_like(State state, State like, int bytes) {
    like_[static_cast<size_t>(state)] = {like, std::clamp(bytes, 0, Grammar::lookahead_bytes)};
}

void GrammarBuilder::code_points(State from, const CodePointRanges& ranges, State to) {
    // States behind a first byte, shared by the ranges that need the same rest: this many continuation bytes.
    std::array<State, 4> rest{to, -1, -1, -1};
    auto rest_of = [&](size_t bytes) {
        for (size_t i = 1; i <= bytes; ++i) {
            if (rest[i] >= 0) continue;
            rest[i] = state();
            byte(rest[i], 0x80, 0xBF, rest[i - 1]);
        }
        return rest[bytes];
    };
    // Adds the code points low to high, which have the same number of bytes; `shift` bits follow the byte at hand.
    auto add = [&](auto& self, State at, uint32_t low, uint32_t high, size_t follow, uint8_t mark) -> void {
        uint32_t shift = static_cast<uint32_t>(follow) * 6;
        uint32_t mask = (1u << shift) - 1;
        uint32_t first = low >> shift, last = high >> shift;
        auto step = [&](uint32_t a, uint32_t b, State next) {
            byte(at, static_cast<uint8_t>(mark | a), static_cast<uint8_t>(mark | b), next);
        };
        if (follow == 0) return step(first, last, to);
        if (first == last) {
            if ((low & mask) == 0 && (high & mask) == mask) return step(first, first, rest_of(follow));
            State next = state();
            step(first, first, next);
            return self(self, next, low & mask, high & mask, follow - 1, 0x80);
        }
        if ((low & mask) != 0) {
            State next = state();
            step(first, first, next);
            self(self, next, low & mask, mask, follow - 1, 0x80);
            ++first;
        }
        bool cut = (high & mask) != mask;
        if (cut) --last;
        if (first <= last) step(first, last, rest_of(follow));
        if (cut) {
            State next = state();
            step(last + 1, last + 1, next);
            self(self, next, 0, high & mask, follow - 1, 0x80);
        }
    };
    struct Size {
        uint32_t low, high;
        size_t follow;
        uint8_t mark;
    };
    constexpr Size kSizes[] = {{0, 0x7F, 0, 0},
                               {0x80, 0x7FF, 1, 0xC0},
                               {0x800, 0xD7FF, 2, 0xE0},
                               {0xE000, 0xFFFF, 2, 0xE0},
                               {0x10000, 0x10FFFF, 3, 0xF0}};
    for (auto [low, high] : ranges) {
        for (const Size& size : kSizes) {
            uint32_t a = std::max(low, size.low), b = std::min(high, size.high);
            if (a <= b) add(add, from, a, b, size.follow, size.mark);
        }
    }
}

/// Turns a builder's rules into one table of deterministic automata.
class Determiniser {
  public:
    explicit Determiniser(const GrammarBuilder& builder) : builder_(builder) {}

    Result<Grammar> run(int32_t root) {
        if (builder_.too_large()) return too_large();
        for (const auto& rule : builder_.rules_) {
            if (rule.start < 0) return failure("rule '" + rule.name + "' is not defined");
        }
        make_classes();
        for (size_t rule = 0; rule < builder_.rules_.size(); ++rule) {
            if (!add_rule(static_cast<int32_t>(rule))) return too_large();
        }
        prune();
        if (!productive_[static_cast<size_t>(root)]) return failure("the grammar matches no text at all");
        STRATA_TRY(check_left_recursion());
        merge_twins();
        return compiled(root);
    }

  private:
    using State = GrammarBuilder::State;
    using Edge = GrammarBuilder::Edge;
    using Set = std::vector<State>;  // sorted

    struct Node {
        std::vector<int32_t> next;         // [classes]
        std::vector<Grammar::Call> calls;  // by rule, ascending
        bool final = false;
        bool alive = false;  // its rule's end can be reached
        int32_t like = 0;
        int like_bytes = 0;                             // for how long
        int own_like_bytes = Grammar::lookahead_bytes;  // as the states it was made of look like others

        bool goes_on_as(const Node& other) const {
            return final == other.final && next == other.next && calls == other.calls;
        }
        uint64_t hash() const {
            Hasher hasher;
            hasher.update_number(final);
            hasher.update(std::as_bytes(std::span(next)));
            for (const Grammar::Call& call : calls) {
                hasher.update_number(static_cast<uint64_t>(call.rule));
                hasher.update_number(static_cast<uint64_t>(call.next));
            }
            return hasher.value();
        }
    };

    static Error too_large() {
        return failure("it grows past " + std::to_string(GrammarBuilder::max_states) + " states");
    }

    /// Bytes that no edge tells apart are one class.
    void make_classes() {
        std::array<bool, 257> cut{};
        cut[0] = true;
        for (const auto& edges : builder_.edges_) {
            for (const Edge& edge : edges) {
                if (edge.type != Edge::Type::bytes) continue;
                cut[edge.low] = true;
                cut[static_cast<size_t>(edge.high) + 1] = true;
            }
        }
        int byte_class = -1;
        for (size_t byte = 0; byte < 256; ++byte) {
            if (cut[byte]) first_byte_.push_back(static_cast<uint8_t>(byte)), ++byte_class;
            class_of_[byte] = static_cast<uint8_t>(byte_class);
        }
    }

    Set closure(Set states) {
        ++round_;
        seen_.resize(builder_.edges_.size(), 0);
        for (State state : states) seen_[static_cast<size_t>(state)] = round_;
        for (size_t i = 0; i < states.size(); ++i) {
            for (const Edge& edge : builder_.edges_[static_cast<size_t>(states[i])]) {
                ++work_;
                if (edge.type != Edge::Type::link || seen_[static_cast<size_t>(edge.to)] == round_) continue;
                seen_[static_cast<size_t>(edge.to)] = round_;
                states.push_back(edge.to);
            }
        }
        std::sort(states.begin(), states.end());
        return states;
    }

    static void tidy(Set& states) {
        std::sort(states.begin(), states.end());
        states.erase(std::unique(states.begin(), states.end()), states.end());
    }

    bool add_rule(int32_t rule) {
        const auto& source = builder_.rules_[static_cast<size_t>(rule)];
        std::map<Set, int32_t> numbers;
        std::map<Set, int32_t> likes;  // the first node by what its states look like
        std::vector<Set> sets;
        auto number_of = [&](Set states) {
            states = closure(std::move(states));
            auto [place, fresh] = numbers.emplace(states, static_cast<int32_t>(nodes_.size()));
            if (fresh) {
                Node node;
                Set like;
                for (State state : states) {
                    const auto& one = builder_.like_[static_cast<size_t>(state)];
                    like.push_back(one.state);
                    node.own_like_bytes = std::min(node.own_like_bytes, one.bytes);
                }
                tidy(like);
                node.final = std::binary_search(states.begin(), states.end(), source.end);
                node.like = likes.emplace(std::move(like), place->second).first->second;
                node.like_bytes = node.own_like_bytes;
                if (node.like != place->second)
                    node.like_bytes = std::min(node.like_bytes, nodes_[static_cast<size_t>(node.like)].own_like_bytes);
                nodes_.push_back(std::move(node));
                sets.push_back(std::move(states));
            }
            return place->second;
        };
        starts_.push_back(number_of({source.start}));
        int32_t first = starts_.back();
        for (size_t i = 0; i < sets.size(); ++i) {
            if (nodes_.size() > GrammarBuilder::max_states || work_ > kMostWork ||
                nodes_.size() * first_byte_.size() > kMostEntries) {
                return false;
            }
            std::vector<Set> by_class(first_byte_.size());
            std::map<int32_t, Set> by_rule;
            for (State state : sets[i]) {
                for (const Edge& edge : builder_.edges_[static_cast<size_t>(state)]) {
                    if (edge.type == Edge::Type::call) by_rule[edge.rule].push_back(edge.to);
                    if (edge.type != Edge::Type::bytes) continue;
                    for (int c = class_of_[edge.low]; c <= class_of_[edge.high]; ++c) {
                        by_class[static_cast<size_t>(c)].push_back(edge.to);
                    }
                }
            }
            std::vector<int32_t> next(first_byte_.size(), Grammar::none);
            std::vector<Grammar::Call> calls;
            for (size_t c = 0; c < by_class.size(); ++c) {
                if (by_class[c].empty()) continue;
                tidy(by_class[c]);
                next[c] = number_of(std::move(by_class[c]));
            }
            for (auto& [called, targets] : by_rule) {
                tidy(targets);
                calls.push_back({called, number_of(std::move(targets))});
            }
            nodes_[static_cast<size_t>(first) + i].next = std::move(next);
            nodes_[static_cast<size_t>(first) + i].calls = std::move(calls);
        }
        return true;
    }

    /// Drops what leads nowhere: with a mask, a model must never be led there.
    void prune() {
        // Backwards from the ends. A call leads on when the node behind it does and the rule it calls can end.
        struct Back {
            int32_t from;
            int32_t rule;  // -1: by a byte
        };
        std::vector<std::vector<Back>> back(nodes_.size());
        std::vector<std::vector<std::pair<int32_t, int32_t>>> callers(starts_.size());  // node and the one behind
        std::vector<std::vector<int32_t>> rules_at(nodes_.size());
        for (size_t rule = 0; rule < starts_.size(); ++rule) {
            rules_at[static_cast<size_t>(starts_[rule])].push_back(static_cast<int32_t>(rule));
        }
        for (size_t i = 0; i < nodes_.size(); ++i) {
            auto from = static_cast<int32_t>(i);
            int32_t last = Grammar::none;
            for (int32_t to : nodes_[i].next) {
                if (to != Grammar::none && to != last) back[static_cast<size_t>(to)].push_back({from, -1});
                last = to;
            }
            for (const Grammar::Call& call : nodes_[i].calls) {
                back[static_cast<size_t>(call.next)].push_back({from, call.rule});
                callers[static_cast<size_t>(call.rule)].emplace_back(from, call.next);
            }
        }
        productive_.assign(starts_.size(), false);
        std::vector<int32_t> open;
        auto revive = [&](int32_t node) {
            if (nodes_[static_cast<size_t>(node)].alive) return;
            nodes_[static_cast<size_t>(node)].alive = true;
            open.push_back(node);
        };
        for (size_t i = 0; i < nodes_.size(); ++i) {
            if (nodes_[i].final) revive(static_cast<int32_t>(i));
        }
        while (!open.empty()) {
            auto node = static_cast<size_t>(open.back());
            open.pop_back();
            for (const Back& edge : back[node]) {
                if (edge.rule < 0 || productive_[static_cast<size_t>(edge.rule)]) revive(edge.from);
            }
            for (int32_t rule : rules_at[node]) {
                productive_[static_cast<size_t>(rule)] = true;
                for (auto [from, next] : callers[static_cast<size_t>(rule)]) {
                    if (nodes_[static_cast<size_t>(next)].alive) revive(from);
                }
            }
        }
        for (Node& node : nodes_) {
            for (int32_t& to : node.next) {
                if (to != Grammar::none && !nodes_[static_cast<size_t>(to)].alive) to = Grammar::none;
            }
            std::erase_if(node.calls, [&](const Grammar::Call& call) {
                return !productive_[static_cast<size_t>(call.rule)] || !nodes_[static_cast<size_t>(call.next)].alive;
            });
        }
    }

    /// A rule that calls itself before anything is read would be expanded for ever.
    Result<void> check_left_recursion() {
        size_t rules = starts_.size();
        std::vector<bool> empty(rules, false);  // rules that match the empty text
        std::vector<std::vector<int32_t>> first(rules);
        for (bool changed = true; changed;) {
            changed = false;
            for (size_t rule = 0; rule < rules; ++rule) {
                std::vector<int32_t> open{starts_[rule]};
                std::unordered_set<int32_t> seen{starts_[rule]};
                first[rule].clear();
                bool is_empty = false;
                while (!open.empty()) {
                    const Node& node = nodes_[static_cast<size_t>(open.back())];
                    open.pop_back();
                    is_empty |= node.final;
                    for (const Grammar::Call& call : node.calls) {
                        first[rule].push_back(call.rule);
                        if (!empty[static_cast<size_t>(call.rule)]) continue;
                        if (seen.insert(call.next).second) open.push_back(call.next);
                    }
                }
                if (is_empty && !empty[rule]) empty[rule] = changed = true;
            }
        }
        std::vector<int> mark(rules, 0);  // 1: on the way, 2: done
        for (size_t rule = 0; rule < rules; ++rule) {
            if (mark[rule]) continue;
            std::vector<std::pair<size_t, size_t>> way{{rule, 0}};
            mark[rule] = 1;
            while (!way.empty()) {
                auto& [at, next] = way.back();
                if (next == first[at].size()) {
                    mark[at] = 2;
                    way.pop_back();
                    continue;
                }
                auto to = static_cast<size_t>(first[at][next++]);
                if (mark[to] == 1) {
                    return failure("rule '" + builder_.rules_[to].name + "' calls itself before it has read anything");
                }
                if (mark[to] == 0) {
                    mark[to] = 1;
                    way.emplace_back(to, 0);
                }
            }
        }
        return {};
    }

    /// Nodes of a rule that go on in the same way become one: ends of characters above all, which are made anew at
    /// every place. (Not all that could: what lies on circles, and ends that are alike for long, stay apart.)
    void merge_twins() {
        constexpr int kMostRounds = 32;
        std::vector<int32_t> twin(nodes_.size());
        std::iota(twin.begin(), twin.end(), 0);
        const auto follow = [&](Node& node) {
            for (int32_t& to : node.next) {
                if (to != Grammar::none) to = twin[static_cast<size_t>(to)];
            }
            for (Grammar::Call& call : node.calls) call.next = twin[static_cast<size_t>(call.next)];
            node.like = twin[static_cast<size_t>(node.like)];
        };
        for (size_t rule = 0; rule < starts_.size(); ++rule) {
            const auto first = static_cast<size_t>(starts_[rule]);
            const size_t last = rule + 1 < starts_.size() ? static_cast<size_t>(starts_[rule + 1]) : nodes_.size();
            bool changed = true;
            for (int round = 0; changed && round < kMostRounds; ++round) {
                changed = false;
                std::unordered_map<uint64_t, size_t> known;  // by hash
                for (size_t i = first; i < last; ++i) {
                    if (twin[i] != static_cast<int32_t>(i)) continue;
                    const auto [place, fresh] = known.emplace(nodes_[i].hash(), i);
                    if (fresh || !nodes_[i].goes_on_as(nodes_[place->second])) continue;
                    twin[i] = static_cast<int32_t>(place->second);
                    changed = true;
                }
                for (size_t i = first; changed && i < last; ++i) follow(nodes_[i]);
            }
        }
        // Close up.
        std::vector<int32_t> place(nodes_.size());
        std::vector<Node> kept;
        for (size_t i = 0; i < nodes_.size(); ++i) {
            if (twin[i] != static_cast<int32_t>(i)) continue;
            place[i] = static_cast<int32_t>(kept.size());
            kept.push_back(std::move(nodes_[i]));
        }
        nodes_ = std::move(kept);
        twin = std::move(place);
        for (Node& node : nodes_) follow(node);
        for (int32_t& start : starts_) start = twin[static_cast<size_t>(start)];
    }

    Grammar compiled(int32_t root) const {
        Grammar grammar;
        grammar.root_ = root;
        grammar.classes_ = static_cast<int>(first_byte_.size());
        grammar.classes_of_ = class_of_;
        grammar.starts_ = starts_;
        std::vector<int> bytes_in(first_byte_.size(), 0);
        for (uint8_t byte_class : class_of_) ++bytes_in[byte_class];
        for (const Node& node : nodes_) {
            Grammar::Info info;
            info.first_call = static_cast<uint32_t>(grammar.calls_.size());
            info.calls = static_cast<uint32_t>(node.calls.size());
            info.like = node.like;
            info.like_bytes = static_cast<uint8_t>(node.like_bytes);
            info.final = node.final;
            for (size_t c = 0; c < node.next.size(); ++c) {
                if (node.next[c] != Grammar::none) info.bytes = static_cast<int16_t>(info.bytes + bytes_in[c]);
            }
            info.end = node.final && info.bytes == 0 && node.calls.empty();
            grammar.info_.push_back(info);
            grammar.calls_.insert(grammar.calls_.end(), node.calls.begin(), node.calls.end());
            grammar.next_.insert(grammar.next_.end(), node.next.begin(), node.next.end());
        }
        return grammar;
    }

    // Automata can grow exponentially: bounds on the edges followed and on the table's size.
    static constexpr int64_t kMostWork = 30'000'000;
    static constexpr size_t kMostEntries = 16'000'000;

    const GrammarBuilder& builder_;
    int64_t work_ = 0;
    std::vector<int32_t> seen_;  // [states]: the round in which a closure has met it
    int32_t round_ = 0;
    std::array<uint8_t, 256> class_of_{};
    std::vector<uint8_t> first_byte_;  // [classes]
    std::vector<Node> nodes_;
    std::vector<int32_t> starts_;  // [rules]
    std::vector<bool> productive_;
};

Result<Grammar> GrammarBuilder::build(int32_t root) {
    return Determiniser(*this).run(root);
}

}  // namespace strata
