// Quantisers: their error against the fixture's blocks, and what they do with rows that are not nice.
#include "quant/quantise.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "fixture.h"
#include "quant/dequantise.h"
#include "quant/grids.h"
#include "quant/quantise_grid.h"

namespace strata {
namespace {

constexpr int kColumns = fixture::kColumns;

std::vector<Type> all_types() {
    std::vector<Type> out;
    for (uint32_t code = 0; code <= 42; ++code)
        if (const TypeInfo* info = find_type(code); info && quantisable(info->type)) out.push_back(info->type);
    return out;
}

std::vector<uint8_t> quantised(Type type, const std::vector<float>& x, const float* importance = nullptr) {
    std::vector<uint8_t> out(row_bytes(type, x.size()));
    quantise_row(type, x.data(), static_cast<int64_t>(x.size()), importance, out.data());
    return out;
}

std::vector<float> round_trip(Type type, const std::vector<float>& x, const float* importance = nullptr) {
    std::vector<float> out(x.size());
    dequantise_row(type, quantised(type, x, importance).data(), static_cast<int64_t>(x.size()), out.data());
    return out;
}

TEST(Quantise, TakesEveryTypeButIntegersAndDoubles) {
    EXPECT_EQ(all_types().size(), 28u);
    for (const Type type : {Type::i8, Type::i16, Type::i32, Type::i64, Type::f64}) EXPECT_FALSE(quantisable(type));
}

TEST(Quantise, ErrorIsThatOfTheFixtureOrLess) {
    const auto x = fixture::read_floats("x.f32");
    const auto importance = fixture::read_floats("imatrix.f32");
    for (const auto& set : fixture::sets()) {
        if (set.name.find("adversarial") != std::string::npos) continue;
        const bool weighted = set.name.find("imatrix") != std::string::npos;
        const auto rows = set.facts.at(weighted ? "wrmse_rows" : "rmse_rows").get<std::vector<double>>();
        double square = 0, fixture_square = 0;
        for (int r = 0; r < set.rows(); ++r) {
            if (set.type == Type::iq3_s && r == 6) continue;  // spoilt in the fixture
            const std::vector<float> row(x.begin() + r * kColumns, x.begin() + (r + 1) * kColumns);
            const auto back = round_trip(set.type, row, weighted ? importance.data() : nullptr);
            double error = 0, total = 0;
            for (int i = 0; i < kColumns; ++i) {
                const double q = weighted ? importance[i] : 1;
                error += q * (back[i] - row[i]) * (back[i] - row[i]);
                total += q;
            }
            square += error / total;
            fixture_square += rows[r] * rows[r];
        }
        EXPECT_LE(std::sqrt(square), 1.02 * std::sqrt(fixture_square)) << set.name;
    }
}

std::vector<float> normal_values(size_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> out(count);
    std::normal_distribution<float> normal;
    for (float& v : out) v = normal(random);
    return out;
}

TEST(Quantise, ErrorOnNormalWeightsIsWhatTheTypeCanDo) {
    // Root mean square error relative to the standard deviation of the weights.
    const std::pair<Type, double> expected[] = {
        {Type::q8_0, 0.005},   {Type::q6_k, 0.017},   {Type::q5_k, 0.035},    {Type::q5_1, 0.034},
        {Type::q5_0, 0.040},   {Type::q4_k, 0.071},   {Type::q4_1, 0.070},    {Type::iq4_nl, 0.075},
        {Type::iq4_xs, 0.076}, {Type::q4_0, 0.081},   {Type::nvfp4, 0.095},   {Type::mxfp4, 0.115},
        {Type::iq3_s, 0.137},  {Type::q3_k, 0.144},   {Type::iq3_xxs, 0.182}, {Type::iq2_s, 0.248},
        {Type::q2_k, 0.267},   {Type::iq2_xs, 0.300}, {Type::iq2_xxs, 0.343}, {Type::iq1_m, 0.451},
        {Type::iq1_s, 0.485},  {Type::q1_0, 0.600},   {Type::q2_0, 0.720},    {Type::tq2_0, 0.809},
        {Type::tq1_0, 0.809},
    };
    const auto x = normal_values(32 * 512, 1);
    for (const auto& [type, error] : expected) {
        const auto back = round_trip(type, x);
        double square = 0;
        for (size_t i = 0; i < x.size(); ++i) square += (back[i] - x[i]) * double{back[i] - x[i]};
        EXPECT_NEAR(std::sqrt(square / static_cast<double>(x.size())), error, 0.04 * error + 0.0005)
            << type_info(type).name;
    }
}

TEST(Quantise, ZerosStayZero) {
    const std::vector<float> zeros(512);
    for (const Type type : all_types())
        for (const float v : round_trip(type, zeros)) ASSERT_EQ(v, 0.0f) << type_info(type).name;
}

TEST(Quantise, ExtremeRowsGiveFiniteValues) {
    const auto importance = normal_values(512, 3);
    std::vector<float> squares(512), none(512);
    for (int i = 0; i < 512; ++i) squares[i] = importance[i] * importance[i];
    for (const float scale : {1e15f, 1e9f, 1e-7f, 1e-20f, 1e-38f, 1e-44f}) {
        auto x = normal_values(512, 2);
        for (float& v : x) v *= scale;
        x[17] = 0.0f, x[300] = 1.0f;
        for (const Type type : all_types())
            for (const float* q : std::initializer_list<const float*>{nullptr, squares.data(), none.data()}) {
                const auto back = round_trip(type, x, q);
                for (const float v : back) ASSERT_TRUE(std::isfinite(v) || type == Type::f16) << type_info(type).name;
            }
    }
}

TEST(Quantise, ColumnsThatMatterComeOutBetter) {
    const auto x = normal_values(8 * 512, 4);
    std::vector<float> importance(x.size(), 1.0f);
    for (size_t i = 0; i < x.size(); i += 4) importance[i] = 30;
    for (const Type type : all_types()) {
        const auto plain = round_trip(type, x), weighted = round_trip(type, x, importance.data());
        double plain_error = 0, weighted_error = 0;
        for (size_t i = 0; i < x.size(); i += 4) {
            plain_error += (plain[i] - x[i]) * double{plain[i] - x[i]};
            weighted_error += (weighted[i] - x[i]) * double{weighted[i] - x[i]};
        }
        if (plain == weighted)
            EXPECT_EQ(plain_error, weighted_error);  // the type ignores importance
        else
            EXPECT_LT(weighted_error, 0.97 * plain_error) << type_info(type).name;
    }
}

TEST(Quantise, TernaryBlocksSurviveTheRoundTrip) {
    for (const auto& set : fixture::sets()) {
        if (set.name != "TQ1_0 plain" && set.name != "TQ2_0 plain" && set.name != "Q8_0 plain") continue;
        const auto blocks = set.section<uint8_t>("blocks");
        const auto values = set.section<float>("dequant_f32");
        EXPECT_EQ(round_trip(set.type, values), values) << set.name;
    }
}

TEST(Quantise, SuperBlocksOfKAndGridTypesDoNotDependOnTheirNeighbours) {
    const auto x = normal_values(512, 5);
    const std::vector<float> second(x.begin() + 256, x.end());
    for (const Type type : all_types()) {
        if (type_info(type).block != 256) continue;
        const auto both = quantised(type, x), alone = quantised(type, second);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), both.begin() + static_cast<long>(alone.size())));
    }
}

TEST(Quantise, GridSearchFindsTheNearestVector) {
    const uint32_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto check = [&](std::span<const uint16_t> codes, int dim, int bits, int levels, float first, float step) {
        const quantise::Grid grid(codes, dim, bits, levels, first, step);
        for (int round = 0; round < 300; ++round) {
            float y[8], w[8];
            const float scale = 0.1f + static_cast<float>(random() % 100) * 0.02f;
            for (int j = 0; j < dim; ++j) {
                y[j] =
                    scale *
                    (first + step * (static_cast<float>(random() % 1000) * 1e-3f * static_cast<float>(levels) - 0.5f));
                w[j] = static_cast<float>(random() % 100 + 1);
            }
            const auto distance = [&](int index) {
                double sum = 0;
                for (int j = 0; j < dim; ++j) sum += w[j] * std::pow(double{scale} * grid.value(index, j) - y[j], 2);
                return sum;
            };
            double least = INFINITY;
            for (size_t i = 0; i < codes.size(); ++i) least = std::min(least, distance(static_cast<int>(i)));
            ASSERT_LE(distance(grid.nearest(y, w, scale)), least * 1.00001 + 1e-9);
        }
    };
    check(kGridIq2Xxs, 8, 2, 3, 1, 2);
    check(kGridIq2S, 8, 2, 3, 1, 2);
    check(kGridIq3Xxs, 4, 3, 8, 1, 2);
    check(kGridIq3S, 4, 3, 8, 1, 2);
    check(kGridIq1, 8, 2, 3, -1, 1);
}

}  // namespace
}  // namespace strata
