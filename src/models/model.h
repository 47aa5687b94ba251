// What the engine knows of a model: facts, the layout of a conversation's state, and a call's way through the layers.
// One file per architecture makes one; nothing outside that file asks which it is.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "gguf/file.h"

namespace strata {

struct ModelFacts {
    /// How a picture's rows are placed: not at all; at (P, P + line, P + column), text going on at P + max(columns,
    /// lines); or one after the other like text.
    enum class Pictures { none, grid, line };
    std::string architecture;
    int layers = 0;  // of the trunk
    int width = 0;   // of the residual stream
    int vocabulary = 0;
    int context = 0;              // trained context of the file
    int expert_layers = 0;        // layers with routed experts, the draft block's included
    int draft_expert_layers = 0;  // of them, the draft block's
    int experts = 0;              // of such a layer
    int experts_used = 0;
    Pictures pictures = Pictures::none;
    bool pictures_whole = false;     // a picture's rows see each other: all of them are in one call
    bool recurrent = false;          // the state has blocks: a window's rejected rows need the log
    std::vector<std::string> notes;  // one line each, for the log: ignored tensors, inferred rules
};

/// How the caches of a conversation are kept, and how long a call can be.
struct ModelOptions {
    Type cache_type = Type::f16;        // f16, q8_0 or f32
    int max_call_rows = 512;            // rows of the longest call (ring caches have room for it)
    const gguf::File* draft = nullptr;  // a draft model in a file of its own, which outlives the model; null: none
};

/// Guesses from a small block or model of its own that reads the main model's hidden rows. It keeps its rows in parts
/// of the conversation's own state, or has none and reads the main model's.
class DraftBlock {
  public:
    virtual ~DraftBlock() = default;
    /// false: it has no rows of its own, so nothing is filled, and a chain of guesses stays at one place: that of the
    /// row after the conversation's last one.
    virtual bool keeps_rows() const { return true; }
    /// Rows whose guess is not needed: only what later rows will read is written. `before` [rows, width] holds for each
    /// row the model's hidden row of the token before it.
    virtual void fill(Call& call, Rows before) = 0;
    /// Guesses: call.logits for call.outputs, and in call.hidden what takes the model's hidden row's place in a chain.
    virtual void guess(Call& call, Rows before) = 0;
};

class Model {
  public:
    virtual ~Model() = default;
    virtual const ModelFacts& facts() const = 0;
    virtual const StateLayout& layout() const = 0;

    /// A call in order: start, every layer, finish. The engine gives tokens, positions, spans and scratch (Call);
    /// `start` takes residual and tables from the scratch, `finish` hidden and logits. Between layers the engine may
    /// stop, or let other calls of the same read pass through the same layer.
    virtual void start(Call& call) = 0;
    virtual void layer(int index, Call& call) = 0;
    virtual void finish(Call& call) = 0;
    /// Brings the state's blocks up to date (Span::replay), for calls without rows.
    virtual void settle(Call& call) = 0;

    /// The file's draft block or the draft model of ModelOptions, or null. Lives as long as the model.
    virtual DraftBlock* draft() { return nullptr; }
};

/// The model of a file, its weights on the device. Refused: an architecture that is not known, a needed key or tensor
/// that is missing or has a wrong shape (by name), a draft model that does not fit. The file and the device outlive the
/// model.
Result<std::unique_ptr<Model>> make_model(const gguf::File& file, Device& device, const ModelOptions& options);

/// Architectures that make_model knows.
std::vector<std::string> known_architectures();
/// The architecture of draft models in files of their own for models of this one; empty: there are none.
std::string_view draft_architecture(std::string_view architecture);

}  // namespace strata
