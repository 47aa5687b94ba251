// The grids of the IQ types: fixed tables of short vectors that blocks index. A vector is one 16-bit number with the
// level of element j in bits b*j .. b*j+b-1 (b = 2 for vectors of 8, 3 for vectors of 4); every table is ascending.
#pragma once

#include <array>
#include <cstdint>

namespace strata {

extern const std::array<uint16_t, 256> kGridIq2Xxs;  // 8 x 2 bits, levels kLevelsIq2
extern const std::array<uint16_t, 512> kGridIq2Xs;
extern const std::array<uint16_t, 1024> kGridIq2S;
extern const std::array<uint16_t, 256> kGridIq3Xxs;  // 4 x 3 bits, levels kLevelsIq3Xxs
extern const std::array<uint16_t, 512> kGridIq3S;    // 4 x 3 bits, level l is 2l + 1
extern const std::array<uint16_t, 2048> kGridIq1;    // 8 x 2 bits, level l is l - 1

inline constexpr std::array<int8_t, 3> kLevelsIq2 = {8, 25, 43};
inline constexpr std::array<int8_t, 8> kLevelsIq3Xxs = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<int8_t, 8> kLevelsIq3S = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr std::array<int8_t, 3> kLevelsIq1 = {-1, 0, 1};

/// What a 4-bit code stands for in IQ4_NL and IQ4_XS, and (twice the E2M1 value) in MXFP4 and NVFP4.
inline constexpr std::array<int8_t, 16> kValuesNl = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::array<int8_t, 16> kValuesE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The eight sign bits of a 7-bit field: the eighth makes the number of minus signs even.
constexpr uint8_t signs_of_seven(uint32_t field) {
    uint32_t parity = field ^ field >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return static_cast<uint8_t>(field | (parity & 1) << 7);
}

}  // namespace strata
