// The canonical form of quantised weights: one decoder a type, shared by dequantising, the reference products,
// repacking and tests. Source: specs page quants, sections 2 and 3; docs/numerics.md says what is computed from it.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace strata {

/// 32 neighbouring weights of a row: w[i] = d[i/16] * s[i/16] * q[i] - e * mu[i/16].
/// d[0] == d[1] but for NVFP4; s[0] == s[1] and mu[0] == mu[1] but for types with groups of 16; e = 0 for types without
/// a minimum. d * s * q and e * mu are exact in float32 for every type.
struct CanonicalBlock {
    float d[2];
    float e;
    int8_t s[2];
    int8_t mu[2];
    int8_t q[32];
};

/// Canonical blocks of the longest file block (256 values).
inline constexpr int kMaxCanonicalBlocks = 8;

/// Decodes one block of a file: type_info(type).bytes bytes to type_info(type).block / 32 canonical blocks. Every bit
/// pattern decodes; a scale that is infinite or NaN is passed on.
using BlockDecoder = void (*)(const uint8_t* block, CanonicalBlock* out);

/// The decoder of a type; null where the type is not quantised.
BlockDecoder block_decoder(Type type);

/// What a kernel needs to know of a type, within the 32 values of a canonical block.
struct CanonicalTraits {
    int group;     // values that share s, mu and d: 16 or 32
    bool minimum;  // e and mu are in use
};
CanonicalTraits canonical_traits(Type type);

}  // namespace strata
