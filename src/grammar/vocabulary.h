// The bytes of a model's tokens, read from its file: all of text that the engine knows, for grammars.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace strata {

namespace gguf {
class Metadata;
}

/// [vocabulary]: what each token writes into a reply; empty for control, unknown and unused tokens. Refuses kinds of
/// tokenizers that it does not know (`gpt2` and `gemma4` are known; docs/tokenizers.md).
Result<std::vector<std::string>> token_pieces(const gguf::Metadata& file);

}  // namespace strata
