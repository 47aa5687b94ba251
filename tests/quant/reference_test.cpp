// Decoders, activations and the reference products against the fixture.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "fixture.h"
#include "quant/activations.h"
#include "quant/canonical.h"
#include "quant/dequantise.h"
#include "quant/dot.h"
#include "quant/grids.h"
#include "quant/half.h"

namespace strata {
namespace {

constexpr uint32_t kLastCode = 42;

std::vector<Type> quantised_types() {
    std::vector<Type> out;
    for (uint32_t code = 0; code <= kLastCode; ++code)
        if (const TypeInfo* info = find_type(code); info && info->quantised) out.push_back(info->type);
    return out;
}

std::string name_of(Type type) {
    return std::string(type_info(type).name);
}

TEST(Fixture, HoldsEveryQuantisedType) {
    std::vector<Type> seen;
    for (const auto& set : fixture::sets())
        if (type_info(set.type).quantised && (seen.empty() || seen.back() != set.type)) seen.push_back(set.type);
    EXPECT_EQ(seen.size(), quantised_types().size());
}

TEST(Types, BlockSizesAreThoseOfTheFixture) {
    for (const auto& [name, facts] : fixture::index().at("types").items()) {
        const auto type = type_by_name(name);
        ASSERT_TRUE(type) << name;
        EXPECT_EQ(static_cast<uint32_t>(*type), facts.at("id").get<uint32_t>()) << name;
        EXPECT_EQ(type_info(*type).block, facts.at("block").get<uint32_t>()) << name;
        EXPECT_EQ(type_info(*type).bytes, facts.at("block_bytes").get<uint32_t>()) << name;
    }
}

TEST(Dequantise, GivesTheFixturesBits) {
    for (const auto& set : fixture::sets()) {
        SCOPED_TRACE(set.name);
        const auto blocks = set.section<uint8_t>("blocks");
        const auto expected = set.section<float>("dequant_f32");
        const size_t bytes = row_bytes(set.type, fixture::kColumns);
        ASSERT_EQ(blocks.size(), bytes * set.rows());
        std::vector<float> row(fixture::kColumns);
        for (int r = 0; r < set.rows(); ++r) {
            dequantise_row(set.type, blocks.data() + r * bytes, fixture::kColumns, row.data());
            for (int i = 0; i < fixture::kColumns; ++i)
                ASSERT_EQ(float_bits(row[i]), float_bits(expected[r * fixture::kColumns + i])) << r << ", " << i;
        }
    }
}

TEST(Dequantise, ConvertsPlainNumbers) {
    const auto first = [](Type type, auto value) {
        uint8_t bytes[1 + sizeof(value)];  // one byte off: rows may lie at any alignment
        std::memcpy(bytes + 1, &value, sizeof(value));
        float out;
        dequantise_row(type, bytes + 1, 1, &out);
        return out;
    };
    EXPECT_EQ(first(Type::f32, 1.5f), 1.5f);
    EXPECT_EQ(first(Type::f64, 0.1), 0.1f);
    EXPECT_EQ(first(Type::i8, int8_t{-128}), -128.0f);
    EXPECT_EQ(first(Type::i16, int16_t{-32768}), -32768.0f);
    EXPECT_EQ(first(Type::i32, int32_t{16777217}), 16777216.0f);
    EXPECT_EQ(first(Type::i64, int64_t{-1} << 40), -0x1p40f);
    EXPECT_EQ(first(Type::f16, uint16_t{0x3c00}), 1.0f);
    EXPECT_EQ(first(Type::bf16, uint16_t{0x3f80}), 1.0f);
}

TEST(Canonical, TraitsSayWhatDecodersGive) {
    for (const auto& set : fixture::sets()) {
        if (!type_info(set.type).quantised) continue;
        SCOPED_TRACE(set.name);
        const CanonicalTraits traits = canonical_traits(set.type);
        const auto blocks = set.section<uint8_t>("blocks");
        bool halves_differ = false, minimum = false;
        CanonicalBlock out[kMaxCanonicalBlocks];
        for (size_t at = 0; at < blocks.size(); at += type_info(set.type).bytes) {
            block_decoder(set.type)(blocks.data() + at, out);
            for (uint32_t b = 0; b < type_info(set.type).block / 32; ++b) {
                halves_differ |=
                    out[b].s[0] != out[b].s[1] || out[b].mu[0] != out[b].mu[1] || out[b].d[0] != out[b].d[1];
                minimum |= out[b].e * static_cast<float>(out[b].mu[0]) != 0;
                EXPECT_TRUE(set.type == Type::nvfp4 || out[b].d[0] == out[b].d[1]);
            }
        }
        EXPECT_EQ(halves_differ, traits.group == 16);
        EXPECT_EQ(minimum, traits.minimum);
    }
}

TEST(Grids, AreTheFixturesTables) {
    const auto grids = fixture::read_json("grids.json");
    const auto check = [&](const char* name, const auto& table, int bits, int dim, const auto& levels) {
        const auto& vectors = grids.at("grids").at(name).at("vectors");
        ASSERT_EQ(vectors.size(), table.size());
        for (size_t i = 0; i < table.size(); ++i)
            for (int j = 0; j < dim; ++j)
                ASSERT_EQ(vectors[i][j].get<int>(), levels.at(table[i] >> bits * j & ((1 << bits) - 1))) << name << i;
    };
    check("iq2_xxs", kGridIq2Xxs, 2, 8, kLevelsIq2);
    check("iq2_xs", kGridIq2Xs, 2, 8, kLevelsIq2);
    check("iq2_s", kGridIq2S, 2, 8, kLevelsIq2);
    check("iq3_xxs", kGridIq3Xxs, 3, 4, kLevelsIq3Xxs);
    check("iq3_s", kGridIq3S, 3, 4, kLevelsIq3S);
    check("iq1", kGridIq1, 2, 8, kLevelsIq1);
    for (int k = 0; k < 128; ++k) EXPECT_EQ(signs_of_seven(k), grids.at("signs7").at("table")[k].get<int>());
    for (int k = 0; k < 16; ++k) {
        EXPECT_EQ(kValuesNl[k], grids.at("kvalues_iq4_nl")[k].get<int>());
        EXPECT_EQ(kValuesE2m1[k], grids.at("kvalues_e2m1_doubled")[k].get<int>());
    }
    for (int k = 0; k < 256; ++k) {
        EXPECT_EQ(float_bits(mxfp4_scale(k)), grids.at("e8m0_half").at("f32_bits")[k].get<uint32_t>()) << k;
        EXPECT_EQ(float_bits(nvfp4_scale(k)), grids.at("ue4m3_half").at("f32_bits")[k].get<uint32_t>()) << k;
    }
}

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
    for (uint32_t h = 0; h < 0x10000; ++h) {
        const bool nan = (h & 0x7fff) > 0x7c00;
        const float value = float_from_f16(static_cast<uint16_t>(h));
        if (nan) {
            EXPECT_TRUE(std::isnan(value));
            EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(value))));
        } else {
            ASSERT_EQ(f16_from_float(value), h);
        }
    }
    EXPECT_EQ(float_from_f16(0x0001), 0x1p-24f);
    EXPECT_EQ(float_from_f16(0x7bff), 65504.0f);
    EXPECT_EQ(float_from_f16(0xfc00), -INFINITY);
}

TEST(Half, RoundsToNearestEven) {
    // Between every two neighbouring halves: the middle goes to the even one, a hair off it to the nearer.
    for (uint16_t h = 0; h < 0x7bff; ++h) {
        const float below = float_from_f16(h), above = float_from_f16(h + 1);
        const float middle = (below + above) / 2;  // exact
        ASSERT_EQ(f16_from_float(middle), h % 2 ? h + 1 : h);
        ASSERT_EQ(f16_from_float(std::nextafter(middle, 0.0f)), h);
        ASSERT_EQ(f16_from_float(std::nextafter(middle, INFINITY)), h + 1);
        ASSERT_EQ(f16_from_float(-middle), 0x8000 | (h % 2 ? h + 1 : h));
    }
    EXPECT_EQ(f16_from_float(65519.0f), 0x7bff);
    EXPECT_EQ(f16_from_float(65520.0f), 0x7c00);
}

TEST(Half, Bf16RoundsToNearestEvenAndKeepsNan) {
    EXPECT_EQ(bf16_from_float(float_from_bits(0x3f808000)), 0x3f80);
    EXPECT_EQ(bf16_from_float(float_from_bits(0x3f818000)), 0x3f82);
    EXPECT_EQ(bf16_from_float(float_from_bits(0x3f808001)), 0x3f81);
    EXPECT_EQ(bf16_from_float(float_from_bits(0x7f7fffff)), 0x7f80);
    EXPECT_EQ(bf16_from_float(float_from_bits(0x7f800001)), 0x7fc0);
}

struct ActivationSection {
    const char* key;
    const char* input;
};

template <class T>
std::vector<T> activation_section(const std::string& key) {
    const auto& place = fixture::index().at("activations").at("sections").at(key);
    return fixture::values_of<T>(fixture::read_file("activations.bin"), place.at(0), place.at(1));
}

TEST(Activations, A8GivesTheFixturesBytes) {
    const auto y = fixture::read_floats("y.f32");
    A8Rows rows(y.data(), 1, fixture::kColumns);
    const QuantisedRows view = rows.view();
    const auto values = activation_section<int8_t>("A8.y.q_i8");
    const auto scales = activation_section<float>("A8.y.d_f32");
    const auto sums = activation_section<int16_t>("A8.y.sum16_i16");
    EXPECT_EQ(std::memcmp(view.values, values.data(), values.size()), 0);
    EXPECT_EQ(std::memcmp(view.scales, scales.data(), scales.size() * 4), 0);
    EXPECT_EQ(std::memcmp(view.half_sums, sums.data(), sums.size() * 2), 0);
}

TEST(Activations, Q8_0GivesTheBytesOfTheEvenRule) {
    for (const std::string name : {"y", "y_ties"}) {
        const auto x = fixture::read_floats(name + ".f32");
        std::vector<uint8_t> out(x.size() / 32 * kQ8_0Bytes);
        quantise_q8_0_row(x.data(), static_cast<int>(x.size()), out.data());
        EXPECT_EQ(out, activation_section<uint8_t>("Q8_0." + name + ".even")) << name;
        std::vector<float> back(x.size()), same(x.size());
        dequantise_q8_0_row(out.data(), static_cast<int>(x.size()), back.data());
        dequantise_row(Type::q8_0, out.data(), static_cast<int64_t>(x.size()), same.data());
        EXPECT_EQ(std::memcmp(back.data(), same.data(), x.size() * 4), 0) << name;
    }
}

TEST(Activations, A8RoundsTiesToEven) {
    const auto x = fixture::read_floats("y_ties.f32");
    A8Rows rows(x.data(), 1, static_cast<int>(x.size()));
    const auto blocks = activation_section<uint8_t>("Q8_0.y_ties.even");
    for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(rows.view().values[i], static_cast<int8_t>(blocks[i / 32 * kQ8_0Bytes + 2 + i % 32])) << i;
}

TEST(Activations, A8HandlesTheEdgesOfFloat) {
    float x[5 * 32] = {};
    x[0] = 0.99e-30f;  // too small: zero
    x[32] = 1e-30f, x[33] = -1e-30f;
    x[64] = 3.4e38f, x[65] = -1.7e38f;
    x[96] = NAN, x[97] = 1;
    x[128] = -INFINITY;
    A8Rows rows(x, 1, 5 * 32);
    const QuantisedRows view = rows.view();
    EXPECT_EQ(view.scales[0], 0.0f);
    EXPECT_EQ(view.values[0], 0);
    EXPECT_EQ(view.values[32], 127);
    EXPECT_EQ(view.values[33], -127);
    EXPECT_EQ(view.values[64], 127);
    EXPECT_EQ(view.values[65], -64);  // -63.5, to even
    EXPECT_TRUE(std::isnan(view.scales[3]));
    EXPECT_TRUE(std::isnan(view.scales[4]));
    EXPECT_EQ(view.values[97], 0);
}

TEST(Dot, IsTheExactProductWithinTheFixturesTolerance) {
    const auto y = fixture::read_floats("y.f32");
    A8Rows rows(y.data(), 1, fixture::kColumns);
    for (const auto& set : fixture::sets()) {
        if (!type_info(set.type).quantised) continue;
        SCOPED_TRACE(set.name);
        const bool long_blocks =
            set.type == Type::q1_0 || set.type == Type::q2_0 || set.type == Type::tq1_0 || set.type == Type::tq2_0;
        const auto blocks = set.section<uint8_t>("blocks");
        const auto exact = set.section<double>("dot_int_exact_a8_f64");
        const auto yardstick = set.section<double>("absdot_f64");
        const size_t bytes = row_bytes(set.type, fixture::kColumns);
        for (int r = 0; r < set.rows(); ++r) {
            const double dot = dot_reference(set.type, blocks.data() + r * bytes, rows.view(), 0);
            EXPECT_NEAR(dot, exact[r], (long_blocks ? 1e-5 : 1e-6) * yardstick[r] + 1e-9) << r;
        }
    }
}

TEST(Dot, FloatWeightsMultiplyFloatActivations) {
    const auto y = fixture::read_floats("y.f32");
    for (const auto& set : fixture::sets()) {
        if (type_info(set.type).quantised) continue;
        SCOPED_TRACE(set.name);
        const auto blocks = set.section<uint8_t>("blocks");
        const auto values = set.section<float>("dequant_f32");
        const auto exact = set.section<double>("dot_f64");
        const auto yardstick = set.section<double>("absdot_f64");
        const size_t bytes = row_bytes(set.type, fixture::kColumns);
        for (int r = 0; r < set.rows(); ++r) {
            const float dot = dot_float_reference(set.type, blocks.data() + r * bytes, y.data(), fixture::kColumns);
            EXPECT_NEAR(dot, exact[r], 1e-6 * yardstick[r]) << r;
            const float* row = values.data() + r * fixture::kColumns;
            EXPECT_EQ(dot, dot_float_reference(Type::f32, row, y.data(), fixture::kColumns)) << r;
        }
    }
}

/// Activations with blocks of extremes, of one sign, of zeros and of one large value.
std::vector<float> adversarial_activations(int width, std::mt19937& random) {
    std::vector<float> x(width);
    for (int b = 0; b < width / 32; ++b) {
        const int kind = static_cast<int>(random() % 5);
        const float scale = std::ldexp(1.0f, static_cast<int>(random() % 20) - 10);
        for (int i = 0; i < 32; ++i) {
            const float unit = static_cast<float>(random()) * 0x1p-31f - 1.0f;
            const float sign = unit < 0 ? -1.0f : 1.0f;
            const float choice[5] = {unit, sign, 1.0f, 0.0f, i == 7 ? 1.0f : unit * 1e-3f};
            x[32 * b + i] = scale * choice[kind];
        }
    }
    return x;
}

/// Random bytes whose scales are finite: exactly the blocks that decode to finite values.
std::vector<uint8_t> random_row(Type type, int width, std::mt19937& random) {
    const TypeInfo& info = type_info(type);
    std::vector<uint8_t> row(row_bytes(type, width));
    std::vector<float> values(info.block);
    for (size_t at = 0; at < row.size(); at += info.bytes) {
        bool finite = false;
        while (!finite) {
            const int fill = static_cast<int>(random() % 8);  // now and then all codes at one end
            for (uint32_t i = 0; i < info.bytes; ++i)
                row[at + i] = fill == 0 ? 0x00 : fill == 1 ? 0xff : static_cast<uint8_t>(random());
            if (fill < 2) {  // a sane scale at both ends, where types keep theirs
                const uint8_t half[2] = {0x34, 0x92};
                for (uint32_t i : {0u, 2u, info.bytes - 4, info.bytes - 2}) std::memcpy(row.data() + at + i, half, 2);
            }
            dequantise_row(type, row.data() + at, info.block, values.data());
            finite = true;
            for (float v : values) finite = finite && std::fabs(v) < 1e30f;
        }
    }
    return row;
}

TEST(Dot, StaysExactInsideBlocksOnAdversarialData) {
    const uint32_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (const Type type : quantised_types()) {
        SCOPED_TRACE(name_of(type));
        const int block = static_cast<int>(type_info(type).block);
        for (int round = 0; round < 40; ++round) {
            const int width = block * (1 + static_cast<int>(random() % (2816 / block)));
            const auto row = random_row(type, width, random);
            const auto x = adversarial_activations(width, random);
            A8Rows rows(x.data(), 1, width);
            const QuantisedRows a = rows.view();
            // The definition in long double: one block exact, then the chain with its roundings.
            std::vector<CanonicalBlock> decoded(width / 32);
            for (int i = 0; i < width / block; ++i)
                block_decoder(type)(row.data() + i * type_info(type).bytes, decoded.data() + i * block / 32);
            float y = 0, segment = 0;
            for (int b = 0; b < width / 32; ++b) {
                const CanonicalBlock& w = decoded[b];
                long double plus = 0, minus = 0;
                for (int i = 0; i < 32; ++i) {
                    plus += static_cast<long double>(w.d[i / 16]) * w.s[i / 16] * w.q[i] * a.values[32 * b + i];
                    minus += static_cast<long double>(w.e) * w.mu[i / 16] * a.values[32 * b + i];
                }
                const auto t = static_cast<float>(static_cast<float>(plus) - minus);
                segment = std::fma(a.scales[b], t, segment);
                if (b % 8 == 7 || b + 1 == width / 32) y = b < 8 ? segment : y + segment, segment = 0;
            }
            ASSERT_EQ(float_bits(dot_reference(type, row.data(), a, 0)), float_bits(y)) << "width " << width;
        }
    }
}

TEST(Dot, DoesNotDependOnTheOtherRowsOfACall) {
    std::mt19937 random(7);
    const int width = 768;
    std::vector<float> x;
    for (int r = 0; r < 5; ++r) {
        const auto row = adversarial_activations(width, random);
        x.insert(x.end(), row.begin(), row.end());
    }
    A8Rows together(x.data(), 5, width);
    const auto w = random_row(Type::q4_k, width, random);
    for (int r = 0; r < 5; ++r) {
        A8Rows alone(x.data() + r * width, 1, width);
        EXPECT_EQ(dot_reference(Type::q4_k, w.data(), together.view(), r),
                  dot_reference(Type::q4_k, w.data(), alone.view(), 0));
    }
}

TEST(Dot, NeverGivesMinusZero) {
    std::vector<float> x(256, -1.0f);
    A8Rows rows(x.data(), 1, 256);
    for (const Type type : quantised_types()) {
        const std::vector<uint8_t> zeros(row_bytes(type, 256));
        EXPECT_EQ(float_bits(dot_reference(type, zeros.data(), rows.view(), 0)) >> 31, 0u) << name_of(type);
    }
}

TEST(Dot, ShowsNanOfTheActivations) {
    std::vector<float> x(256, 1.0f);
    x[200] = NAN;
    A8Rows rows(x.data(), 1, 256);
    std::mt19937 random(1);
    for (const Type type : quantised_types())
        EXPECT_TRUE(std::isnan(dot_reference(type, random_row(type, 256, random).data(), rows.view(), 0)));
}

}  // namespace
}  // namespace strata
