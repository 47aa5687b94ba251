// Hashing of short byte strings and of pairs of ids for the tokenizer's tables. Not for anything that is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace strata {

/// Folded 128-bit product: every bit of the result depends on every bit of both.
inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 Wide;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_pair(uint64_t pair, uint64_t seed) {
    return hash_mix(pair ^ seed, 0x9E3779B97F4A7C15);
}

inline uint64_t hash_bytes(const char* bytes, size_t size, uint64_t seed) {
    constexpr uint64_t step = 0xD6E8FEB86659FD93;
    uint64_t hash = hash_mix(seed ^ size, step);
    uint64_t word;
    for (; size > 8; bytes += 8, size -= 8) {
        std::memcpy(&word, bytes, 8);
        hash = hash_mix(hash ^ word, step);
    }
    word = 0;
    if (size >= 4) {  // the first and the last four bytes, which may overlap
        uint32_t low, high;
        std::memcpy(&low, bytes, 4);
        std::memcpy(&high, bytes + size - 4, 4);
        word = static_cast<uint64_t>(high) << 32 | low;
    } else if (size > 0) {
        const auto byte = [bytes](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])); };
        word = byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
    }
    return hash_mix(hash ^ word, step);
}

/// A seed that differs from one process to the next, so that no file can aim at collisions. No result depends on it.
uint64_t hash_seed();

}  // namespace strata
