// Random weights made directly in their file form: random codes, scales that give the wanted spread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gguf/writer.h"
#include "quant/types.h"

namespace strata::synth {

/// What a tensor is filled with.
struct Fill {
    enum class Kind {
        normal,        // mean + spread * N(0, 1); quantised types have mean 0
        values,        // the given numbers (F32)
        distinct_ids,  // I32: each row is different numbers below `limit`
    };
    Kind kind = Kind::normal;
    float mean = 0;
    float spread = 1;
    float row_spread = 0;  // row r is multiplied by 1 + row_spread * N(0, 1), at least 0.2 (float types only)
    int32_t limit = 0;
    std::vector<float> values;
};

/// One tensor's filler: pieces of it may be made in any order, on any thread.
class Filler {
  public:
    /// Anything that lay_out accepts. `seed` is the file's; the tensor's name goes into it, so its bytes do not depend
    /// on what else the file holds.
    Filler(const gguf::TensorSpec& tensor, const Fill& fill, uint64_t seed);

    uint64_t bytes() const { return bytes_; }
    /// Pieces have this size (the last one less): whole blocks, about 1 MiB.
    uint64_t piece_bytes() const { return piece_bytes_; }
    uint64_t pieces() const { return (bytes_ + piece_bytes_ - 1) / piece_bytes_; }
    /// Makes piece `index`; out has the piece's size.
    void make(uint64_t index, std::span<std::byte> out) const;

  private:
    void make_floats(uint64_t first, std::span<std::byte> out, uint64_t seed) const;
    void make_ids(uint64_t first, std::span<std::byte> out, uint64_t seed) const;
    void make_blocks(std::span<std::byte> out, uint64_t seed) const;

    Type type_;
    uint64_t width_;
    Fill fill_;
    uint64_t seed_;
    uint64_t bytes_;
    uint64_t piece_bytes_;
    std::vector<uint16_t> scales_;     // halves that a block's scale is drawn from
    std::vector<uint16_t> minima_;     // the same blocks' minima, types with one
    uint8_t byte_scales_[2] = {0, 0};  // MXFP4, NVFP4: one of two scale bytes,
    uint32_t second_share_ = 0;        // the second with this probability of 65536
};

}  // namespace strata::synth
