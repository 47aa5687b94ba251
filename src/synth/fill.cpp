#include "synth/fill.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "quant/dequantise.h"
#include "quant/half.h"
#include "synth/random.h"

namespace strata::synth {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;
constexpr size_t kScales = 64;  // different scales of a tensor's blocks

void put_half(uint8_t* at, uint16_t half) {
    std::memcpy(at, &half, 2);
}
uint16_t get_u16(const uint8_t* at) {
    uint16_t word;
    std::memcpy(&word, at, 2);
    return word;
}

/// What a block's finisher may use.
struct Scales {
    const uint16_t* scales;  // [kScales] halves
    const uint16_t* minima;  // [kScales]
    const uint8_t* bytes;    // [2]
    uint32_t second_share;
};

/// A block arrives with random bytes everywhere; its finisher overwrites the fields that must not be random. What was
/// random in them picks the scale, so a finisher needs no other source.
using Finisher = void (*)(uint8_t* block, const Scales& scales);

/// Scale half at `At`, either sign where the codes' mean is not zero (so that the mean of a row is).
template <int At, bool EitherSign>
void half_scale(uint8_t* b, const Scales& s) {
    const uint16_t random = get_u16(b + At);
    put_half(b + At, static_cast<uint16_t>(s.scales[random % kScales] ^ (EitherSign ? random & 0x8000 : 0)));
}

void q8_0(uint8_t* b, const Scales& s) {
    half_scale<0, false>(b, s);
    for (int i = 2; i < 34; ++i) b[i] = static_cast<uint8_t>(b[i] == 0x80 ? 0x7F : b[i]);  // quantisers never make -128
}

void half_and_minimum(uint8_t* b, const Scales& s) {  // Q4_1, Q5_1: the minimum is added
    const uint16_t random = get_u16(b);
    put_half(b, s.scales[random % kScales]);
    put_half(b + 2, static_cast<uint16_t>(s.minima[random % kScales] ^ 0x8000));
}

void q2_k(uint8_t* b, const Scales& s) {
    for (int g = 0; g < 16; ++g) {  // scale 8..15, minimum the same number
        const int scale = (b[g] & 15) | 8;
        b[g] = static_cast<uint8_t>(scale | scale << 4);
    }
    const uint16_t random = get_u16(b + 80);
    put_half(b + 80, s.scales[random % kScales]);
    put_half(b + 82, s.minima[random % kScales]);
}

void q3_k(uint8_t* b, const Scales& s) {
    for (int j = 104; j < 108; ++j) b[j] = static_cast<uint8_t>((b[j] & 0x55) * 3);  // high bits 0 or 3: |scale| >= 16
    half_scale<108, false>(b, s);
}

void q4_k_q5_k(uint8_t* b, const Scales& s) {
    const uint16_t random = get_u16(b);
    put_half(b, s.scales[random % kScales]);
    put_half(b + 2, s.minima[random % kScales]);
    uint8_t* a = b + 4;  // scales 32..63, each minimum the same number
    for (int j = 0; j < 4; ++j) a[j] = a[j + 4] = static_cast<uint8_t>(a[j] | 0xA0);
    for (int j = 8; j < 12; ++j) a[j] = static_cast<uint8_t>((a[j] & 15) * 17);
}

void q6_k(uint8_t* b, const Scales& s) {
    for (int g = 192; g < 208; ++g) {  // 64..127 in magnitude
        const int magnitude = (b[g] & 63) | 64;
        b[g] = static_cast<uint8_t>(b[g] & 128 ? -magnitude : magnitude);
    }
    half_scale<208, false>(b, s);
}

void iq4_xs(uint8_t* b, const Scales& s) {
    half_scale<0, false>(b, s);
    b[2] = static_cast<uint8_t>((b[2] & 0x55) * 3);
    b[3] = static_cast<uint8_t>((b[3] & 0x55) * 3);
}

template <int First, int Count, int Step, int Bits>
void with_scale_bits(uint8_t* b, const Scales& s) {  // group scales in the upper half of their range
    half_scale<0, false>(b, s);
    for (int i = 0; i < Count; ++i) b[First + i * Step] |= Bits;
}

void iq1_m(uint8_t* b, const Scales& s) {
    const uint16_t half = s.scales[get_u16(b + 48) % kScales];
    for (int j = 0; j < 4; ++j) {
        const auto word =
            static_cast<uint16_t>((get_u16(b + 48 + 2 * j) & 0x0FFF) | 0x0924 | (half >> 4 * j & 15) << 12);
        put_half(b + 48 + 2 * j, word);
    }
}

void mxfp4(uint8_t* b, const Scales& s) {
    // Sixteen code bytes are needed whole, and one random byte is too coarse for the share: mix it with some codes.
    const uint32_t random = (b[0] | (b[1] ^ b[2] ^ b[3]) << 8) & 0xFFFF;
    b[0] = s.bytes[random < s.second_share];
}

void nvfp4(uint8_t* b, const Scales& s) {
    for (int t = 0; t < 4; ++t) {
        const uint32_t random = (b[t] | (b[4 + 8 * t] ^ b[5 + 8 * t] ^ b[6 + 8 * t]) << 8) & 0xFFFF;
        b[t] = s.bytes[random < s.second_share];
    }
}

struct Recipe {
    Type type;
    Finisher finish;
    float minimum;  // minimum in units of scale * group scale: the mean of the codes
};

constexpr Recipe kRecipes[] = {
    {Type::q4_0, half_scale<0, true>, 0},
    {Type::q4_1, half_and_minimum, 7.5f},
    {Type::q5_0, half_scale<0, true>, 0},
    {Type::q5_1, half_and_minimum, 15.5f},
    {Type::q8_0, q8_0, 0},
    {Type::q2_k, q2_k, 1.5f},
    {Type::q3_k, q3_k, 0},
    {Type::q4_k, q4_k_q5_k, 7.5f},
    {Type::q5_k, q4_k_q5_k, 15.5f},
    {Type::q6_k, q6_k, 0},
    {Type::iq2_xxs, with_scale_bits<9, 8, 8, 0x80>, 0},
    {Type::iq2_xs, with_scale_bits<66, 8, 1, 0x88>, 0},
    {Type::iq2_s, with_scale_bits<74, 8, 1, 0x88>, 0},
    {Type::iq3_xxs, with_scale_bits<69, 8, 4, 0x80>, 0},
    {Type::iq3_s, with_scale_bits<106, 4, 1, 0x88>, 0},
    {Type::iq1_s, with_scale_bits<35, 8, 2, 0x40>, 0},
    {Type::iq1_m, iq1_m, 0},
    {Type::iq4_nl, half_scale<0, true>, 0},
    {Type::iq4_xs, iq4_xs, 0},
    {Type::mxfp4, mxfp4, 0},
    {Type::nvfp4, nvfp4, 0},
    {Type::tq1_0, half_scale<52, true>, 0},
    {Type::tq2_0, half_scale<64, true>, 0},
    {Type::q1_0, half_scale<0, true>, 0},
    {Type::q2_0, half_scale<0, true>, 0},
};

const Recipe& recipe_of(Type type) {
    for (const Recipe& recipe : kRecipes)
        if (recipe.type == type) return recipe;
    return kRecipes[0];
}

void random_bytes(std::span<std::byte> out, uint64_t seed) {
    Random random(seed);
    size_t at = 0;
    for (; at + 8 <= out.size(); at += 8) {
        const uint64_t word = random.next();
        std::memcpy(out.data() + at, &word, 8);
    }
    const uint64_t last = random.next();
    std::memcpy(out.data() + at, &last, out.size() - at);
}

void random_blocks(Type type, std::span<std::byte> out, uint64_t seed, const Scales& scales) {
    random_bytes(out, seed);
    const Finisher finish = recipe_of(type).finish;
    const uint32_t size = type_info(type).bytes;
    auto* block = reinterpret_cast<uint8_t*>(out.data());
    for (size_t count = out.size() / size; count > 0; --count, block += size) finish(block, scales);
}

/// The scales of a tensor: from 0.8 to 1.25 of `middle`, evenly.
std::vector<uint16_t> scale_table(float middle) {
    std::vector<uint16_t> table(kScales);
    for (size_t i = 0; i < kScales; ++i)
        table[i] = f16_from_float(middle * (0.8f + 0.45f * static_cast<float>(i) / (kScales - 1)));
    return table;
}

std::vector<uint16_t> minimum_table(const std::vector<uint16_t>& scales, float minimum) {
    std::vector<uint16_t> table(scales.size());
    for (size_t i = 0; i < scales.size(); ++i) table[i] = f16_from_float(minimum * float_from_f16(scales[i]));
    return table;
}

/// Root mean square of a type's random blocks whose scales are around 1 (MXFP4, NVFP4: exactly the given byte's).
float measure_spread(Type type) {
    const TypeInfo& info = type_info(type);
    const std::vector<uint16_t> scales = scale_table(1);
    const std::vector<uint16_t> minima = minimum_table(scales, recipe_of(type).minimum);
    const uint8_t one[2] = {static_cast<uint8_t>(type == Type::mxfp4 ? 128 : 0x40), 0};  // a decoded scale of 1
    const uint32_t blocks = (1 << 19) / info.block;
    std::vector<std::byte> bytes(size_t{blocks} * info.bytes);
    std::vector<float> floats(size_t{blocks} * info.block);
    random_blocks(type, bytes, mix(static_cast<uint64_t>(type)), {scales.data(), minima.data(), one, 0});
    dequantise_row(type, bytes.data(), static_cast<int64_t>(floats.size()), floats.data());
    double squares = 0;
    for (const float value : floats) squares += double{value} * value;
    return static_cast<float>(std::sqrt(squares / static_cast<double>(floats.size())));
}

float unit_spread(Type type) {
    static const auto spreads = [] {
        std::array<float, std::size(kRecipes)> all;
        for (size_t i = 0; i < all.size(); ++i) all[i] = measure_spread(kRecipes[i].type);
        return all;
    }();
    return spreads[static_cast<size_t>(&recipe_of(type) - kRecipes)];
}

void put_float(Type type, std::byte* at, float value) {
    if (type == Type::f32) {
        std::memcpy(at, &value, 4);
    } else {
        const uint16_t word = type == Type::f16 ? f16_from_float(value) : bf16_from_float(value);
        std::memcpy(at, &word, 2);
    }
}

}  // namespace

Filler::Filler(const gguf::TensorSpec& tensor, const Fill& fill, uint64_t seed)
    : type_(tensor.type),
      width_(std::max<uint64_t>(tensor.dims[0], 1)),
      fill_(fill),
      seed_(mix(seed, hash(tensor.name))),
      bytes_(gguf::tensor_bytes(tensor).value()),
      piece_bytes_(0) {
    const TypeInfo& info = type_info(type_);
    uint64_t unit = info.bytes;
    if (fill.kind == Fill::Kind::distinct_ids) unit = 4 * width_;  // whole rows
    piece_bytes_ = std::max<uint64_t>(kPieceBytes / unit, 1) * unit;
    if (!info.quantised) return;

    const float middle = fill.spread / unit_spread(type_);  // the decoded scale that gives the spread
    if (type_ == Type::mxfp4) {
        // Powers of two only: a share of the blocks has the next one, so that the mean square is right.
        int exponent = 0;
        const float mantissa =
            std::frexp(middle, &exponent) * 2;  // middle = mantissa * 2^(exponent - 1), 1 <= mantissa < 2
        byte_scales_[0] = static_cast<uint8_t>(std::clamp(exponent - 1 + 128, 2, 253));
        byte_scales_[1] = static_cast<uint8_t>(byte_scales_[0] + 1);
        second_share_ = static_cast<uint32_t>((mantissa * mantissa - 1) / 3 * 65536);
    } else if (type_ == Type::nvfp4) {
        uint8_t byte = 1;
        while (byte < 0x7D && nvfp4_scale(static_cast<uint8_t>(byte + 1)) <= middle) ++byte;
        const float low = nvfp4_scale(byte), high = nvfp4_scale(static_cast<uint8_t>(byte + 1));
        const float share = (middle * middle - low * low) / (high * high - low * low);
        byte_scales_[0] = byte;
        byte_scales_[1] = static_cast<uint8_t>(byte + 1);
        second_share_ = static_cast<uint32_t>(std::clamp(share, 0.0f, 1.0f) * 65536);
    } else {
        scales_ = scale_table(middle);
        minima_ = minimum_table(scales_, recipe_of(type_).minimum);
    }
}

void Filler::make(uint64_t index, std::span<std::byte> out) const {
    const uint64_t seed = mix(seed_, index);
    const uint64_t first_byte = index * piece_bytes_;
    if (fill_.kind == Fill::Kind::values) {
        const auto* values = reinterpret_cast<const std::byte*>(fill_.values.data());
        std::memcpy(out.data(), values + first_byte, out.size());
    } else if (fill_.kind == Fill::Kind::distinct_ids) {
        make_ids(first_byte / 4, out, seed);
    } else if (type_info(type_).quantised) {
        make_blocks(out, seed);
    } else {
        make_floats(first_byte / type_info(type_).bytes, out, seed);
    }
}

void Filler::make_blocks(std::span<std::byte> out, uint64_t seed) const {
    random_blocks(type_, out, seed, {scales_.data(), minima_.data(), byte_scales_, second_share_});
}

void Filler::make_floats(uint64_t first, std::span<std::byte> out, uint64_t seed) const {
    const uint32_t size = type_info(type_).bytes;
    Random random(seed);
    float spread = fill_.spread;
    uint64_t row = ~uint64_t{0};
    for (uint64_t i = 0; i < out.size() / size; ++i) {
        if (fill_.row_spread > 0 && (first + i) / width_ != row) {
            row = (first + i) / width_;
            const float factor = 1 + fill_.row_spread * Random(mix(seed_, ~row)).normal();
            spread = fill_.spread * std::max(factor, 0.2f);
        }
        put_float(type_, out.data() + i * size, fill_.mean + spread * random.normal());
    }
}

void Filler::make_ids(uint64_t, std::span<std::byte> out, uint64_t seed) const {
    Random random(seed);
    std::vector<int32_t> row(width_);
    for (uint64_t at = 0; at < out.size(); at += 4 * width_) {
        for (uint64_t i = 0; i < width_;) {
            row[i] = static_cast<int32_t>(random.next() % static_cast<uint64_t>(fill_.limit));
            i += std::find(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(i), row[i]) ==
                 row.begin() + static_cast<std::ptrdiff_t>(i);
        }
        std::memcpy(out.data() + at, row.data(), 4 * width_);
    }
}

}  // namespace strata::synth
