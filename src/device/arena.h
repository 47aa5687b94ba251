// Scratch memory of a call: a bump allocator over memory that a device gave once. Taking is a pointer addition; a Scope
// gives back what was taken inside it. A measuring arena has no memory and only counts, so sizes are known before
// anything is allocated (Engine sizes its scratch by a dry run of the model on a MeasuringDevice).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/tensor.h"

namespace strata {

class Arena {
  public:
    /// Memory [base, base + size); base null: measuring, nothing may follow its pointers.
    Arena(std::byte* base, uint64_t size) : base_(base), size_(size) {}
    Arena() = default;

    /// `bytes` aligned to 256. In a measured arena this cannot run out; if a caller's sizes are wrong anyway, null.
    std::byte* take(uint64_t bytes) {
        const uint64_t at = used_;
        used_ += (bytes + 255) & ~uint64_t{255};
        peak_ = std::max(peak_, used_);
        if (!base_) return reinterpret_cast<std::byte*>(uintptr_t{256} + at);
        return used_ <= size_ ? base_ + at : nullptr;
    }

    Rows rows(int count, int width) {
        auto* data = reinterpret_cast<float*>(take(uint64_t(count) * uint64_t(width) * sizeof(float)));
        return {data, count, width, width};
    }

    /// Float rows and their A8 codes.
    Activations activations(int count, int width) {
        Activations a;
        a.values = rows(count, width);
        a.codes = quantised(count, width);
        return a;
    }

    QuantisedRows quantised(int count, int width) {
        const auto n = static_cast<uint64_t>(count), w = static_cast<uint64_t>(width);
        QuantisedRows q;
        q.rows = count;
        q.width = width;
        q.values = reinterpret_cast<int8_t*>(take(n * w));
        q.scales = reinterpret_cast<float*>(take(n * (w / 32) * sizeof(float)));
        q.half_sums = reinterpret_cast<int16_t*>(take(n * (w / 16) * sizeof(int16_t)));
        return q;
    }

    Routing routing(int count, int used) {
        const uint64_t n = static_cast<uint64_t>(count) * static_cast<uint64_t>(used);
        auto* experts = reinterpret_cast<int32_t*>(take(n * sizeof(int32_t)));
        return {count, used, experts, reinterpret_cast<float*>(take(n * sizeof(float)))};
    }

    uint64_t used() const { return used_; }
    uint64_t peak() const { return peak_; }
    void reset() { used_ = 0; }

    /// Gives back, at its end, what was taken since its start.
    class Scope {
      public:
        explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
        ~Scope() { arena_.used_ = mark_; }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        Arena& arena_;
        uint64_t mark_;
    };

  private:
    std::byte* base_ = nullptr;
    uint64_t size_ = 0;
    uint64_t used_ = 0;
    uint64_t peak_ = 0;
};

}  // namespace strata
