// A mask is the union of parts (token_parts.h): what the tokens do from each node of the reply's state on, outwards
// along its stack.
#include "grammar/token_mask.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "grammar/reply_states.h"
#include "grammar/token_parts.h"

namespace strata {

class TokenMask::Machine {
  public:
    Machine(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
            std::span<const int32_t> end_tokens)
        : grammar_(std::move(grammar)),
          trie_(std::move(trie)),
          states_(grammar_),
          parts_(grammar_, trie_, states_),
          words_((trie_->vocab_size() + 63) / 64),
          masks_(kMasks * words_) {
        mask_of_.fill(none);
        for (int32_t token : end_tokens) {
            if (token >= 0 && static_cast<size_t>(token) < trie_->vocab_size()) end_tokens_.push_back(token);
        }
        reset();
        parts_.warm_up();
    }

    void reset() {
        now_ = states_.at(grammar_->start(), ReplyStates::bottom);
        back_ = none;
    }
    void look_ahead() { back_ = now_; }
    void come_back() { now_ = std::exchange(back_, none); }

    bool can_end() const { return states_[now_].accepting; }
    bool must_end() const { return can_end() && states_[now_].configs.empty(); }

    bool accept(std::string_view bytes) {
        if (states_.size() > kMostStates && back_ == none) {
            now_ = states_.forget_but(now_);
            mask_of_.fill(none);
        }
        const Id state = after(bytes);
        if (state == ReplyStates::dead) return false;
        now_ = state;
        return true;
    }

    bool accept(int32_t token) {
        if (is_end(token)) return can_end();
        const std::string_view piece = trie_->piece(token);
        return !piece.empty() && accept(piece);
    }

    bool allows(int32_t token) {
        if (is_end(token)) return can_end();
        const std::string_view piece = trie_->piece(token);
        return !piece.empty() && after(piece) != ReplyStates::dead;
    }

    std::span<const uint64_t> mask() {
        const auto words = static_cast<std::ptrdiff_t>(words_);
        const auto known = std::ranges::find(mask_of_, now_) - mask_of_.begin();
        if (known < kMasks) return {masks_.begin() + known * words, words_};
        const std::span mask(masks_.begin() + next_mask_ * words, words_);
        std::ranges::fill(mask, 0);
        mask_of_[static_cast<size_t>(next_mask_)] = now_;
        next_mask_ = (next_mask_ + 1) % kMasks;
        if (parts_.bytes() > kMostPartBytes) parts_.forget();
        // Parts walk through states, which move in memory then.
        configs_ = states_[now_].configs;
        for (const ReplyStates::Config& config : configs_) add_tokens(config, mask);
        for (int32_t token : end_tokens_) {  // whatever their text
            mask[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
            if (can_end()) set(mask, token);
        }
        return mask;
    }

  private:
    using Id = ReplyStates::Id;
    static constexpr Id none = -1;
    static constexpr size_t kMostStates = 50'000, kMostPartBytes = size_t{64} << 20;
    static constexpr std::ptrdiff_t kMasks = 32;

    static void set(std::span<uint64_t> mask, int32_t token) {
        mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    }
    bool is_end(int32_t token) const {
        return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
    }

    Id after(std::string_view bytes) {
        Id state = now_;
        for (size_t i = 0; i < bytes.size() && state != ReplyStates::dead; ++i)
            state = states_.step(state, grammar_->class_of(static_cast<uint8_t>(bytes[i])));
        return state;
    }

    void add_tokens(ReplyStates::Config at, std::span<uint64_t> mask) {
        TokenParts::RestsId rests = TokenParts::whole;
        while (true) {
            const TokenParts::Part& part = parts_.part(rests, at.node);
            for (size_t i = 0; i < part.many.size(); ++i) mask[i] |= part.many[i];
            for (const int32_t token : part.few) set(mask, token);
            if (!part.leaves || at.frame < 0) return;
            rests = part.rests;
            const ReplyStates::Frame& frame = states_.frame(at.frame);
            at = {frame.node, frame.parent};
        }
    }

    std::shared_ptr<const Grammar> grammar_;
    std::shared_ptr<const TokenTrie> trie_;
    ReplyStates states_;
    TokenParts parts_;
    std::vector<int32_t> end_tokens_;
    size_t words_;                      // of a mask
    std::vector<uint64_t> masks_;       // [kMasks, words], the last ones; touched before the reply begins
    std::array<Id, kMasks> mask_of_{};  // whose they are
    std::ptrdiff_t next_mask_ = 0;
    std::vector<ReplyStates::Config> configs_;  // of mask(), kept for its memory
    Id now_ = 0;
    Id back_ = none;  // where look_ahead() began
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
