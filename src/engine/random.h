// Randomness without a state: a value is a function of what it is for, so the draw at a step is the same whether the
// step is reached token by token or inside a window of guesses, and whatever was drawn before.
//
// The generator: SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014)
// over seed, step and token id, each folded in by a round of it.
#pragma once

#include <cmath>
#include <cstdint>

namespace strata {

inline uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/// A number in (0, 1) for a token at a step.
inline double uniform_noise(uint64_t seed, uint64_t step, uint64_t id) {
    return (static_cast<double>(mix64(mix64(mix64(seed) ^ step) ^ id) >> 11) + 0.5) * 0x1p-53;
}

/// Gumbel noise: the token with the largest log p + noise is a draw from p.
inline double gumbel_noise(uint64_t seed, uint64_t step, uint64_t id) {
    return -std::log(-std::log(uniform_noise(seed, step, id)));
}

}  // namespace strata
