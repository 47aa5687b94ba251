#include "quant/dot.h"

#include <algorithm>
#include <cmath>

#include "quant/canonical.h"
#include "quant/dequantise.h"

namespace strata {
namespace {

constexpr int kSegmentBlocks = 8;  // 256 inputs

/// A block of 32 weights times 32 activation codes: everything of the product but the activations' scale.
float block_product(bool two_scales, const CanonicalBlock& w, const int8_t* values, const int16_t* sums) {
    int product[2] = {0, 0};
    for (int i = 0; i < 32; ++i) product[i / 16] += w.q[i] * values[i];
    const int first = w.s[0] * product[0], second = w.s[1] * product[1];
    if (two_scales)  // NVFP4
        return std::fma(w.d[1], static_cast<float>(second), w.d[0] * static_cast<float>(first));
    const int minimum = w.mu[0] * sums[0] + w.mu[1] * sums[1];
    return std::fma(-w.e, static_cast<float>(minimum), w.d[0] * static_cast<float>(first + second));
}

}  // namespace

float dot_reference(Type type, const void* row, const QuantisedRows& x, int index) {
    const TypeInfo& info = type_info(type);
    const BlockDecoder decode = block_decoder(type);
    const auto* bytes = static_cast<const uint8_t*>(row);
    const int8_t* values = x.row_values(index);
    const float* scales = x.row_scales(index);
    const int16_t* sums = x.row_half_sums(index);
    const int file_blocks = x.width / static_cast<int>(info.block);
    const int inner = static_cast<int>(info.block) / 32;
    const int blocks = file_blocks * inner;

    CanonicalBlock decoded[kMaxCanonicalBlocks];
    float y = 0, segment = 0;
    for (int b = 0; b < blocks; ++b) {
        if (b % inner == 0) decode(bytes + static_cast<int64_t>(b / inner) * info.bytes, decoded);
        const float t = block_product(type == Type::nvfp4, decoded[b % inner], values + 32 * b, sums + 2 * b);
        segment = std::fma(scales[b], t, segment);
        if (b % kSegmentBlocks == kSegmentBlocks - 1 || b == blocks - 1) {
            y = b < kSegmentBlocks ? segment : y + segment;
            segment = 0;
        }
    }
    return y;
}

float dot_float_reference(Type type, const void* row, const float* x, int width) {
    const auto* bytes = static_cast<const uint8_t*>(row);
    const int value_bytes = static_cast<int>(type_info(type).bytes);
    float y = 0, segment = 0;
    for (int start = 0; start < width; start += 32) {
        const int count = std::min(32, width - start);
        float w[32], t = 0;
        dequantise_row(type, bytes + static_cast<int64_t>(start) * value_bytes, count, w);
        for (int i = 0; i < count; ++i) t = std::fma(w[i], x[start + i], t);
        segment += t;
        const int block = start / 32;
        if (block % kSegmentBlocks == kSegmentBlocks - 1 || start + 32 >= width) {
            y = block < kSegmentBlocks ? segment : y + segment;
            segment = 0;
        }
    }
    return y;
}

}  // namespace strata
