#include "engine/state_copy.h"

#include <algorithm>

#include "base/hash.h"

namespace strata {
namespace {

using Kind = PartSpec::Kind;

/// Tokens [first, end) of a ring whose rows attention may still see.
struct RingRows {
    int first, end;
};

RingRows live_rows(const PartSpec& ring, int rows) {
    return {std::max(0, rows - (ring.window - 1)), rows};
}

/// Calls copy(ring row, place among the live rows, count) for the stretches in which live rows lie in the ring.
template <class Copy>
void each_stretch(const PartSpec& ring, int rows, Copy copy) {
    const RingRows live = live_rows(ring, rows);
    for (int token = live.first; token < live.end;) {
        const int row = token % ring.capacity;
        const int count = std::min(live.end - token, ring.capacity - row);
        copy(static_cast<uint64_t>(row), static_cast<uint64_t>(token - live.first), static_cast<uint64_t>(count));
        token += count;
    }
}

template <class Visit>
void each_part(const StateLayout& layout, Visit visit) {
    for (PartId id = 0; id < static_cast<PartId>(layout.parts.size()); ++id)
        visit(id, layout.parts[static_cast<size_t>(id)]);
}

uint64_t part_bytes(const PartSpec& part, int rows) {
    switch (part.kind) {
        case Kind::rows: return part.row_bytes() * static_cast<uint64_t>(rows);
        case Kind::ring: {
            const RingRows live = live_rows(part, rows);
            return part.row_bytes() * static_cast<uint64_t>(live.end - live.first);
        }
        case Kind::block: return part.bytes;
    }
    return 0;
}

}  // namespace

uint64_t changing_bytes(const StateLayout& layout, int rows) {
    uint64_t bytes = 0;
    each_part(layout, [&](PartId, const PartSpec& part) {
        if (part.kind != Kind::rows) bytes += part_bytes(part, rows);
    });
    return bytes;
}

void copy_changing_to_host(Device& device, const State& state, std::byte* out) {
    each_part(state.layout(), [&](PartId id, const PartSpec& part) {
        const uint64_t size = part.row_bytes();
        if (part.kind == Kind::ring)
            each_stretch(part, state.rows, [&](uint64_t row, uint64_t place, uint64_t count) {
                device.copy_to_host_later(out + place * size, state.part(id) + row * size, count * size);
            });
        if (part.kind == Kind::block) device.copy_to_host_later(out, state.part(id), part.bytes);
        if (part.kind != Kind::rows) out += part_bytes(part, state.rows);
    });
}

void copy_changing_from_host(Device& device, State& state, int rows, const std::byte* from) {
    each_part(state.layout(), [&](PartId id, const PartSpec& part) {
        const uint64_t size = part.row_bytes();
        if (part.kind == Kind::ring)
            each_stretch(part, rows, [&](uint64_t row, uint64_t place, uint64_t count) {
                device.copy_from_host(state.part(id) + row * size, from + place * size, count * size);
            });
        if (part.kind == Kind::block) device.copy_from_host(state.part(id), from, part.bytes);
        if (part.kind != Kind::rows) from += part_bytes(part, rows);
    });
}

uint64_t lasting_bytes(const StateLayout& layout, int rows) {
    uint64_t bytes = 0;
    each_part(layout, [&](PartId, const PartSpec& part) {
        if (part.kind == Kind::rows) bytes += part_bytes(part, rows);
    });
    return bytes;
}

void copy_lasting_to_host(Device& device, const State& state, int rows, std::byte* out) {
    each_part(state.layout(), [&](PartId id, const PartSpec& part) {
        if (part.kind != Kind::rows) return;
        const uint64_t bytes = part_bytes(part, rows);
        if (bytes > 0) device.copy_to_host(out, state.part(id), bytes);
        out += bytes;
    });
}

void copy_lasting_from_host(Device& device, State& state, int rows, int stored, const std::byte* from) {
    each_part(state.layout(), [&](PartId id, const PartSpec& part) {
        if (part.kind != Kind::rows) return;
        if (rows > 0) device.copy_from_host(state.part(id), from, part_bytes(part, rows));
        from += part_bytes(part, stored);
    });
}

void copy_between(Device& device, const State& from, State& to, int rows, bool changing) {
    each_part(from.layout(), [&](PartId id, const PartSpec& part) {
        uint64_t bytes = 0;
        if (part.kind == Kind::rows)
            bytes = part_bytes(part, rows);
        else if (changing)
            bytes = part.kind == Kind::block ? part.bytes : part.row_bytes() * static_cast<uint64_t>(part.capacity);
        if (bytes > 0) device.copy(to.part(id), from.part(id), bytes);
    });
}

void clear_blocks(Device& device, State& state) {
    each_part(state.layout(), [&](PartId id, const PartSpec& part) {
        if (part.kind == Kind::block) device.zero(state.part(id), part.bytes);
    });
}

uint64_t hash_state(Device& device, const State& state) {
    constexpr uint64_t kPiece = uint64_t{1} << 20;
    std::vector<std::byte> buffer;
    Hasher hasher;
    hasher.update_number(static_cast<uint64_t>(state.rows));
    hasher.update_number(static_cast<uint64_t>(state.next_position));
    const auto add = [&](const std::byte* from, uint64_t bytes) {
        for (uint64_t at = 0; at < bytes; at += kPiece) {
            buffer.resize(std::min(kPiece, bytes - at));
            device.copy_to_host(buffer.data(), from + at, buffer.size());
            hasher.update(buffer);
        }
    };
    each_part(state.layout(), [&](PartId id, const PartSpec& part) {
        if (part.draft) return;
        if (part.kind == Kind::ring)
            each_stretch(part, state.rows, [&](uint64_t row, uint64_t, uint64_t count) {
                add(state.part(id) + row * part.row_bytes(), count * part.row_bytes());
            });
        else
            add(state.part(id), part_bytes(part, state.rows));
    });
    return hasher.value();
}

std::string hash_text(uint64_t hash) {
    std::string text(16, '0');
    for (size_t i = 16; i-- > 0; hash >>= 4) text[i] = "0123456789abcdef"[hash & 15];
    return text;
}

}  // namespace strata
