// Pictures of a prompt: rows that an encoder made, from a file to their places, positions and keys.
//
// The file: one record a picture, in the order of the prompt: five little-endian 32-bit numbers 0x31455653 ("SVE1"),
// rows, nx, ny, width, with rows = nx * ny, then rows * width float32.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/call.h"
#include "engine/conversation.h"
#include "models/model.h"

namespace strata {

/// The pictures of a prompt, and what its rows are because of them.
struct PictureInput {
    struct Place {
        int first;  // row of the prompt
        int rows;
        int first_row;  // its first row in `values`
    };
    std::vector<float> values;                      // [all rows of pictures, width]
    std::vector<Place> places;                      // ascending
    std::vector<std::array<int32_t, 3>> positions;  // [prompt]
    std::vector<int32_t> next_positions;            // [prompt]: of a token after this row
    std::vector<RowKey> keys;                       // [prompt]

    /// The pictures among rows [first, first + count) of the prompt, their places relative to `first`, and their
    /// values.
    struct Part {
        std::vector<PictureSpan> spans;
        const float* values = nullptr;
    };
    Part part(int first, int count, int width) const;
    /// Moves the end of a call [at, end) off the inside of a picture: to its start, or to its end where it starts at
    /// `at`.
    int end_outside_pictures(int at, int end) const;
};

/// Reads the file and finds the pictures' places: runs of `image_pad` in the prompt, one picture after the other.
/// Refused: a file that is damaged or of another width; more pictures or placeholders than the other has; a prompt that
/// ends in a picture.
Result<PictureInput> place_pictures(const std::string& path, std::span<const int32_t> prompt, int32_t image_pad,
                                    const ModelFacts& facts);

}  // namespace strata
