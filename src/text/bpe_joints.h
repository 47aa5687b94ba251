// Where text can be cut before merging, without changing what merging gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/utf8.h"

namespace strata {

/// The places between two characters that merges join across. A merge that crosses a place has a left symbol that ends
/// there and a right one that begins there; so where no merge has such symbols, both sides merge apart. That turns one
/// long problem (a sentence of Chinese, a line of `gemma4`) into many short ones, most of them whole words.
class Joints {
  public:
    Joints();

    /// Notes a merge by its symbols' bytes. Symbols may end or begin inside a character.
    void add(std::string_view left, std::string_view right);

    /// Whether a merge can cross the place at `at` between two characters, of which `before` ends there and `after`
    /// begins there. Bytes that are not UTF-8 are never cut off.
    bool may_join(const CodePoint& before, const CodePoint& after, const char* at) const {
        if (before.value < 0x80 && after.value < 0x80) return ascii_[before.value][after.value];
        if (!before.valid || !after.valid) return true;
        if (partial_[static_cast<uint8_t>(at[-1])][static_cast<uint8_t>(at[0])]) return true;
        return find(before.value, after.value);
    }

  private:
    static constexpr uint64_t free_slot = 0;  // two U+0000, which are ASCII
    bool find(uint32_t before, uint32_t after) const;
    void insert(uint64_t pair);
    size_t slot(uint64_t pair) const;

    bool ascii_[0x80][0x80] = {};
    // Merges of which a side is only a part of its character, by the bytes at the place: few, so this loses little.
    bool partial_[256][256] = {};
    std::vector<uint64_t> pairs_;  // other characters: a hash set, a power of two of slots, at most half full
    size_t count_ = 0;
    uint64_t seed_;
};

}  // namespace strata
