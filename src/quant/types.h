// The tensor types a GGUF file can hold: codes, names, block sizes. Source: specs page quants, section 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace strata {

/// A tensor type; the value is the code in the file.
enum class Type : uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq1_s = 19,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    i8 = 24,
    i16 = 25,
    i32 = 26,
    i64 = 27,
    f64 = 28,
    iq1_m = 29,
    bf16 = 30,
    tq1_0 = 34,
    tq2_0 = 35,
    mxfp4 = 39,
    nvfp4 = 40,
    q1_0 = 41,
    q2_0 = 42,
};

struct TypeInfo {
    Type type;
    std::string_view name;  // as users write it: "Q4_K"
    uint32_t block;         // values of a block
    uint32_t bytes;         // bytes of a block
    bool quantised;         // decodes to the canonical form (docs/numerics.md); false: plain values
};

/// Facts of a type, or nullptr for a code that is not a value of Type. Never fails for an enumerator.
const TypeInfo* find_type(uint32_t code);
const TypeInfo& type_info(Type type);

/// The type with this name ("q4_k", "Q4_K"), if any.
std::optional<Type> type_by_name(std::string_view name);

/// Bytes of a row of `width` values; width must be a multiple of the type's block.
inline uint64_t row_bytes(Type type, uint64_t width) {
    const TypeInfo& info = type_info(type);
    return width / info.block * info.bytes;
}

}  // namespace strata
