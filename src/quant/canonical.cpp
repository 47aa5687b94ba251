#include "quant/canonical.h"

#include <array>

#include "quant/grids.h"
#include "quant/half.h"

namespace strata {
namespace {

uint16_t read16(const uint8_t* p) {
    return static_cast<uint16_t>(p[0] | p[1] << 8);
}
uint32_t read32(const uint8_t* p) {
    return read16(p) | static_cast<uint32_t>(read16(p + 2)) << 16;
}
float read_half(const uint8_t* p) {
    return float_from_f16(read16(p));
}

int low(uint8_t byte) {
    return byte & 15;
}
int high(uint8_t byte) {
    return byte >> 4;
}

/// All of a block but its codes, with one scale for its 32 values.
void set_scales(CanonicalBlock& b, float d, int s = 1, float e = 0, int mu = 0) {
    b.d[0] = b.d[1] = d;
    b.e = e;
    b.s[0] = b.s[1] = static_cast<int8_t>(s);
    b.mu[0] = b.mu[1] = static_cast<int8_t>(mu);
}

/// Nibble i of 16 bytes, low nibbles first (order SPLIT32 of the format page).
int split32(const uint8_t* bytes, int i) {
    return i < 16 ? low(bytes[i]) : high(bytes[i - 16]);
}

// --- blocks of 32
// -----------------------------------------------------------------------------------------------------

void q4_0(const uint8_t* p, CanonicalBlock* out) {
    set_scales(*out, read_half(p));
    for (int i = 0; i < 32; ++i) out->q[i] = static_cast<int8_t>(split32(p + 2, i) - 8);
}

void q4_1(const uint8_t* p, CanonicalBlock* out) {
    set_scales(*out, read_half(p), 1, -read_half(p + 2), 1);
    for (int i = 0; i < 32; ++i) out->q[i] = static_cast<int8_t>(split32(p + 4, i));
}

void q5_0(const uint8_t* p, CanonicalBlock* out) {
    set_scales(*out, read_half(p));
    const uint32_t fifth = read32(p + 2);
    for (int i = 0; i < 32; ++i) out->q[i] = static_cast<int8_t>(split32(p + 6, i) + 16 * (fifth >> i & 1) - 16);
}

void q5_1(const uint8_t* p, CanonicalBlock* out) {
    set_scales(*out, read_half(p), 1, -read_half(p + 2), 1);
    const uint32_t fifth = read32(p + 4);
    for (int i = 0; i < 32; ++i) out->q[i] = static_cast<int8_t>(split32(p + 8, i) + 16 * (fifth >> i & 1));
}

void q8_0(const uint8_t* p, CanonicalBlock* out) {
    set_scales(*out, read_half(p));
    for (int i = 0; i < 32; ++i) out->q[i] = static_cast<int8_t>(p[2 + i]);
}

void iq4_nl(const uint8_t* p, CanonicalBlock* out) {
    set_scales(*out, read_half(p));
    for (int i = 0; i < 32; ++i) out->q[i] = kValuesNl[split32(p + 2, i)];
}

void mxfp4(const uint8_t* p, CanonicalBlock* out) {
    set_scales(*out, mxfp4_scale(p[0]));
    for (int i = 0; i < 32; ++i) out->q[i] = kValuesE2m1[split32(p + 1, i)];
}

// --- blocks of 64 and 128: one or two scales over several canonical blocks
// ---------------------------------------------

void nvfp4(const uint8_t* p, CanonicalBlock* out) {
    for (int b = 0; b < 2; ++b) {
        set_scales(out[b], 0);
        for (int half = 0; half < 2; ++half) {
            const int group = 2 * b + half;
            const uint8_t* codes = p + 4 + 8 * group;
            out[b].d[half] = nvfp4_scale(p[group]);
            for (int i = 0; i < 16; ++i)
                out[b].q[16 * half + i] = kValuesE2m1[i < 8 ? low(codes[i]) : high(codes[i - 8])];
        }
    }
}

void q1_0(const uint8_t* p, CanonicalBlock* out) {
    for (int b = 0; b < 4; ++b) {
        set_scales(out[b], read_half(p));
        const uint32_t bits = read32(p + 2 + 4 * b);
        for (int i = 0; i < 32; ++i) out[b].q[i] = bits >> i & 1 ? 1 : -1;
    }
}

void q2_0(const uint8_t* p, CanonicalBlock* out) {
    for (int b = 0; b < 2; ++b) {
        set_scales(out[b], read_half(p));
        const uint8_t* codes = p + 2 + 8 * b;
        for (int i = 0; i < 32; ++i) out[b].q[i] = static_cast<int8_t>((codes[i / 4] >> 2 * (i % 4) & 3) - 1);
    }
}

// --- super-blocks of 256: eight canonical blocks
// -----------------------------------------------------------------------

/// Two bits of value i of canonical block b from 64 bytes in the order RUN128C: a run of 128 values lies in 32 bytes.
int run128c(const uint8_t* bytes, int b, int i) {
    return bytes[32 * (b / 4) + i] >> 2 * (b % 4) & 3;
}

/// A nibble from 128 bytes in the order RUN64: 32 bytes hold an even block in their low and the next in their high
/// halves.
int run64(const uint8_t* bytes, int b, int i) {
    const uint8_t byte = bytes[32 * (b / 2) + i];
    return b % 2 ? high(byte) : low(byte);
}

void q2_k(const uint8_t* p, CanonicalBlock* out) {
    const float d = read_half(p + 80), dmin = read_half(p + 82);
    for (int b = 0; b < 8; ++b) {
        out[b].d[0] = out[b].d[1] = d;
        out[b].e = dmin;
        for (int half = 0; half < 2; ++half) {
            out[b].s[half] = static_cast<int8_t>(low(p[2 * b + half]));
            out[b].mu[half] = static_cast<int8_t>(high(p[2 * b + half]));
        }
        for (int i = 0; i < 32; ++i) out[b].q[i] = static_cast<int8_t>(run128c(p + 16, b, i));
    }
}

void q3_k(const uint8_t* p, CanonicalBlock* out) {
    const uint8_t* a = p + 96;
    for (int b = 0; b < 8; ++b) {
        set_scales(out[b], read_half(p + 108));
        for (int half = 0; half < 2; ++half) {
            const int j = 2 * b + half;
            const int four = j < 8 ? low(a[j]) : high(a[j - 8]);
            const int two = a[8 + j % 4] >> 2 * (j / 4) & 3;
            out[b].s[half] = static_cast<int8_t>(four + 16 * two - 32);
        }
        for (int i = 0; i < 32; ++i)  // a clear third bit means minus four
            out[b].q[i] = static_cast<int8_t>(run128c(p + 32, b, i) + 4 * (p[i] >> b & 1) - 4);
    }
}

/// d, dmin and the eight 6-bit pairs of scale and minimum of Q4_K and Q5_K, packed in 12 bytes.
void k_scales(const uint8_t* p, CanonicalBlock* out) {
    const float d = read_half(p), dmin = read_half(p + 2);
    const uint8_t* a = p + 4;
    for (int j = 0; j < 4; ++j) set_scales(out[j], d, a[j] & 63, dmin, a[j + 4] & 63);
    for (int j = 4; j < 8; ++j)
        set_scales(out[j], d, low(a[j + 4]) + 16 * (a[j - 4] >> 6), dmin, high(a[j + 4]) + 16 * (a[j] >> 6));
}

void q4_k(const uint8_t* p, CanonicalBlock* out) {
    k_scales(p, out);
    for (int b = 0; b < 8; ++b)
        for (int i = 0; i < 32; ++i) out[b].q[i] = static_cast<int8_t>(run64(p + 16, b, i));
}

void q5_k(const uint8_t* p, CanonicalBlock* out) {
    k_scales(p, out);
    for (int b = 0; b < 8; ++b)
        for (int i = 0; i < 32; ++i) out[b].q[i] = static_cast<int8_t>(run64(p + 48, b, i) + 16 * (p[16 + i] >> b & 1));
}

void q6_k(const uint8_t* p, CanonicalBlock* out) {
    for (int b = 0; b < 8; ++b) {
        set_scales(out[b], read_half(p + 208));
        for (int half = 0; half < 2; ++half) out[b].s[half] = static_cast<int8_t>(p[192 + 2 * b + half]);
        const uint8_t* nibbles =
            p + 64 * (b / 4) + 32 * (b % 2);  // RUN128N: 64 bytes hold blocks 0, 1 low and 2, 3 high
        for (int i = 0; i < 32; ++i) {
            const int four = b % 4 < 2 ? low(nibbles[i]) : high(nibbles[i]);
            out[b].q[i] = static_cast<int8_t>(four + 16 * run128c(p + 128, b, i) - 32);
        }
    }
}

void iq4_xs(const uint8_t* p, CanonicalBlock* out) {
    const uint16_t top = read16(p + 2);
    for (int b = 0; b < 8; ++b) {
        const int four = b % 2 ? high(p[4 + b / 2]) : low(p[4 + b / 2]);
        set_scales(out[b], read_half(p), four + 16 * (top >> 2 * b & 3) - 32);
        for (int i = 0; i < 32; ++i) out[b].q[i] = kValuesNl[split32(p + 8 + 16 * b, i)];
    }
}

void tq1_0(const uint8_t* p, CanonicalBlock* out) {
    constexpr uint8_t kPower[5] = {1, 3, 9, 27, 81};
    const auto digit = [&](int byte, int t) {
        return static_cast<int8_t>((uint8_t(p[byte] * kPower[t]) * 3 >> 8) - 1);
    };
    for (int b = 0; b < 8; ++b) set_scales(out[b], read_half(p + 52));
    const auto set = [&](int element, int8_t q) { out[element / 32].q[element % 32] = q; };
    for (int t = 0; t < 5; ++t)
        for (int r = 0; r < 32; ++r) set(32 * t + r, digit(r, t));
    for (int t = 0; t < 5; ++t)
        for (int r = 0; r < 16; ++r) set(160 + 16 * t + r, digit(32 + r, t));
    for (int t = 0; t < 4; ++t)
        for (int r = 0; r < 4; ++r) set(240 + 4 * t + r, digit(48 + r, t));
}

void tq2_0(const uint8_t* p, CanonicalBlock* out) {
    for (int b = 0; b < 8; ++b) {
        set_scales(out[b], read_half(p + 64));
        for (int i = 0; i < 32; ++i) out[b].q[i] = static_cast<int8_t>(run128c(p, b, i) - 1);
    }
}

// --- grids
// ------------------------------------------------------------------------------------------------------------

/// Eight values from a vector of 2-bit levels, negated where the sign bit is set.
void put8(int8_t* q, uint32_t code, const std::array<int8_t, 3>& levels, uint32_t signs) {
    for (int j = 0; j < 8; ++j) {
        const int8_t value = levels[code >> 2 * j & 3];
        q[j] = static_cast<int8_t>(signs >> j & 1 ? -value : value);
    }
}

/// Four values from a vector of 3-bit levels.
void put4(int8_t* q, uint32_t code, const std::array<int8_t, 8>& levels, uint32_t signs) {
    for (int j = 0; j < 4; ++j) {
        const int8_t value = levels[code >> 3 * j & 7];
        q[j] = static_cast<int8_t>(signs >> j & 1 ? -value : value);
    }
}

/// Odd scales of the two halves of a block from the nibbles of one byte.
void odd_scales(CanonicalBlock& b, uint8_t nibbles) {
    b.s[0] = static_cast<int8_t>(2 * low(nibbles) + 1);
    b.s[1] = static_cast<int8_t>(2 * high(nibbles) + 1);
}

void iq2_xxs(const uint8_t* p, CanonicalBlock* out) {
    const float d = read_half(p) / 8;
    for (int b = 0; b < 8; ++b) {
        const uint8_t* index = p + 2 + 8 * b;
        const uint32_t word = read32(index + 4);
        set_scales(out[b], d, static_cast<int>(2 * (word >> 28) + 1));
        for (int k = 0; k < 4; ++k)
            put8(out[b].q + 8 * k, kGridIq2Xxs[index[k]], kLevelsIq2, signs_of_seven(word >> 7 * k & 127));
    }
}

void iq2_xs(const uint8_t* p, CanonicalBlock* out) {
    const float d = read_half(p) / 8;
    for (int b = 0; b < 8; ++b) {
        set_scales(out[b], d);
        odd_scales(out[b], p[66 + b]);
        for (int k = 0; k < 4; ++k) {
            const uint32_t word = read16(p + 2 + 2 * (4 * b + k));
            put8(out[b].q + 8 * k, kGridIq2Xs[word & 511], kLevelsIq2, signs_of_seven(word >> 9));
        }
    }
}

void iq2_s(const uint8_t* p, CanonicalBlock* out) {
    const float d = read_half(p) / 8;
    for (int b = 0; b < 8; ++b) {
        set_scales(out[b], d);
        odd_scales(out[b], p[74 + b]);
        for (int k = 0; k < 4; ++k) {
            const uint32_t index = p[2 + 4 * b + k] | (p[66 + b] >> 2 * k & 3) << 8;
            put8(out[b].q + 8 * k, kGridIq2S[index], kLevelsIq2, p[34 + 4 * b + k]);
        }
    }
}

void iq3_xxs(const uint8_t* p, CanonicalBlock* out) {
    const float d = read_half(p) / 4;
    for (int b = 0; b < 8; ++b) {
        const uint32_t word = read32(p + 66 + 4 * b);
        set_scales(out[b], d, static_cast<int>(2 * (word >> 28) + 1));
        for (int k = 0; k < 8; ++k) {
            const uint32_t signs = signs_of_seven(word >> 7 * (k / 2) & 127) >> 4 * (k % 2);
            put4(out[b].q + 4 * k, kGridIq3Xxs[p[2 + 8 * b + k]], kLevelsIq3Xxs, signs);
        }
    }
}

void iq3_s(const uint8_t* p, CanonicalBlock* out) {
    const float d = read_half(p);
    for (int b = 0; b < 8; ++b) {
        const uint8_t pair = p[106 + b / 2];
        set_scales(out[b], d, 2 * (b % 2 ? high(pair) : low(pair)) + 1);
        for (int k = 0; k < 8; ++k) {
            const uint32_t index = p[2 + 8 * b + k] | (p[66 + b] >> k & 1) << 8;
            put4(out[b].q + 4 * k, kGridIq3S[index], kLevelsIq3S, p[74 + 4 * b + k / 2] >> 4 * (k % 2));
        }
    }
}

/// Eight values 8 * level + 1 or - 1.
void put8_shifted(int8_t* q, uint32_t code, bool minus) {
    for (int j = 0; j < 8; ++j) q[j] = static_cast<int8_t>(8 * kLevelsIq1[code >> 2 * j & 3] + (minus ? -1 : 1));
}

void iq1_s(const uint8_t* p, CanonicalBlock* out) {
    const float d = read_half(p) / 8;
    for (int b = 0; b < 8; ++b) {
        const uint32_t word = read16(p + 34 + 2 * b);
        set_scales(out[b], d, static_cast<int>(2 * (word >> 12 & 7) + 1));
        for (int k = 0; k < 4; ++k) {
            const uint32_t index = p[2 + 4 * b + k] | (word >> 3 * k & 7) << 8;
            put8_shifted(out[b].q + 8 * k, kGridIq1[index], word >> 15);
        }
    }
}

void iq1_m(const uint8_t* p, CanonicalBlock* out) {
    uint16_t words[4], scale = 0;  // the block's scale lies in the top nibbles of the four words
    for (int j = 0; j < 4; ++j) {
        words[j] = read16(p + 48 + 2 * j);
        scale = static_cast<uint16_t>(scale | words[j] >> 12 << 4 * j);
    }
    const float d = float_from_f16(scale) / 8;
    for (int b = 0; b < 8; ++b) {
        set_scales(out[b], d);
        for (int half = 0; half < 2; ++half) {
            const int group = 2 * b + half;
            out[b].s[half] = static_cast<int8_t>(2 * (words[group / 4] >> 3 * (group % 4) & 7) + 1);
        }
        for (int k = 0; k < 4; ++k) {
            const int v = 4 * b + k;
            const uint32_t nibble = v % 2 ? high(p[32 + v / 2]) : low(p[32 + v / 2]);
            put8_shifted(out[b].q + 8 * k, kGridIq1[p[v] | (nibble & 7) << 8], nibble >> 3);
        }
    }
}

}  // namespace

BlockDecoder block_decoder(Type type) {
    switch (type) {
        case Type::q4_0: return q4_0;
        case Type::q4_1: return q4_1;
        case Type::q5_0: return q5_0;
        case Type::q5_1: return q5_1;
        case Type::q8_0: return q8_0;
        case Type::q2_k: return q2_k;
        case Type::q3_k: return q3_k;
        case Type::q4_k: return q4_k;
        case Type::q5_k: return q5_k;
        case Type::q6_k: return q6_k;
        case Type::iq2_xxs: return iq2_xxs;
        case Type::iq2_xs: return iq2_xs;
        case Type::iq3_xxs: return iq3_xxs;
        case Type::iq1_s: return iq1_s;
        case Type::iq4_nl: return iq4_nl;
        case Type::iq3_s: return iq3_s;
        case Type::iq2_s: return iq2_s;
        case Type::iq4_xs: return iq4_xs;
        case Type::iq1_m: return iq1_m;
        case Type::tq1_0: return tq1_0;
        case Type::tq2_0: return tq2_0;
        case Type::mxfp4: return mxfp4;
        case Type::nvfp4: return nvfp4;
        case Type::q1_0: return q1_0;
        case Type::q2_0: return q2_0;
        case Type::f32:
        case Type::f16:
        case Type::bf16:
        case Type::i8:
        case Type::i16:
        case Type::i32:
        case Type::i64:
        case Type::f64: return nullptr;
    }
    return nullptr;
}

CanonicalTraits canonical_traits(Type type) {
    switch (type) {
        case Type::q2_k: return {16, true};
        case Type::q3_k:
        case Type::q6_k:
        case Type::iq2_xs:
        case Type::iq2_s:
        case Type::iq1_m:
        case Type::nvfp4: return {16, false};
        case Type::q4_1:
        case Type::q5_1:
        case Type::q4_k:
        case Type::q5_k: return {32, true};
        default: return {32, false};
    }
}

}  // namespace strata
