// Grammars of requests as constraints of their answers (docs/structured-output.md).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "grammar/token_mask.h"

namespace strata {

namespace gguf {
class Metadata;
}

/// Makes constraints for one model. The last few grammars are kept with what has been learnt about them: agents send
/// the same ones again and again. One thread; constraints may outlive it.
class GrammarConstraints {
  public:
    /// The file is read when the first grammar comes. `end_ids`: of requests that name none.
    GrammarConstraints(const gguf::Metadata& file, std::vector<int32_t> end_ids)
        : file_(file), end_ids_(std::move(end_ids)) {}

    /// `stop_ids` null: the file's. Refuses damaged grammars, ones that are too large, and tokenizers without pieces.
    Result<std::shared_ptr<TokenConstraint>> make(const std::string& grammar, const std::vector<int32_t>* stop_ids);

  private:
    class Constraint;
    struct Known {
        std::string grammar;
        std::vector<int32_t> end_ids;
        std::shared_ptr<Constraint> constraint;
    };
    const gguf::Metadata& file_;
    const std::vector<int32_t> end_ids_;
    std::shared_ptr<const TokenTrie> trie_;
    std::vector<Known> known_;  // used last in front
};

}  // namespace strata
