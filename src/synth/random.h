// Random numbers that depend on where they are used and on nothing else: not on threads, order, machine or library.
#pragma once

#include <cstdint>
#include <string_view>

namespace strata::synth {

/// One well-mixed word of a word (SplitMix64's finaliser).
constexpr uint64_t mix(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    return word ^ (word >> 31);
}

constexpr uint64_t mix(uint64_t a, uint64_t b) {
    return mix(a + 0x9E3779B97F4A7C15 * (b + 1));
}

constexpr uint64_t hash(std::string_view text) {
    uint64_t word = text.size();
    for (const char c : text) word = mix(word, static_cast<unsigned char>(c));
    return word;
}

/// A stream of words: SplitMix64 from a seed.
class Random {
  public:
    explicit constexpr Random(uint64_t seed) : state_(seed) {}

    constexpr uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15); }

    /// From 0 up to but not including 1, in steps of 2^-24.
    constexpr float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

    /// Near enough normal, variance 1: four uniform parts of one word added up, so never beyond 3.5.
    constexpr float normal() { return normal_of(next()); }

    static constexpr float normal_of(uint64_t word) {
        const auto sum =
            static_cast<int64_t>((word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48));
        return static_cast<float>(sum - 2 * 65535) * (0x1.bb67aep+0f / 65536);  // sqrt(3): each part has variance 1/12
    }

  private:
    uint64_t state_;
};

}  // namespace strata::synth
