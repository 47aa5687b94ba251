#include "grammar/reply_states.h"

#include <algorithm>

namespace strata {
namespace {

uint64_t pair_key(int32_t high, int32_t low) {
    return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
}

}  // namespace

ReplyStates::Id ReplyStates::new_step(Id from, int byte_class) {
    open_.clear();
    for (const Config& config : states_[static_cast<size_t>(from)].configs) {
        const Grammar::Node node = grammar_->next_class(config.node, byte_class);
        if (node != Grammar::none) open_.push_back({node, config.frame});
    }
    const Id to = open_.empty() ? dead : close(true);
    std::vector<Id>& steps = states_[static_cast<size_t>(from)].steps;
    if (steps.empty()) steps.assign(static_cast<size_t>(grammar_->classes()), unknown);
    steps[static_cast<size_t>(byte_class)] = to;
    return to;
}

/// The state of the configurations in open_: follows calls and returns until every one reads bytes.
ReplyStates::Id ReplyStates::close(bool only_if_alive) {
    seen_.clear();
    seen_many_.clear();
    reading_.clear();
    bool accepting = false, exits = false;
    while (!open_.empty()) {
        const Config config = open_.back();
        open_.pop_back();
        if (!is_new(config)) continue;
        if (grammar_->reads_bytes(config.node)) reading_.push_back(config);
        if (grammar_->is_final(config.node)) {
            if (config.frame == bottom) {
                accepting = true;
            } else if (config.frame == outside) {
                exits = true;
            } else {
                const Frame& frame = frames_[static_cast<size_t>(config.frame)];
                open_.push_back({frame.node, frame.parent});
            }
        }
        for (const Grammar::Call& call : grammar_->calls(config.node)) {
            // Where nothing is left to do behind the call, its caller's caller is the one to return to.
            const int32_t frame = grammar_->is_end(call.next) ? config.frame : frame_of(call.next, config.frame);
            open_.push_back({grammar_->start_of(call.rule), frame});
        }
    }
    if (only_if_alive && reading_.empty() && !accepting && !exits) return dead;
    std::sort(reading_.begin(), reading_.end());
    return number(reading_, accepting, exits);
}

bool ReplyStates::is_new(const Config& config) {
    constexpr size_t kFew = 32;
    if (seen_.size() < kFew) {
        if (std::find(seen_.begin(), seen_.end(), config) != seen_.end()) return false;
        seen_.push_back(config);
        if (seen_.size() == kFew) {
            for (const Config& one : seen_) seen_many_.insert(pair_key(one.node, one.frame));
        }
        return true;
    }
    return seen_many_.insert(pair_key(config.node, config.frame)).second;
}

int32_t ReplyStates::frame_of(Grammar::Node node, int32_t parent) {
    auto [place, fresh] = frame_numbers_.emplace(pair_key(node, parent), static_cast<int32_t>(frames_.size()));
    if (fresh) frames_.push_back({node, parent});
    return place->second;
}

ReplyStates::Id ReplyStates::number(const std::vector<Config>& configs, bool accepting, bool exits) {
    key_.assign(reinterpret_cast<const char*>(configs.data()), configs.size() * sizeof(Config));
    key_ += static_cast<char>(accepting | exits << 1);
    auto [place, fresh] = state_numbers_.emplace(key_, static_cast<Id>(states_.size()));
    if (fresh) states_.push_back({configs, accepting, exits, {}});
    return place->second;
}

void ReplyStates::forget() {
    frames_.clear();
    frame_numbers_.clear();
    states_.clear();
    state_numbers_.clear();
}

ReplyStates::Id ReplyStates::forget_but(Id id) {
    const State kept = states_[static_cast<size_t>(id)];
    const std::vector<Frame> old = frames_;
    forget();
    std::vector<Config> configs;
    for (const Config& config : kept.configs) {
        std::vector<Grammar::Node> stack;
        int32_t at = config.frame;
        for (; at >= 0; at = old[static_cast<size_t>(at)].parent) stack.push_back(old[static_cast<size_t>(at)].node);
        int32_t frame = at;
        for (size_t i = stack.size(); i-- > 0;) frame = frame_of(stack[i], frame);
        configs.push_back({config.node, frame});
    }
    std::sort(configs.begin(), configs.end());
    return number(configs, kept.accepting, kept.exits);
}

}  // namespace strata
