// The container's header, keys and tensor infos from a range of bytes that nobody trusts. Source: specs page gguf,
// sections 3 to 6 and 8 (limits and refusal codes).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/metadata.h"
#include "quant/types.h"

namespace strata::gguf {

inline constexpr uint64_t kMaxTensors = 1u << 20;
inline constexpr uint64_t kMaxKeys = 1u << 16;
inline constexpr uint64_t kMaxKeyLength = 65535;
inline constexpr uint64_t kMaxTensorName = 63;
inline constexpr uint64_t kMaxString = 64u << 20;
inline constexpr uint64_t kMaxArray = 1u << 28;
inline constexpr uint32_t kMaxDims = 4;
inline constexpr uint64_t kDefaultAlignment = 32;
inline constexpr uint64_t kMinAlignment = 8;
inline constexpr uint64_t kMaxAlignment = 65536;

/// A tensor of a file or a set of files. Data is whole blocks, row after row, matrix after matrix, never padded; only
/// its start is aligned. Never read past data + bytes: the file may end there.
struct TensorInfo {
    std::string_view name;
    Type type = Type::f32;
    uint32_t n_dims = 0;                          // as stored, 0 to 4; 0 is a scalar
    std::array<uint64_t, 4> dims = {1, 1, 1, 1};  // dims[0] is contiguous (the row's width); missing ones are 1
    uint64_t bytes = 0;
    uint32_t file = 0;                // which file of the set, from 0
    uint64_t offset = 0;              // of the first byte, from the start of that file
    const std::byte* data = nullptr;  // [dims[3], dims[2], dims[1], row_bytes()]

    uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
    uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
    uint64_t row_bytes() const { return strata::row_bytes(type, dims[0]); }
    /// Bytes of one matrix of a stack: expert e of fused experts begins at data + e * matrix_bytes().
    uint64_t matrix_bytes() const { return dims[1] * row_bytes(); }
};

/// "[2048, 512, 256]": for messages.
std::string dims_text(const TensorInfo& tensor);

/// What one file says of itself. Views into the bytes that were parsed.
struct Container {
    uint32_t version = 0;
    uint64_t alignment = kDefaultAlignment;
    uint64_t data_start = 0;          // end of the infos, rounded up to the alignment where there are tensors
    std::vector<Key> keys;            // file order
    std::vector<TensorInfo> tensors;  // file order
};

/// Parses a whole file's bytes. Refuses with file_error: message "NAME: ...", code from the spec. Takes memory
/// proportional to the number of entries found, never to a number the file merely claims.
Result<Container> parse(std::span<const std::byte> bytes, std::string_view name);

}  // namespace strata::gguf
