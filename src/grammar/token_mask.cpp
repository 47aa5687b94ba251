// A state of a reply is a set of configurations: a node that reads bytes, and the stack of nodes to return to. States
// and stacks are numbered, so that a state's steps and its mask are computed once.
//
// A mask is not computed by trying every token in every state: nesting makes new states all the time, and in the middle
// of a string nearly all tokens are allowed. What a token does before it leaves the rule it begins in depends on the
// node alone. So for a node the tree of tokens is walked once: tokens that stay inside are allowed for good, and for
// those that leave, the rests behind the exits are gathered into a small tree, which is walked with the stack at hand.
#include "grammar/token_mask.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>
#include <utility>

namespace strata {

TokenTrie::TokenTrie(std::span<const std::string_view> pieces) : same_piece_(pieces.size(), -1) {
    std::vector<int32_t> order;
    piece_start_.reserve(pieces.size() + 1);
    for (size_t id = 0; id < pieces.size(); ++id) {
        piece_start_.push_back(static_cast<uint32_t>(piece_bytes_.size()));
        if (pieces[id].empty() || pieces[id].size() > Grammar::lookahead_bytes) continue;
        piece_bytes_.insert(piece_bytes_.end(), pieces[id].begin(), pieces[id].end());
        order.push_back(static_cast<int32_t>(id));
    }
    piece_start_.push_back(static_cast<uint32_t>(piece_bytes_.size()));
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        int sign = pieces[static_cast<size_t>(a)].compare(pieces[static_cast<size_t>(b)]);
        return sign != 0 ? sign < 0 : a < b;
    });
    std::vector<uint32_t> open;  // the nodes of the last piece's bytes
    std::string_view last;
    int32_t last_token = -1;
    auto close_to = [&](size_t depth) {
        for (; open.size() > depth; open.pop_back()) nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    };
    for (int32_t id : order) {
        std::string_view piece = pieces[static_cast<size_t>(id)];
        if (last_token >= 0 && piece == last) {
            same_piece_[static_cast<size_t>(last_token)] = id;
            last_token = id;
            continue;
        }
        size_t common = static_cast<size_t>(std::mismatch(piece.begin(), piece.end(), last.begin(), last.end()).first -
                                            piece.begin());
        close_to(common);
        for (size_t i = common; i < piece.size(); ++i) {
            open.push_back(static_cast<uint32_t>(nodes_.size()));
            nodes_.push_back({static_cast<uint8_t>(piece[i]), static_cast<uint16_t>(i + 1), 0, -1});
        }
        nodes_[open.back()].token = id;
        last = piece;
        last_token = id;
    }
    close_to(0);
}

std::string_view TokenTrie::piece(int32_t token) const {
    if (token < 0 || static_cast<size_t>(token) >= same_piece_.size()) return {};
    uint32_t start = piece_start_[static_cast<size_t>(token)], end = piece_start_[static_cast<size_t>(token) + 1];
    return {piece_bytes_.data() + start, end - start};
}

class TokenMask::Machine {
  public:
    Machine(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
            std::span<const int32_t> end_tokens)
        : grammar_(std::move(grammar)), trie_(std::move(trie)), words_((trie_->vocab_size() + 63) / 64) {
        for (int32_t token : end_tokens) {
            if (token >= 0 && static_cast<size_t>(token) < trie_->vocab_size()) end_tokens_.push_back(token);
        }
        forget();
        warm_up();
    }

    void reset() {
        now_ = state_of({{grammar_->start(), kBottom}}, false);
        back_ = kUnknown;
    }
    void look_ahead() { back_ = now_; }
    void come_back() { now_ = std::exchange(back_, kUnknown); }

    bool can_end() const { return states_[static_cast<size_t>(now_)].accepting; }
    bool must_end() const { return can_end() && states_[static_cast<size_t>(now_)].configs.empty(); }

    bool accept(std::string_view bytes) {
        if (states_.size() > kMostStates && back_ == kUnknown) forget_but_now();
        int32_t state = now_;
        for (char c : bytes) {
            state = step(state, grammar_->class_of(static_cast<uint8_t>(c)));
            if (state == kDead) return false;
        }
        now_ = state;
        return true;
    }

    bool accept(int32_t token) {
        if (is_end(token)) return can_end();
        std::string_view piece = trie_->piece(token);
        return !piece.empty() && accept(piece);
    }

    bool allows(int32_t token) {
        if (is_end(token)) return can_end();
        std::string_view piece = trie_->piece(token);
        int32_t state = now_;
        for (char c : piece) {
            state = step(state, grammar_->class_of(static_cast<uint8_t>(c)));
            if (state == kDead) return false;
        }
        return !piece.empty();
    }

    std::span<const uint64_t> mask() {
        auto place = masks_.find(now_);
        if (place != masks_.end()) return place->second;
        if (masks_.size() >= kMostMasks) masks_.clear();
        if (local_bytes_ > kMostLocalBytes) forget_locals();
        std::vector<uint64_t> mask(words_, 0);
        // Steps make states, which move: by number.
        std::vector<Config> configs = states_[static_cast<size_t>(now_)].configs;
        for (const Config& config : configs) add_tokens(config, mask);
        for (int32_t token : end_tokens_) {  // whatever their text
            mask[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
            if (can_end()) set(mask, token);
        }
        return masks_.emplace(now_, std::move(mask)).first->second;
    }

  private:
    // Stacks. A frame is where to go on, on top of another stack.
    static constexpr int32_t kBottom = -1;   // the reply's own: to leave it is to have finished
    static constexpr int32_t kOutside = -2;  // while a node is looked at alone: to leave it is an exit
    static constexpr int32_t kDead = -1, kUnknown = -2;
    static constexpr size_t kMostStates = 50'000, kMostMasks = 256, kMostLocalBytes = size_t{64} << 20;

    struct Config {
        Grammar::Node node;
        int32_t frame;
        bool operator==(const Config&) const = default;
        auto operator<=>(const Config&) const = default;
    };
    struct Frame {
        Grammar::Node node;
        int32_t parent;
    };
    struct State {
        std::vector<Config> configs;  // sorted; all read bytes
        bool accepting = false;       // the reply is complete
        bool exits = false;           // the node looked at alone has been left
        std::vector<int32_t> steps;   // [byte classes], filled as asked for
    };
    /// What a node's tokens do, without its stack.
    struct Local {
        bool known = false;
        std::vector<int32_t> few;    // allowed for good, or
        std::vector<uint64_t> many;  // the same as bits
        // The rests of tokens behind exits, as one tree. It is opened as far as walks have come: behind a blank all
        // words follow, and hardly ever may one come.
        struct Rest {
            uint8_t byte = 0;
            bool open = false;
            std::vector<uint32_t> nodes;   // of the tree of tokens, which end with this rest
            std::vector<int32_t> tokens;   // whose rest this is
            std::vector<uint32_t> longer;  // rests with another byte
        };
        std::vector<Rest> rests;  // [0]: nothing, behind every exit; empty: there are no exits
    };

    static void set(std::vector<uint64_t>& mask, int32_t token) {
        mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    }
    bool is_end(int32_t token) const {
        return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
    }

    /// Grammars with many places where much may come (long patterns) would fill the memory.
    void forget_locals() {
        locals_.clear();
        local_bytes_ = 0;
    }

    void forget() {
        frames_.clear();
        frame_numbers_.clear();
        states_.clear();
        state_numbers_.clear();
        masks_.clear();
        reset();
    }

    /// A long reply through deep nesting collects states: starts over with the one at hand.
    void forget_but_now() {
        State now = states_[static_cast<size_t>(now_)];
        std::vector<Frame> old = frames_;
        forget();
        std::vector<Config> configs;
        for (Config config : now.configs) {
            std::vector<Grammar::Node> stack;
            for (int32_t at = config.frame; at >= 0; at = old[static_cast<size_t>(at)].parent) {
                stack.push_back(old[static_cast<size_t>(at)].node);
            }
            int32_t frame = kBottom;
            for (size_t i = stack.size(); i-- > 0;) frame = frame_of(stack[i], frame);
            configs.push_back({config.node, frame});
        }
        now_ = number(std::move(configs), now.accepting, false);
    }

    int32_t frame_of(Grammar::Node node, int32_t parent) {
        uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(node)) << 32 | static_cast<uint32_t>(parent);
        auto [place, fresh] = frame_numbers_.emplace(key, static_cast<int32_t>(frames_.size()));
        if (fresh) frames_.push_back({node, parent});
        return place->second;
    }

    /// Follows calls and returns until every configuration reads bytes.
    int32_t state_of(std::vector<Config> open, bool only_if_alive) {
        std::vector<Config> seen, reading;
        std::unordered_set<uint64_t> seen_many;
        auto is_new = [&](const Config& config) {
            constexpr size_t kFew = 32;
            auto key = [](const Config& c) {
                return static_cast<uint64_t>(static_cast<uint32_t>(c.node)) << 32 | static_cast<uint32_t>(c.frame);
            };
            if (seen.size() < kFew) {
                if (std::find(seen.begin(), seen.end(), config) != seen.end()) return false;
                seen.push_back(config);
                if (seen.size() == kFew) {
                    for (const Config& one : seen) seen_many.insert(key(one));
                }
                return true;
            }
            return seen_many.insert(key(config)).second;
        };
        bool accepting = false, exits = false;
        while (!open.empty()) {
            Config config = open.back();
            open.pop_back();
            if (!is_new(config)) continue;
            if (grammar_->reads_bytes(config.node)) reading.push_back(config);
            if (grammar_->is_final(config.node)) {
                if (config.frame == kBottom) {
                    accepting = true;
                } else if (config.frame == kOutside) {
                    exits = true;
                } else {
                    const Frame& frame = frames_[static_cast<size_t>(config.frame)];
                    open.push_back({frame.node, frame.parent});
                }
            }
            for (const Grammar::Call& call : grammar_->calls(config.node)) {
                // Where nothing is left to do behind the call, its caller's caller is the one to return to.
                int32_t frame = grammar_->is_end(call.next) ? config.frame : frame_of(call.next, config.frame);
                open.push_back({grammar_->start_of(call.rule), frame});
            }
        }
        if (only_if_alive && reading.empty() && !accepting && !exits) return kDead;
        std::sort(reading.begin(), reading.end());
        return number(std::move(reading), accepting, exits);
    }

    int32_t number(std::vector<Config> configs, bool accepting, bool exits) {
        std::string key(reinterpret_cast<const char*>(configs.data()), configs.size() * sizeof(Config));
        key += static_cast<char>(accepting | exits << 1);
        auto [place, fresh] = state_numbers_.emplace(std::move(key), static_cast<int32_t>(states_.size()));
        if (fresh) states_.push_back({std::move(configs), accepting, exits, {}});
        return place->second;
    }

    int32_t step(int32_t from, int byte_class) {
        {
            State& state = states_[static_cast<size_t>(from)];
            if (state.steps.empty()) state.steps.assign(static_cast<size_t>(grammar_->classes()), kUnknown);
            int32_t known = state.steps[static_cast<size_t>(byte_class)];
            if (known != kUnknown) return known;
        }
        std::vector<Config> next;
        for (const Config& config : states_[static_cast<size_t>(from)].configs) {
            Grammar::Node node = grammar_->next_class(config.node, byte_class);
            if (node != Grammar::none) next.push_back({node, config.frame});
        }
        int32_t to = next.empty() ? kDead : state_of(std::move(next), true);
        states_[static_cast<size_t>(from)].steps[static_cast<size_t>(byte_class)] = to;
        return to;
    }

    void add_tokens(const Config& config, std::vector<uint64_t>& mask) {
        Local& local = local_of(config.node);
        if (local.many.empty()) {
            for (int32_t token : local.few) set(mask, token);
        } else {
            for (size_t i = 0; i < mask.size(); ++i) mask[i] |= local.many[i];
        }
        if (config.frame < 0 || local.rests.empty()) return;
        const Frame& frame = frames_[static_cast<size_t>(config.frame)];
        int32_t state = state_of({{frame.node, frame.parent}}, true);
        if (state != kDead) add_rests(local, 0, state, mask);
    }

    void add_rests(Local& local, uint32_t rest, int32_t state, std::vector<uint64_t>& mask) {
        if (!local.rests[rest].open) open_rest(local, rest);
        for (size_t i = 0; i < local.rests[rest].longer.size(); ++i) {
            uint32_t longer = local.rests[rest].longer[i];
            int32_t next = step(state, grammar_->class_of(local.rests[longer].byte));
            if (next == kDead) continue;
            for (int32_t token : local.rests[longer].tokens) set(mask, token);
            add_rests(local, longer, next, mask);
        }
    }

    /// Gathers the rests that are a byte longer.
    void open_rest(Local& local, uint32_t rest) {
        auto nodes = trie_->nodes();
        local.rests[rest].open = true;
        std::array<uint32_t, 256> by_byte{};
        std::vector<uint32_t> parents = std::move(local.rests[rest].nodes);
        for (uint32_t parent : parents) {
            for (uint32_t child = parent + 1; child < nodes[parent].end; child = nodes[child].end) {
                uint32_t& longer = by_byte[nodes[child].byte];
                if (longer == 0) {
                    longer = static_cast<uint32_t>(local.rests.size());
                    local.rests.push_back({nodes[child].byte});
                    local.rests[rest].longer.push_back(longer);
                }
                local.rests[longer].nodes.push_back(child);
                for (int32_t token = nodes[child].token; token >= 0; token = trie_->same_piece(token)) {
                    local.rests[longer].tokens.push_back(token);
                }
            }
        }
    }

    Local& local_of(Grammar::Node node) {
        node = grammar_->looks_like(node);
        Local& local = locals_[node];
        if (!local.known) look_at(node, local);
        return local;
    }

    /// Walks the tree of tokens from a node without knowing its stack.
    void look_at(Grammar::Node node, Local& local) {
        local.known = true;
        std::vector<int32_t> allowed;
        std::vector<uint32_t> exits;  // nodes of the tree behind which the rule has been left
        auto nodes = trie_->nodes();
        std::vector<int32_t> way(1, number({{node, kOutside}}, false, false));
        for (size_t i = 0; i < nodes.size();) {
            const TokenTrie::Node& at = nodes[i];
            int32_t state = step(way[at.depth - 1u], grammar_->class_of(at.byte));
            if (state == kDead) {
                i = at.end;
                continue;
            }
            way.resize(at.depth);
            way.push_back(state);
            for (int32_t token = at.token; token >= 0; token = trie_->same_piece(token)) allowed.push_back(token);
            if (states_[static_cast<size_t>(state)].exits && at.end > i + 1) exits.push_back(static_cast<uint32_t>(i));
            ++i;
        }
        if (allowed.size() > words_) {
            local.many.assign(words_, 0);
            local_bytes_ += words_ * sizeof(uint64_t);
            for (int32_t token : allowed) set(local.many, token);
        } else {
            local_bytes_ += allowed.size() * sizeof(int32_t);
            local.few = std::move(allowed);
        }
        local_bytes_ += exits.size() * sizeof(uint32_t);
        if (exits.empty()) return;
        local.rests.emplace_back();
        local.rests[0].nodes = std::move(exits);
    }

    /// The nodes where nearly anything may come (inside of strings) take milliseconds to look at: before the reply
    /// begins.
    void warm_up() {
        constexpr int kMany = 64, kMost = 64;
        int looked_at = 0;
        for (size_t i = 0; i < grammar_->nodes() && looked_at < kMost; ++i) {
            auto node = static_cast<Grammar::Node>(i);
            if (grammar_->byte_count(node) < kMany || grammar_->looks_like(node) != node) continue;
            local_of(node);
            ++looked_at;
        }
    }

    std::shared_ptr<const Grammar> grammar_;
    std::shared_ptr<const TokenTrie> trie_;
    size_t words_;
    std::vector<int32_t> end_tokens_;
    std::vector<Frame> frames_;
    std::unordered_map<uint64_t, int32_t> frame_numbers_;
    std::vector<State> states_;
    std::unordered_map<std::string, int32_t> state_numbers_;
    std::unordered_map<int32_t, std::vector<uint64_t>> masks_;  // by state
    std::unordered_map<Grammar::Node, Local> locals_;
    size_t local_bytes_ = 0;  // of locals_, about
    int32_t now_ = 0;
    int32_t back_ = kUnknown;  // where look_ahead() began
};

TokenMask::TokenMask(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                     std::span<const int32_t> end_tokens)
    : machine_(std::make_unique<Machine>(std::move(grammar), std::move(trie), end_tokens)) {}
TokenMask::~TokenMask() = default;
TokenMask::TokenMask(TokenMask&&) noexcept = default;
TokenMask& TokenMask::operator=(TokenMask&&) noexcept = default;

std::span<const uint64_t> TokenMask::mask() {
    return machine_->mask();
}
bool TokenMask::allows(int32_t token) {
    return machine_->allows(token);
}
bool TokenMask::accept(int32_t token) {
    return machine_->accept(token);
}
bool TokenMask::accept(std::string_view bytes) {
    return machine_->accept(bytes);
}
bool TokenMask::can_end() const {
    return machine_->can_end();
}
bool TokenMask::must_end() const {
    return machine_->must_end();
}
void TokenMask::reset() {
    machine_->reset();
}
void TokenMask::look_ahead() {
    machine_->look_ahead();
}
void TokenMask::come_back() {
    machine_->come_back();
}

}  // namespace strata
