// One call of the model after the other: gathers rows of conversations, takes them through the layers, hands out logits
// on the host, and keeps the draft block's caches in step.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "engine/conversation.h"
#include "engine/picture_input.h"
#include "models/model.h"

namespace strata {

struct RunnerLimits {
    int rows = 512;      // of a call
    int outputs = 8;     // rows of a call whose logits are wanted
    int spans = 1;       // conversations of a call
    bool drafts = true;  // use the model's draft block, if it has one
};

/// Rows of a call that became the conversation's last ones.
struct KeptRows {
    Conversation* conversation;
    int first;
    int kept;
};

class ModelRunner {
  public:
    /// Scratch that the calls of these limits need, from a dry run of a model that was made on a measuring device.
    static Result<uint64_t> measure(Model& model, Device& measuring, const RunnerLimits& limits);
    /// Takes `scratch_bytes` from the device. Model and device outlive the runner.
    static Result<std::unique_ptr<ModelRunner>> make(Model& model, Device& device, const RunnerLimits& limits,
                                                     uint64_t scratch_bytes);
    ~ModelRunner();

    const RunnerLimits& limits() const { return limits_; }
    DraftBlock* draft() const { return limits_.drafts ? model_.draft() : nullptr; }

    // A call: begin, add spans, want rows, run.
    void begin();
    /// The conversation's next rows; `log`: a window of guesses. Has room for them. Returns the first one's place in
    /// the call.
    int add(Conversation& conversation, std::span<const int32_t> tokens, bool log);
    /// The same of a prompt with pictures; the only span of its call.
    int add(Conversation& conversation, std::span<const int32_t> tokens, const PictureInput& pictures);
    /// Logits of a row of the call, asked for in ascending order.
    void want(int row);
    int rows() const { return static_cast<int>(tokens_.size()); }

    /// Asked before every layer: false stops the call, and the states of its conversations are no longer of any use.
    using KeepGoing = std::function<bool(int layer)>;
    /// Gets the logits of every row of the call, in order.
    using EveryRow = std::function<void(int row, std::span<const float> logits)>;
    /// True: done; false: stopped. Errors are the device's.
    Result<bool> run(const KeepGoing& keep_going, const EveryRow& every_row = {});

    /// Whether calls and guesses from now on need only say which token is likeliest: a device may do that itself and
    /// leave the logits where they are.
    void rank_only(bool on) { rank_only_ = on; }
    /// Of the n-th wanted row; null where the logits are to be looked at. Valid until the next begin.
    const Likeliest* likeliest(int n) const { return ranked_ ? &likeliest_[static_cast<size_t>(n)] : nullptr; }
    /// Logits of the n-th wanted row, for the caller to change; not where likeliest tells. Valid until the next begin.
    std::span<float> logits(int n);

    /// After run and Conversation::keep. Moves the conversations' hidden rows on and brings the draft block's caches up
    /// to them.
    void advance_drafts(std::span<const KeptRows> kept);

    /// One guess of the draft block for each conversation, `depth` rows beyond its own: after `tokens`, which will
    /// stand at rows rows() + depth. Depth 0 comes first, each next depth for a beginning of the same list. Logits as
    /// after run.
    Result<void> guess(std::span<Conversation* const> conversations, std::span<const int32_t> tokens, int depth);

    /// Brings blocks up to date (State::pending becomes 0).
    Result<void> settle(Conversation& conversation);

  private:
    ModelRunner(Model& model, Device& device, const RunnerLimits& limits);
    /// What is wanted of a call's logits, to the host.
    void take_logits(const Call& call);
    void read_logits(const Call& call);
    void set_positions(int first_position, int rows);

    Model& model_;
    Device& device_;
    RunnerLimits limits_;
    std::byte* memory_ = nullptr;
    std::byte* chain_ = nullptr;  // [spans, width]: hidden rows of the last guesses
    Arena arena_{nullptr, 0};

    Call call_;
    std::vector<Span> spans_;
    std::vector<int32_t> tokens_;
    std::vector<std::array<int32_t, 3>> positions_;
    std::vector<int32_t> outputs_;
    PictureInput::Part pictures_;
    std::vector<int32_t> fill_tokens_;
    std::vector<std::array<int32_t, 3>> fill_positions_;
    std::vector<float> logits_;         // [outputs, vocabulary]
    std::vector<Likeliest> likeliest_;  // [outputs]
    bool rank_only_ = false;
    bool ranked_ = false;  // the last call's outputs are in likeliest_
};

}  // namespace strata
