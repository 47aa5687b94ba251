// The states of a reply that follows a grammar. A state is a set of configurations: a node that reads bytes, and the
// stack of nodes to return to. States and stacks are numbered, and steps between states are kept once they are known.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/grammar.h"

namespace strata {

class ReplyStates {
  public:
    using Id = int32_t;
    static constexpr Id dead = -1;

    // Stacks. A frame is where to go on, on top of another stack.
    static constexpr int32_t bottom = -1;   // the reply's own: to leave it is to have finished
    static constexpr int32_t outside = -2;  // of a node that is looked at alone: to leave it is an exit
    struct Frame {
        Grammar::Node node;
        int32_t parent;
    };
    struct Config {
        Grammar::Node node;
        int32_t frame;
        bool operator==(const Config&) const = default;
        auto operator<=>(const Config&) const = default;
    };
    struct State {
        std::vector<Config> configs;  // sorted; all read bytes
        bool accepting = false;       // the reply is complete
        bool exits = false;           // the node looked at alone has been left
        std::vector<Id> steps;        // [byte classes], filled as asked for
    };

    explicit ReplyStates(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {}

    /// The state at a node on a stack. Perhaps one from which nothing follows.
    Id at(Grammar::Node node, int32_t frame) {
        open_.assign(1, {node, frame});
        return close(false);
    }
    /// After one more byte, or dead.
    Id step(Id from, int byte_class) {
        const std::vector<Id>& steps = states_[static_cast<size_t>(from)].steps;
        const Id known = steps.empty() ? unknown : steps[static_cast<size_t>(byte_class)];
        return known != unknown ? known : new_step(from, byte_class);
    }

    /// References are valid until the next step or at().
    const State& operator[](Id id) const { return states_[static_cast<size_t>(id)]; }
    const Frame& frame(int32_t frame) const { return frames_[static_cast<size_t>(frame)]; }
    size_t size() const { return states_.size(); }

    void forget();
    /// Forgets all but one state; its number changes.
    Id forget_but(Id id);

  private:
    static constexpr Id unknown = -2;

    Id new_step(Id from, int byte_class);
    Id close(bool only_if_alive);
    bool is_new(const Config& config);
    int32_t frame_of(Grammar::Node node, int32_t parent);
    Id number(const std::vector<Config>& configs, bool accepting, bool exits);

    std::shared_ptr<const Grammar> grammar_;
    std::vector<Frame> frames_;
    std::unordered_map<uint64_t, int32_t> frame_numbers_;
    std::vector<State> states_;
    std::unordered_map<std::string, Id> state_numbers_;

    // Of close(), kept for their memory.
    std::vector<Config> open_, seen_, reading_;
    std::unordered_set<uint64_t> seen_many_;
    std::string key_;
};

}  // namespace strata
