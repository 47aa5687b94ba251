// Sizes are computed once, with overflow checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace strata {

/// a + b, or nothing where the sum does not fit.
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}

/// a * b, or nothing where the product does not fit.
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
    return product;
}

/// value rounded up to a multiple of a power of two, or nothing where it does not fit.
inline std::optional<uint64_t> checked_round_up(uint64_t value, uint64_t power_of_two) {
    auto sum = checked_add(value, power_of_two - 1);
    if (!sum) return std::nullopt;
    return *sum & ~(power_of_two - 1);
}

inline constexpr int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
inline constexpr int64_t round_up(int64_t a, int64_t b) {
    return ceil_div(a, b) * b;
}

}  // namespace strata
