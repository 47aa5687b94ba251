// What a model file says of itself in its header: names, sizes, how much of it is experts. Reads no weights and knows
// no architecture; whether a model can run is the engine's to say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"

namespace strata {

struct TypeShare {
    Type type = Type::f32;
    uint64_t tensors = 0;
    uint64_t bytes = 0;
};

struct ModelFile {
    std::string architecture;  // general.architecture; empty where the file has none
    std::string kind;          // general.type, "model" where absent
    std::string name;          // general.name, else the file's
    std::string quantisation;  // from the file's name ("UD-Q3_K_M"), else the type most of its bytes have
    std::string tokenizer;     // tokenizer.ggml.model and .pre: "gpt2/qwen35"
    bool chat_template = false;
    bool draft_block = false;  // layers for guesses are in the file
    int64_t layers = 0;        // block_count, the draft block's included
    int64_t width = 0;
    int64_t vocabulary = 0;
    int64_t context = 0;  // trained
    int64_t experts = 0;  // of a layer; 0: a dense model
    int64_t experts_used = 0;
    uint64_t parameters = 0;         // of all tensors
    uint64_t parameters_active = 0;  // that one token uses: routed experts count by experts_used / experts
    uint64_t file_bytes = 0;         // of all parts of the set
    uint64_t tensor_bytes = 0;
    uint64_t expert_bytes = 0;     // routed experts; the rest are the dense weights
    std::vector<TypeShare> types;  // largest first

    uint64_t dense_bytes() const { return tensor_bytes - expert_bytes; }
};

/// Facts of an open file. A key of a wrong type is an error; a missing one leaves its field empty.
Result<ModelFile> describe_model_file(const gguf::File& file);

/// Whether a tensor holds routed experts ("blk.3.ffn_up_exps.weight").
bool is_expert_tensor(std::string_view name);

/// The quantisation that a file's name tells ("Q4_K_M", "UD-IQ3_XXS", "BF16"), or empty.
std::string quantisation_in_name(std::string_view file_name);

/// "35B", "3.1B", "460M": parameters for people.
std::string parameters_text(uint64_t parameters);

/// Bytes for people: "17.1 GB" (10^9) from a GB on, else "1.5 MB" or "900 B".
std::string bytes_text(uint64_t bytes);

}  // namespace strata
