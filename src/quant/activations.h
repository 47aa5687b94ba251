// Activations for integer dot products: the form A8 (docs/numerics.md).
#pragma once

#include <cstdint>

namespace strata {

/// Rows of activations as A8: per 32 inputs a float32 scale d and 32 codes, value = d * code, |code| <= 127. A view.
struct QuantisedRows {
    int rows = 0;                  // tokens
    int width = 0;                 // inputs of a row, a multiple of 32
    int8_t* values = nullptr;      // [rows, width]
    float* scales = nullptr;       // [rows, width / 32]
    int16_t* half_sums = nullptr;  // [rows, width / 16], the codes of 16 inputs added up
};

}  // namespace strata
