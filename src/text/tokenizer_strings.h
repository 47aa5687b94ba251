// The vocabulary's strings: id to string and string to id.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_memory.h"

namespace strata {

/// Strings back to back in one block of memory, by index.
class StringArena {
  public:
    /// At most 4 GiB in all, which the callers check.
    void reserve(size_t strings, size_t bytes);
    void add(std::string_view text);
    size_t size() const { return ends_.size(); }
    std::string_view operator[](size_t i) const {
        const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
        return {text_.data() + begin, ends_[i] - begin};
    }

  private:
    std::string text_;
    std::vector<uint32_t> ends_;
};

/// The strings as stored in the file (an empty one as `[EMPTY_<id>]`) and their index.
class TokenStrings {
  public:
    /// Refuses two equal strings and more than 1 GiB of text; `source` is for messages.
    static Result<TokenStrings> make(std::span<const std::string_view> tokens, std::string_view source);

    int32_t size() const { return static_cast<int32_t>(strings_.size()); }
    std::string_view operator[](int32_t id) const { return strings_[static_cast<size_t>(id)]; }

    /// The id of a string, or -1.
    int32_t find(std::string_view text) const;

    /// The same for many at once, faster: their waits for memory overlap. `ids` has room for all.
    void find(std::span<const std::string_view> texts, int32_t* ids) const;

  private:
    struct Slot {
        uint32_t tag;  // upper half of the hash
        int32_t id;    // -1: free
    };
    int32_t find(std::string_view text, uint64_t hash) const;
    uint64_t hash(std::string_view text) const;

    StringArena strings_;
    Table<Slot> slots_;  // a power of two, at most half full
    uint64_t seed_ = 0;
};

}  // namespace strata
