// What a conversation remembers, described once so that shared code can checkpoint, park, restore, save and hash any
// model's state without knowing the model.
//
// A state is a list of parts. A model lists the parts it needs (StateLayout), a device gives them memory (State),
// operations name them by their place in the list (PartId).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "quant/types.h"

namespace strata {

class Device;

/// Rows a window of guesses may have; recurrent parts keep a log of this many rows.
inline constexpr int kMaxWindow = 8;

using PartId = int;

struct PartSpec {
    enum class Kind {
        rows,   // one row a token, all tokens of the conversation: row p is token p (global attention)
        ring,   // one row a token, the last `capacity`: token p lies in row p % capacity (window attention)
        block,  // a fixed number of bytes that every token changes (recurrent state, convolution history), and a log
    };
    Kind kind = Kind::rows;
    std::string name;        // for messages and saved files: "blk.3.k"
    Type type = Type::f16;   // of a row's values: f32, f16 or q8_0
    int width = 0;           // values of a row (rows and ring)
    int window = 0;          // ring: tokens that attention sees, the own one included
    int capacity = 0;        // ring: rows kept; at least window - 1 + the most rows of a call
    uint64_t bytes = 0;      // block: size, zero at a conversation's start
    uint64_t log_bytes = 0;  // block: bytes of one logged row (kMaxWindow of them follow the block)
    bool draft = false;      // of the draft block: guesses come from it, answers do not, so state hashes leave it out

    uint64_t row_bytes() const { return strata::row_bytes(type, static_cast<uint64_t>(width)); }
};

struct StateLayout {
    std::vector<PartSpec> parts;

    PartId add(PartSpec part) {
        parts.push_back(std::move(part));
        return static_cast<PartId>(parts.size()) - 1;
    }
};

/// One conversation's memory on a device, from Device::make_state; given back on destruction. The numbers are kept by
/// the engine, the bytes are changed by operations alone. Not thread-safe; a state takes part in one call at a time.
class State {
  public:
    State() = default;
    State(State&& other) noexcept { *this = std::move(other); }
    State& operator=(State&& other) noexcept;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { release(); }

    int rows = 0;           // tokens in it (cache rows), logged ones that were kept included
    int next_position = 0;  // of the next token; differs from rows once a picture was read
    int pending =
        0;  // kept rows of the last window that blocks have only in their log: the next call replays them first

    int capacity = 0;  // rows it may have

    const StateLayout& layout() const { return *layout_; }
    std::byte* part(PartId id) const { return parts_[static_cast<size_t>(id)]; }
    /// A block's log: kMaxWindow rows of log_bytes.
    std::byte* log(PartId id) const {
        return parts_[static_cast<size_t>(id)] + layout_->parts[static_cast<size_t>(id)].bytes;
    }
    int slot() const { return slot_; }
    explicit operator bool() const { return device_ != nullptr; }

  private:
    friend class Device;
    void release();

    Device* device_ = nullptr;
    const StateLayout* layout_ = nullptr;  // the model's; outlives the state
    std::vector<std::byte*> parts_;
    int slot_ = -1;  // the device's number of it
};

}  // namespace strata
