// Memory that an operation needs while it runs. Blocks that are never moved; at the next operation's start several
// blocks become one, so after a few calls nothing is allocated any more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace strata::cpu {

class Workspace {
  public:
    /// Everything taken so far is free again.
    void reset() {
        if (blocks_.size() > 1) {
            uint64_t total = 0;
            for (const Block& block : blocks_) total += block.size;
            blocks_.clear();
            add(total);
        }
        used_ = 0;
    }

    /// `count` values, uninitialised, at a multiple of 64 bytes.
    template <class T>
    T* take(uint64_t count) {
        const uint64_t bytes = (count * sizeof(T) + 63) & ~uint64_t{63};
        if (blocks_.empty() || used_ + bytes > blocks_.back().size) {
            add(std::max<uint64_t>(bytes, uint64_t{1} << 20));
            used_ = 0;
        }
        std::byte* at = blocks_.back().start + used_;
        used_ += bytes;
        return reinterpret_cast<T*>(at);
    }

  private:
    struct Block {
        std::unique_ptr<std::byte[]> memory;
        std::byte* start;
        uint64_t size;
    };

    void add(uint64_t bytes) {
        Block block{std::make_unique_for_overwrite<std::byte[]>(bytes + 63), nullptr, bytes};
        block.start =
            reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(block.memory.get()) + 63) & ~uintptr_t{63});
        blocks_.push_back(std::move(block));
    }

    std::vector<Block> blocks_;
    uint64_t used_ = 0;  // of the last block
};

}  // namespace strata::cpu
