// What operations read and write: views of weights and of rows of activations. Views never own memory; the pointers are
// the device's (host memory on the CPU device, card memory on a CUDA device), so nothing outside a device follows them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/activations.h"
#include "quant/types.h"

namespace strata {

/// Float32 activations, one row a token.
struct Rows {
    float* data = nullptr;
    int rows = 0;
    int width = 0;       // values used of a row
    int64_t stride = 0;  // floats from one row to the next, >= width

    explicit operator bool() const { return data != nullptr; }
    /// Columns [first, first + count) of the same rows.
    Rows columns(int first, int count) const { return {data + first, rows, count, stride}; }
    /// Rows [first, first + count).
    Rows slice(int first, int count) const { return {data + first * stride, count, width, stride}; }
};

/// The same rows as float32 and as A8 codes (docs/numerics.md): quantised weights multiply the codes, float weights the
/// values. Operations that fill one fill both.
struct Activations {
    Rows values;          // [rows, width]
    QuantisedRows codes;  // [rows, width]; width a multiple of 32
};

/// Rows seen as heads: head h of row t starts at data + t * row_stride + h * head_stride and has `width` values. Query
/// and gate of one product, interleaved by head, are two of these over the same memory.
struct HeadRows {
    float* data = nullptr;
    int rows = 0;
    int heads = 0;
    int width = 0;
    int64_t row_stride = 0;   // floats
    int64_t head_stride = 0;  // floats

    explicit operator bool() const { return data != nullptr; }
};

/// The heads that lie back to back in rows: [rows, heads * width].
inline HeadRows as_heads(const Rows& rows, int heads) {
    const int width = rows.width / heads;
    return {rows.data, rows.rows, heads, width, rows.stride, width};
}

/// A matrix of weights in the device's own layout, y[r] = (row r) . x; `count` of them back to back for experts.
/// Made by Device::load_matrix; `data` means something to that device alone.
struct Matrix {
    Type type = Type::f32;
    int rows = 0;        // outputs
    int cols = 0;        // inputs, the contiguous dimension
    int count = 1;       // matrices (experts)
    int64_t stride = 0;  // bytes from one matrix to the next, in the device's layout
    const std::byte* data = nullptr;
    const float* scales = nullptr;  // the companion `.scale` of the file: [count], or null; multiplies the product

    explicit operator bool() const { return data != nullptr; }
};

/// One product of an operation that multiplies several matrices by the same input: out = matrix . x.
struct Product {
    Matrix matrix;
    Rows out;  // [rows, matrix.rows]
};

/// Chosen experts of the rows of a call, by rank. Device memory.
struct Routing {
    int rows = 0;
    int used = 0;
    int32_t* experts = nullptr;  // [rows, used]
    float* weights = nullptr;    // [rows, used]
};

}  // namespace strata
