// Instruction sets that kernels are compiled for. Every kernel gives the same bits on all of them (docs/numerics.md).
#pragma once

#include <optional>
#include <string_view>

namespace strata::cpu {

enum class Simd { scalar, avx2, avx512 };

/// The best that this machine has.
Simd best_simd();
/// "scalar", "avx2", "avx512".
std::string_view name_of(Simd simd);
std::optional<Simd> simd_by_name(std::string_view name);

}  // namespace strata::cpu
