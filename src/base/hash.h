// A 64-bit hash of bytes, for checksums of files and comparisons of states; not for secrets. The value depends on the
// bytes alone, not on how they are cut into updates. Eight bytes a step: h = (h ^ w) * K, folded by its high half; the
// length and a last mix end it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace strata {

class Hasher {
  public:
    void update(const void* data, size_t bytes) {
        const auto* at = static_cast<const std::byte*>(data);
        length_ += bytes;
        if (held_ > 0) {
            const size_t take = bytes < 8 - held_ ? bytes : 8 - held_;
            std::memcpy(held_bytes_ + held_, at, take);
            held_ += take;
            at += take;
            bytes -= take;
            if (held_ < 8) return;
            step(held_bytes_);
            held_ = 0;
        }
        for (; bytes >= 8; at += 8, bytes -= 8) step(at);
        if (bytes > 0) std::memcpy(held_bytes_, at, bytes);
        held_ = bytes;
    }
    void update(std::span<const std::byte> bytes) { update(bytes.data(), bytes.size()); }
    void update(std::string_view text) { update(text.data(), text.size()); }
    void update_number(uint64_t value) { update(&value, sizeof value); }

    uint64_t value() const {
        uint64_t tail = 0;
        std::memcpy(&tail, held_bytes_, held_);
        uint64_t h = fold((state_ ^ tail) * kMultiplier);
        h = fold((h ^ length_) * kMultiplier);
        return fold(h * kMultiplier);
    }

  private:
    static constexpr uint64_t kMultiplier = 0x9fb21c651e98df25u;
    static uint64_t fold(uint64_t h) { return h ^ (h >> 32); }
    void step(const std::byte* at) {
        uint64_t word;
        std::memcpy(&word, at, 8);
        state_ = fold((state_ ^ word) * kMultiplier);
    }

    uint64_t state_ = 0x243f6a8885a308d3u;
    uint64_t length_ = 0;
    std::byte held_bytes_[8] = {};
    size_t held_ = 0;
};

inline uint64_t hash_bytes(std::span<const std::byte> bytes) {
    Hasher hasher;
    hasher.update(bytes);
    return hasher.value();
}

}  // namespace strata
