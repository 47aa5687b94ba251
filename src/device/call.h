// A call: rows that go through the model together. They may belong to several conversations; a row's result does not
// depend on its company (docs/numerics.md, N1).
#pragma once

#include <array>
#include <span>

#include "device/arena.h"
#include "device/state.h"
#include "device/tensor.h"

namespace strata {

/// Consecutive rows of a call that belong to one conversation.
struct Span {
    State* state = nullptr;
    int first = 0;     // row of the call
    int rows = 0;      // 0: only bring the blocks of the state up to date (replay of pending rows)
    int start = 0;     // rows the conversation had before: the first row's place in its caches
    int replay = 0;    // logged rows that blocks take in first (State::pending)
    bool log = false;  // a window of guesses: blocks stay as they are, what their rows would do goes to the log
};

/// A picture's rows inside a call (specs: vision); places are rows of the call.
struct PictureSpan {
    int first = 0;
    int rows = 0;
};

struct Call {
    // Filled by the engine; host memory, read by Device::begin.
    int rows = 0;
    std::span<const Span> spans;
    std::span<const int32_t> tokens;                    // [rows]; any id where a picture's row stands
    std::span<const std::array<int32_t, 3>> positions;  // [rows] (t, y, x); text has three equal ones
    std::span<const PictureSpan> pictures;
    const float* picture_rows = nullptr;  // the rows of `pictures`, one after another, [*, model width]
    std::span<const int32_t> outputs;     // rows whose logits are wanted, ascending

    // Device memory of this call.
    Arena* scratch = nullptr;
    Rows residual;               // [rows, width]
    Rows hidden;                 // [rows, width] after the output norm
    Rows logits;                 // [outputs, vocabulary]
    std::array<Rows, 4> tables;  // what a model computes once a call for all layers (rotary angles)
};

}  // namespace strata
