#include "quant/dot.h"

#include <algorithm>
#include <cmath>

#include "quant/canonical.h"
#include "quant/dequantise.h"

namespace strata {
namespace {

constexpr int kSegment = 256;  // inputs; a multiple of every type's block

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
    const int block = static_cast<int>(info.block);
    const int8_t* values = x.row_values(index);
    const float* scales = x.row_scales(index);
    const int16_t* sums = x.row_half_sums(index);

    float y = 0;
    for (int start = 0; start < x.width; start += kSegment) {
        const int inputs = std::min(kSegment, x.width - start);
        CanonicalBlock weights[kSegment / 32];
        for (int i = 0; i < inputs; i += block, bytes += info.bytes) decode(bytes, weights + i / 32);
        float segment = 0;
        for (int i = 0; i < inputs; i += 32) {
            const int at = start + i;
            const float t = block_product(type == Type::nvfp4, weights[i / 32], values + at, sums + at / 16);
            segment = std::fma(scales[at / 32], t, segment);
        }
        y = start == 0 ? segment : y + segment;
    }
    return y;
}

float dot_float_reference(Type type, const void* row, const float* x, int width) {
    const auto* bytes = static_cast<const uint8_t*>(row);
    float y = 0;
    for (int start = 0; start < width; start += kSegment) {
        const int inputs = std::min(kSegment, width - start);
        float weights[kSegment];
        dequantise_row(type, bytes + row_bytes(type, static_cast<uint64_t>(start)), inputs, weights);
        float segment = 0;
        for (int i = 0; i < inputs; i += 32) {
            float t = 0;
            for (int j = i; j < std::min(i + 32, inputs); ++j) t = std::fma(weights[j], x[start + j], t);
            segment += t;
        }
        y = start == 0 ? segment : y + segment;
    }
    return y;
}

}  // namespace strata
