// A conversation: its state on the device, the rows that made it, and its checkpoints. Several exist; nothing is
// shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "engine/host_bytes.h"
#include "engine/suffix_index.h"
#include "models/model.h"

namespace strata {

/// What a row was made from: a token id, or for a picture's row a negative number made from its values. Equal keys,
/// equal rows.
using RowKey = int64_t;

/// How many keys two lists have in common from their start on.
int64_t common_prefix(std::span<const RowKey> a, std::span<const RowKey> b);

/// What a state's rows do not keep by themselves at an earlier point (engine/state_copy.h), in host memory.
struct Checkpoint {
    int rows = 0;
    int next_position = 0;
    bool drafts = false;  // the draft block's rows are there too
    HostBytes changing;
    HostBytes hidden;   // the model's hidden row of the last token, where there is a draft block
    uint64_t used = 0;  // when, on the owner's clock

    uint64_t bytes() const { return changing.size() + hidden.size(); }
};

/// A whole conversation in host memory (parked, or on its way to or from a file).
struct PackedConversation {
    std::vector<RowKey> keys;
    int next_position = 0;
    bool drafts = false;
    HostBytes lasting, changing, hidden;
    std::vector<Checkpoint> checkpoints;  // by rows, ascending
    uint64_t used = 0;

    int rows() const { return static_cast<int>(keys.size()); }
    uint64_t bytes() const;
};

class Conversation {
  public:
    /// Room for `capacity` rows at first. The device and the model outlive it.
    static Result<std::unique_ptr<Conversation>> make(Device& device, const Model& model, bool drafts, int capacity);
    ~Conversation();
    Conversation(const Conversation&) = delete;
    Conversation& operator=(const Conversation&) = delete;

    State& state() { return state_; }
    int rows() const { return state_.rows; }
    std::span<const RowKey> keys() const { return keys_; }
    /// Whether the draft block's caches hold all rows, so that it can be asked.
    bool drafts() const { return drafts_; }
    /// The model's hidden row of the last token [width] on the device, zero at the start; null without a draft block.
    float* hidden() const { return reinterpret_cast<float*>(hidden_); }
    SuffixIndex& repeats() { return repeats_; }

    /// Room for `rows` rows: a larger state takes the place of the old one.
    Result<void> reserve(int rows);

    /// Rows that a call has evaluated and that are kept; logged: of a window whose blocks still have to take them in
    /// (Span).
    /// next_position: of the token after them, where that is not one further a row (pictures).
    void keep(std::span<const RowKey> keys, bool logged, std::optional<int> next_position = {});
    /// A call wrote cache rows up to here, kept or not.
    void wrote(int rows) { written_ = rows > written_ ? rows : written_; }

    /// Forgets everything.
    void clear();
    /// Whether the state can become that of its first `rows` rows without a checkpoint: nothing recurrent, rings not
    /// overwritten.
    bool can_cut_to(int rows) const;
    void cut_to(int rows);

    /// The checkpoint with the most rows, not above `most`; null: none.
    const Checkpoint* checkpoint_below(int64_t most) const;
    const std::vector<Checkpoint>& checkpoints() const { return checkpoints_; }
    /// Keeps a checkpoint of the settled state, unless there is one at this row or no memory. At most `limit` stay: the
    /// one with the fewest rows, the others by use.
    void save_checkpoint(int limit, uint64_t now);
    /// Back to a checkpoint of this conversation.
    void restore(const Checkpoint& checkpoint, uint64_t now);

    /// Everything in host memory; nothing where there is not enough of it. The state is settled.
    std::unique_ptr<PackedConversation> pack() const;
    /// Becomes the packed one, cut to one of its checkpoints or whole (null). Has room for its rows (reserve).
    void unpack(const PackedConversation& packed, const Checkpoint* cut);
    /// Becomes a copy of another conversation cut to one of its checkpoints. Has room for its rows.
    void copy_from(const Conversation& other, const Checkpoint& cut);

    uint64_t used = 0;  // when, on the owner's clock

  private:
    Conversation(Device& device, const StateLayout& layout, int width)
        : device_(device), layout_(layout), width_(width) {}
    uint64_t hidden_bytes() const { return hidden_ ? static_cast<uint64_t>(width_) * sizeof(float) : 0; }
    void drop_beyond(int rows);
    bool fill_checkpoint(Checkpoint& checkpoint) const;
    void take_checkpoint(const Checkpoint& checkpoint);

    Device& device_;
    const StateLayout& layout_;
    const int width_;
    State state_;
    std::vector<RowKey> keys_;  // [state_.rows]
    std::byte* hidden_ = nullptr;
    bool drafts_ = false;
    int written_ = 0;                      // rings: highest row written since the start, plus one
    int restored_ = 0;                     // rings: they were filled from a checkpoint at this row
    std::vector<Checkpoint> checkpoints_;  // by rows, ascending
    SuffixIndex repeats_;
};

}  // namespace strata
