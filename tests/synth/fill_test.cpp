// Random blocks: the wanted spread in every type, no infinities, the same bytes whatever made them.
#include "synth/fill.h"

#include <cmath>
#include <gtest/gtest.h>

#include "quant/dequantise.h"
#include "synth/random.h"

namespace strata::synth {
namespace {

std::vector<std::byte> make_all(const Filler& filler) {
    std::vector<std::byte> bytes(filler.bytes());
    for (uint64_t piece = filler.pieces(); piece-- > 0;) {  // any order
        const uint64_t at = piece * filler.piece_bytes();
        filler.make(piece, std::span(bytes).subspan(at, std::min(filler.piece_bytes(), filler.bytes() - at)));
    }
    return bytes;
}

const Type kTypes[] = {Type::f32,    Type::f16,     Type::bf16,   Type::q4_0,  Type::q4_1,    Type::q5_0,  Type::q5_1,
                       Type::q8_0,   Type::q2_k,    Type::q3_k,   Type::q4_k,  Type::q5_k,    Type::q6_k,  Type::iq1_s,
                       Type::iq1_m,  Type::iq2_xxs, Type::iq2_xs, Type::iq2_s, Type::iq3_xxs, Type::iq3_s, Type::iq4_nl,
                       Type::iq4_xs, Type::mxfp4,   Type::nvfp4,  Type::tq1_0, Type::tq2_0,   Type::q1_0,  Type::q2_0};

class SynthFill : public testing::TestWithParam<Type> {};

TEST_P(SynthFill, ValuesAreFiniteWithTheWantedSpreadAndNoMean) {
    const Type type = GetParam();
    for (const float spread : {0.0078f, 0.022f, 0.5f}) {
        const uint64_t width = 2048, rows = 64;
        const Filler filler({"blk.0.ffn_down_exps.weight", type, {width, rows}}, {.spread = spread}, 7);
        const auto bytes = make_all(filler);
        std::vector<float> values(width * rows);
        for (uint64_t r = 0; r < rows; ++r)
            dequantise_row(type, bytes.data() + r * row_bytes(type, width), width, values.data() + r * width);
        double sum = 0, squares = 0;
        for (const float value : values) {
            ASSERT_TRUE(std::isfinite(value));
            sum += value;
            squares += double{value} * value;
        }
        const auto n = static_cast<double>(values.size());
        EXPECT_NEAR(std::sqrt(squares / n) / spread, 1, 0.03) << type_info(type).name << " " << spread;
        // A mean that all rows share would grow from layer to layer: it must be as small as chance makes it.
        EXPECT_LT(std::abs(sum / n) / spread, 5 / std::sqrt(n / 32)) << type_info(type).name;
    }
}

TEST_P(SynthFill, ProductsOfUnitRowsHaveTheSizeOfTheGain) {
    const Type type = GetParam();
    const uint64_t width = 2048, rows = 256;
    const Filler filler({"w", type, {width, rows}}, {.spread = 1 / std::sqrt(2048.0f)}, 3);
    const auto bytes = make_all(filler);
    std::vector<float> x(width), row(width);
    Random random(11);
    for (float& value : x) value = random.normal();
    double squares = 0;
    for (uint64_t r = 0; r < rows; ++r) {
        dequantise_row(type, bytes.data() + r * row_bytes(type, width), width, row.data());
        double dot = 0;
        for (uint64_t i = 0; i < width; ++i) dot += double{row[i]} * x[i];
        squares += dot * dot;
    }
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(rows)), 1, 0.25) << type_info(type).name;
}

TEST_P(SynthFill, SameSeedGivesTheSameBytesAndAnotherDoesNot) {
    const gguf::TensorSpec tensor{"w", GetParam(), {2048, 5000}};  // several pieces
    const Fill fill{.spread = 0.02f};
    const auto a = make_all(Filler(tensor, fill, 1));
    EXPECT_GT(Filler(tensor, fill, 1).pieces(), 1u);
    EXPECT_EQ(a, make_all(Filler(tensor, fill, 1)));
    EXPECT_NE(a, make_all(Filler(tensor, fill, 2)));
    EXPECT_NE(a, make_all(Filler({"other", GetParam(), {2048, 5000}}, fill, 1)));
}

INSTANTIATE_TEST_SUITE_P(Types, SynthFill, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(type_info(info.param).name); });

TEST(SynthFills, RandomNumbersAreFixedForever) {
    Random random(1);
    EXPECT_EQ(random.next(), 0x910A2DEC89025CC1u);
    EXPECT_EQ(random.next(), 0xBEEB8DA1658EEC67u);
    EXPECT_EQ(hash("token_embd.weight"), hash(std::string("token_embd") + ".weight"));
}

TEST(SynthFills, NormsStandAroundTheirMean) {
    const auto bytes = make_all(Filler({"n", Type::f32, {4096}}, {.mean = 2, .spread = 0.2f}, 1));
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    double sum = 0;
    for (int i = 0; i < 4096; ++i) {
        EXPECT_NEAR(values[i], 2, 0.8);
        sum += values[i];
    }
    EXPECT_NEAR(sum / 4096, 2, 0.02);
}

TEST(SynthFills, LookupRowsHoldDifferentNumbersBelowTheLimit) {
    const Fill fill{.kind = Fill::Kind::distinct_ids, .limit = 8};
    const auto bytes = make_all(Filler({"t", Type::i32, {6, 1000}}, fill, 1));
    const auto* ids = reinterpret_cast<const int32_t*>(bytes.data());
    for (int row = 0; row < 1000; ++row)
        for (int i = 0; i < 6; ++i) {
            EXPECT_GE(ids[row * 6 + i], 0);
            EXPECT_LT(ids[row * 6 + i], 8);
            for (int j = 0; j < i; ++j) EXPECT_NE(ids[row * 6 + i], ids[row * 6 + j]);
        }
}

/// How many of the choices the busiest quarter of 256 experts gets, top 8 of a router's logits for random inputs.
double busiest_quarter(float row_spread) {
    const uint64_t width = 256, experts = 256;
    Fill fill{.spread = 1.5f / 16, .row_spread = row_spread};
    const auto bytes = make_all(Filler({"r", Type::f32, {width, experts}}, fill, 1));
    const auto* rows = reinterpret_cast<const float*>(bytes.data());
    Random random(5);
    std::vector<int> uses(experts);
    std::vector<float> x(width);
    const int tokens = 1500;
    for (int t = 0; t < tokens; ++t) {
        for (float& value : x) value = random.normal();
        std::vector<std::pair<float, int>> logits;
        for (uint64_t e = 0; e < experts; ++e) {
            float dot = 0;
            for (uint64_t i = 0; i < width; ++i) dot += rows[e * width + i] * x[i];
            logits.emplace_back(dot, static_cast<int>(e));
        }
        std::partial_sort(logits.begin(), logits.begin() + 8, logits.end(), std::greater<>());
        for (int k = 0; k < 8; ++k) ++uses[static_cast<size_t>(logits[static_cast<size_t>(k)].second)];
    }
    std::sort(uses.begin(), uses.end(), std::greater<>());
    int busiest = 0;
    for (int e = 0; e < 64; ++e) busiest += uses[static_cast<size_t>(e)];
    return busiest / (8.0 * tokens);
}

TEST(SynthFills, SkewMakesSomeExpertsBusier) {
    const double even = busiest_quarter(0), mild = busiest_quarter(0.12f), strong = busiest_quarter(0.36f);
    EXPECT_LT(even, 0.40);  // chance and the rows' own differences
    EXPECT_GT(mild, even + 0.03);
    EXPECT_GT(strong, mild + 0.10);
}

}  // namespace
}  // namespace strata::synth
