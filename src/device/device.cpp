#include "device/device.h"

#include "base/checked.h"

namespace strata {
namespace {

/// Bytes of a part for max_rows rows, or nothing where that overflows.
std::optional<uint64_t> part_bytes(const PartSpec& part, int max_rows) {
    switch (part.kind) {
        case PartSpec::Kind::rows: return checked_mul(part.row_bytes(), static_cast<uint64_t>(max_rows));
        case PartSpec::Kind::ring: return checked_mul(part.row_bytes(), static_cast<uint64_t>(part.capacity));
        case PartSpec::Kind::block: {
            const auto log = checked_mul(part.log_bytes, kMaxWindow);
            return log ? checked_add(part.bytes, *log) : std::nullopt;
        }
    }
    return std::nullopt;
}

}  // namespace

Result<State> Device::make_state(const StateLayout& layout, int max_rows) {
    State state;
    state.device_ = this;
    state.layout_ = &layout;
    state.capacity = max_rows;
    for (const PartSpec& part : layout.parts) {
        const auto bytes = part_bytes(part, max_rows);
        if (!bytes)
            return device_error("a conversation of " + std::to_string(max_rows) + " rows is larger than any memory");
        STRATA_TRY_ASSIGN(std::byte * memory, allocate(*bytes, part.name.c_str()));
        state.parts_.push_back(memory);
        if (part.kind == PartSpec::Kind::block) zero(memory, *bytes);
    }
    state.slot_ = attach(state);
    return state;
}

State& State::operator=(State&& other) noexcept {
    if (this == &other) return *this;
    release();
    rows = other.rows;
    next_position = other.next_position;
    pending = other.pending;
    capacity = other.capacity;
    device_ = std::exchange(other.device_, nullptr);
    layout_ = other.layout_;
    parts_ = std::move(other.parts_);
    slot_ = other.slot_;
    return *this;
}

void State::release() {
    if (!device_) return;
    if (slot_ >= 0) device_->detach(*this);
    for (std::byte* memory : parts_) device_->release(memory);
    parts_.clear();
    device_ = nullptr;
}

}  // namespace strata
