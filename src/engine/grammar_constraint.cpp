#include "engine/grammar_constraint.h"

#include <algorithm>

#include "gguf/metadata.h"
#include "grammar/grammar_text.h"
#include "grammar/vocabulary.h"

namespace strata {
namespace {

constexpr size_t kKept = 8;

}  // namespace

class GrammarConstraints::Constraint : public TokenConstraint {
  public:
    Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
               std::span<const int32_t> end_ids)
        : mask_(std::move(grammar), std::move(trie), end_ids) {}

    AllowedTokens allowed() override { return mask_.mask(); }
    bool accept(int32_t token) override { return mask_.accept(token); }
    bool complete() const override { return mask_.must_end(); }
    void look_ahead() override { mask_.look_ahead(); }
    void come_back() override { mask_.come_back(); }
    void reset() { mask_.reset(); }

  private:
    TokenMask mask_;
};

Result<std::shared_ptr<TokenConstraint>> GrammarConstraints::make(const std::string& grammar,
                                                                  const std::vector<int32_t>* stop_ids) {
    const std::vector<int32_t>& ends = stop_ids ? *stop_ids : end_ids_;
    // One that an answer still uses is not free, but stays known.
    const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) {
        return known.constraint.use_count() == 1 && known.end_ids == ends && known.grammar == grammar;
    });
    if (found != known_.end()) {
        std::rotate(known_.begin(), found, found + 1);
        known_.front().constraint->reset();
        return std::shared_ptr<TokenConstraint>(known_.front().constraint);
    }
    auto compiled = parse_grammar_text(grammar);
    if (!compiled) return usage_error("bad request: the grammar is refused: " + compiled.error().message);
    if (!trie_) {
        STRATA_TRY_ASSIGN(const std::vector<std::string> pieces, token_pieces(file_));
        const std::vector<std::string_view> views(pieces.begin(), pieces.end());
        trie_ = std::make_shared<const TokenTrie>(views);
    }
    auto shared = std::make_shared<const Grammar>(std::move(*compiled));
    known_.insert(known_.begin(), {grammar, ends, std::make_shared<Constraint>(std::move(shared), trie_, ends)});
    if (known_.size() > kKept) known_.pop_back();
    return std::shared_ptr<TokenConstraint>(known_.front().constraint);
}

}  // namespace strata
