#include <cmath>
#include <numeric>

#include "cpu/ops_kernels.h"
#include "ops_harness.h"
#include "quant/dequantise.h"
#include "quant/half.h"

namespace strata::test {
namespace {

double rms_of(const float* x, int n, double eps) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += double(x[i]) * x[i];
    return 1.0 / std::sqrt(sum / n + eps);
}

TEST(Rows, NormIsTheRootMeanSquareNormAndItsCodes) {
    STRATA_RANDOM(random);
    const auto device = make_device();
    for (const int width : {32, 64, 704, 2048}) {
        const int rows = 5;
        const std::vector<float> input = random.values(size_t(rows) * size_t(width), 3.0f),
                                 weight = random.values(size_t(width));
        Table x(rows, width, input.data());
        ActivationTable out(rows, width);
        device->norm(x.view(), weight.data(), 1e-6f, out.view());
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < width; ++i)
                expect_near(x.at(r, i) * rms_of(x.row(r), width, 1e-6) * weight[size_t(i)], out.values().at(r, i),
                            1e-6);
        out.expect_codes();
    }
}

TEST(Rows, NormWithoutWeightWithoutCodesAndInPlace) {
    STRATA_RANDOM(random);
    const auto device = make_device();
    const int width = 50;  // no multiple of 32: nothing can have codes
    const std::vector<float> input = random.values(2 * size_t(width));
    Table x(2, width, input.data());
    device->norm(x.view(), nullptr, 1e-5f, {x.view(), {}});
    for (int r = 0; r < 2; ++r)
        for (int i = 0; i < width; ++i) {
            const float* row = input.data() + r * width;
            expect_near(row[i] * rms_of(row, width, 1e-5), x.at(r, i), 1e-6);
        }
}

TEST(Rows, AddNormAddsTheNormedRow) {
    STRATA_RANDOM(random);
    const auto device = make_device();
    const int width = 100;
    const std::vector<float> before = random.values(3 * size_t(width)), input = random.values(3 * size_t(width)),
                             weight = random.values(size_t(width));
    Table residual(3, width, before.data()), x(3, width, input.data());
    device->add_norm(residual.view(), x.view(), weight.data(), 1e-6f);
    for (int r = 0; r < 3; ++r)
        for (int i = 0; i < width; ++i)
            expect_near(before[size_t(r * width + i)] + x.at(r, i) * rms_of(x.row(r), width, 1e-6) * weight[size_t(i)],
                        residual.at(r, i), 1e-6);
}

TEST(Rows, ElementwiseOperations) {
    STRATA_RANDOM(random);
    const auto device = make_device();
    const int width = 75;
    const size_t n = 2 * size_t(width);
    const std::vector<float> a = random.values(n, 20.0f), b = random.values(n), weight = random.values(size_t(width));
    Table sum(2, width, a.data()), other(2, width, b.data()), scaled(2, width, a.data()), plain(2, width, a.data()),
        capped(2, width, a.data()), gathered(3, width);
    device->add(sum.view(), other.view());
    device->scale(scaled.view(), 0.3f, weight.data());
    device->scale(plain.view(), 0.3f, nullptr);
    device->soft_cap(capped.view(), 30.0f);
    const std::array<int32_t, 3> which{1, 0, 1};
    device->gather(other.view(), which, gathered.view());
    for (int r = 0; r < 2; ++r)
        for (int i = 0; i < width; ++i) {
            const float x = a[size_t(r * width + i)];
            EXPECT_EQ(sum.at(r, i), x + b[size_t(r * width + i)]);
            EXPECT_EQ(scaled.at(r, i), x * 0.3f * weight[size_t(i)]);
            EXPECT_EQ(plain.at(r, i), x * 0.3f);
            expect_near(30.0 * std::tanh(double(x) / 30.0), capped.at(r, i), 1e-6);
        }
    for (int r = 0; r < 3; ++r)
        for (int i = 0; i < width; ++i) EXPECT_EQ(gathered.at(r, i), other.at(which[size_t(r)], i));
}

TEST(Rows, CodesFollowTheReferenceForOddBlocks) {
    STRATA_RANDOM(random);
    const int width = 32 * 9;
    std::vector<float> x = random.values(size_t(width));
    const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < 32; ++i) {
        x[size_t(32 + i)] = 0.0f;                   // zeros
        x[size_t(64 + i)] *= 1e-31f;                // too small
        x[size_t(96 + i)] *= 1e-29f;                // just large enough
        x[size_t(128 + i)] *= 1e37f;                // large
        x[size_t(224 + i)] = float(i - 16) + 0.5f;  // ties
        x[size_t(256 + i)] = -0.0f;
    }
    x[32 * 7 + 3] = 127.0f;
    x[32 * 5 + 7] = -infinity;
    x[32 * 6 + 31] = nan;
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        ActivationTable out(1, width);
        std::copy(x.begin(), x.end(), out.values().row(0));
        make_device(way)->quantise(out.view());
        out.expect_codes();
    }
}

TEST(Rows, CacheRowsAreRoundedAsTheReference) {
    STRATA_RANDOM(random);
    const int width = 96;
    std::vector<float> x = random.values(size_t(width), 10.0f);
    x[3] = 70000.0f;  // over a half's range
    x[5] = 1e-7f;     // a subnormal half
    x[6] = -0.0f;
    std::vector<uint8_t> q8(size_t(width) / 32 * kQ8_0Bytes);
    quantise_q8_0_row(x.data(), width, q8.data());
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        const cpu::OpKernels& kernels = cpu::op_kernels(way.simd);
        std::vector<uint8_t> stored(q8.size());
        kernels.store(Type::q8_0, x.data(), width, reinterpret_cast<std::byte*>(stored.data()));
        EXPECT_EQ(stored, q8);
        for (const int n : {width, width - 7}) {
            std::vector<uint16_t> halves(size_t(n) + 1, 0xabcd);
            kernels.store(Type::f16, x.data(), n, reinterpret_cast<std::byte*>(halves.data()));
            for (int i = 0; i < n; ++i) EXPECT_EQ(halves[size_t(i)], f16_from_float(x[size_t(i)])) << i;
            EXPECT_EQ(halves.back(), 0xabcd);
        }
    }
}

TEST(Rows, EveryWayAndAnyCompanyGivesTheSameBits) {
    STRATA_RANDOM(random);
    const int width = 704, rows = 97;
    const size_t n = size_t(rows) * size_t(width);
    const std::vector<float> input = random.values(n, 5.0f), other = random.values(n),
                             weight = random.values(size_t(width));
    const auto run = [&](CpuDevice& device, int first, int count) {
        Table x(count, width, input.data() + int64_t(first) * width),
            y(count, width, other.data() + int64_t(first) * width);
        ActivationTable out(count, width);
        device.soft_cap(y.view(), 2.0f);
        device.add_norm(x.view(), y.view(), weight.data(), 1e-6f);
        device.scale(x.view(), 1.7f, weight.data());
        device.norm(x.view(), weight.data(), 1e-6f, out.view());
        device.add(out.view().values, y.view());
        return out.values().values();
    };
    const std::vector<float> reference = run(*make_device(all_ways().front()), 0, rows);
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        const auto device = make_device(way);
        expect_same_bits(reference, run(*device, 0, rows));
        for (const int row : {0, 41, 96})
            expect_same_bits({reference.begin() + row * width, reference.begin() + (row + 1) * width},
                             run(*device, row, 1));
    }
}

// ---- embedding and rotary table

TEST(Embedding, RowsOfEveryTypeAreScaledAndPicturesAreNot) {
    STRATA_RANDOM(random);
    const int width = 64, vocabulary = 10;
    const std::vector<float> table = random.values(size_t(vocabulary) * width),
                             pictures = random.values(3 * size_t(width));
    std::vector<uint16_t> halves;
    for (const float x : table) halves.push_back(f16_from_float(x));
    std::vector<uint8_t> q8(size_t(vocabulary) * 68);
    for (int r = 0; r < vocabulary; ++r) quantise_q8_0_row(table.data() + r * width, width, q8.data() + r * 68);

    const std::array<int32_t, 6> tokens{9, -1, 100, 4, -1, 9};  // those of pictures mean nothing
    const std::array<PictureSpan, 2> spans{{{1, 2}, {4, 1}}};
    Call call;
    call.rows = 6;
    call.tokens = tokens;
    call.pictures = spans;
    call.picture_rows = pictures.data();
    const auto device = make_device();
    for (const Type type : {Type::f32, Type::f16, Type::q8_0}) {
        const void* data = type == Type::f32   ? static_cast<const void*>(table.data())
                           : type == Type::f16 ? static_cast<const void*>(halves.data())
                                               : q8.data();
        const WeightView view{.name = "embedding",
                              .type = type,
                              .rows = vocabulary,
                              .cols = width,
                              .data = static_cast<const std::byte*>(data)};
        Table out(6, width);
        device->embed(call, device->load_matrix(view).value(), 3.5f, out.view());
        const std::array<int, 6> picture_row{-1, 0, 1, -1, 2, -1};
        for (int r = 0; r < 6; ++r) {
            std::vector<float> expected(static_cast<size_t>(width));
            if (picture_row[size_t(r)] >= 0) {
                std::copy_n(pictures.data() + picture_row[size_t(r)] * width, width, expected.data());
            } else {
                dequantise_row(type, view.data + uint64_t(tokens[size_t(r)]) * row_bytes(type, uint64_t(width)), width,
                               expected.data());
                for (float& x : expected) x *= 3.5f;
            }
            expect_same_bits(expected, {out.row(r), out.row(r) + width});
        }
    }
}

TEST(Embedding, ATokenOutsideOfTheVocabularyFailsTheDevice) {
    const std::vector<float> table(4 * 32);
    const std::array<int32_t, 1> tokens{4};
    Call call;
    call.rows = 1;
    call.tokens = tokens;
    const auto device = make_device();
    Table out(1, 32);
    const WeightView view{.name = "e",
                          .type = Type::f32,
                          .rows = 4,
                          .cols = 32,
                          .data = reinterpret_cast<const std::byte*>(table.data())};
    device->embed(call, device->load_matrix(view).value(), 1.0f, out.view());
    EXPECT_FALSE(device->status().ok());
}

TEST(Rotary, TableHasTheAnglesOfEachAxisAtAnyPosition) {
    RopeSpec rope;
    for (int i = 0; i < 5; ++i) {
        rope.frequency.push_back(std::pow(1e7, -i / 5.0));
        rope.axis.push_back(static_cast<uint8_t>(i % 3));
    }
    const std::array<std::array<int32_t, 3>, 3> positions{{{0, 0, 0}, {262143, 262143, 262143}, {7, 123456, 3}}};
    Call call;
    call.rows = 3;
    call.positions = positions;
    Table out(3, 10);
    make_device()->rope_table(call, rope, out.view());
    for (int r = 0; r < 3; ++r)
        for (int i = 0; i < 5; ++i) {
            const long double angle =
                static_cast<long double>(positions[size_t(r)][size_t(i % 3)]) * rope.frequency[size_t(i)];
            EXPECT_NEAR(out.at(r, i), double(std::cos(angle)), 1e-7);
            EXPECT_NEAR(out.at(r, 5 + i), double(std::sin(angle)), 1e-7);
        }
}

// ---- routing

struct Chosen {
    std::vector<int32_t> experts;
    std::vector<double> weights;
};

/// The definition of RouteSpec in double precision.
Chosen reference_route(const float* logits, int experts, const RouteSpec& spec) {
    std::vector<double> score(static_cast<size_t>(experts)), key(static_cast<size_t>(experts));
    double sum = 0, largest = *std::max_element(logits, logits + experts);
    for (int e = 0; e < experts; ++e) sum += std::exp(double(logits[e]) - largest);
    for (int e = 0; e < experts; ++e) {
        const double z = logits[e];
        score[size_t(e)] =
            spec.score == RouteSpec::Score::softmax ? std::exp(z - largest) / sum : 1 / (1 + std::exp(-z));
        key[size_t(e)] = (spec.bias_on_logit ? z : score[size_t(e)]) + (spec.bias ? spec.bias[e] : 0.0f);
    }
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key[size_t(a)] > key[size_t(b)]; });
    Chosen chosen;
    double total = 0;
    for (int rank = 0; rank < spec.used; ++rank) {
        chosen.experts.push_back(order[size_t(rank)]);
        total += score[size_t(order[size_t(rank)])];
    }
    for (const int32_t e : chosen.experts) {
        double w = score[size_t(e)];
        if (spec.normalise) w /= std::max(total, std::pow(2.0, -14));
        chosen.weights.push_back(w * spec.scale * (spec.expert_scale ? spec.expert_scale[e] : 1.0f));
    }
    return chosen;
}

void expect_routes_as_reference(Random& random, const RouteSpec& spec, int experts) {
    const int rows = 40;
    const std::vector<float> values = random.values(size_t(rows) * size_t(experts), 2.0f);
    Table logits(rows, experts, values.data());
    std::vector<int32_t> first_ids;
    std::vector<float> first_weights;
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        std::vector<int32_t> ids(size_t(rows) * size_t(spec.used));
        std::vector<float> weights(ids.size());
        make_device(way)->route(logits.view(), spec, {rows, spec.used, ids.data(), weights.data()});
        for (int r = 0; r < rows; ++r) {
            const Chosen chosen = reference_route(logits.row(r), experts, spec);
            for (int rank = 0; rank < spec.used; ++rank) {
                EXPECT_EQ(ids[size_t(r * spec.used + rank)], chosen.experts[size_t(rank)]);
                expect_near(chosen.weights[size_t(rank)], weights[size_t(r * spec.used + rank)], 2e-6);
            }
        }
        if (first_ids.empty()) {
            first_ids = ids;
            first_weights = weights;
        }
        EXPECT_EQ(first_ids, ids);
        expect_same_bits(first_weights, weights);
    }
}

TEST(Route, SoftmaxNormalised) {  // qwen35moe, flint
    STRATA_RANDOM(random);
    expect_routes_as_reference(random, {.used = 8}, 256);
}

TEST(Route, SoftmaxWithAFactorOfEachExpert) {  // gemma4
    STRATA_RANDOM(random);
    const std::vector<float> factors = random.values(128);
    expect_routes_as_reference(random, {.used = 8, .expert_scale = factors.data()}, 128);
}

TEST(Route, SigmoidChosenByLogitAndBiasNotNormalised) {  // kolibri1
    STRATA_RANDOM(random);
    const std::vector<float> bias = random.values(384);
    expect_routes_as_reference(
        random,
        {.score = RouteSpec::Score::sigmoid, .used = 6, .bias = bias.data(), .bias_on_logit = true, .normalise = false},
        384);
}

TEST(Route, SigmoidChosenByScoreAndBiasScaled) {  // lfm2moe, flint's other reading
    STRATA_RANDOM(random);
    const std::vector<float> bias = random.values(37, 0.3f);
    expect_routes_as_reference(random,
                               {.score = RouteSpec::Score::sigmoid, .used = 4, .bias = bias.data(), .scale = 1.5f}, 37);
}

TEST(Route, LogitsThatAreNotNumbersStillChooseDifferentExperts) {
    const auto device = make_device();
    const int experts = 21, used = 19;
    Table logits(2, experts);
    for (int e = 0; e < experts; ++e) logits.at(0, e) = logits.at(1, e) = std::nanf("");
    logits.at(1, 18) = 1.0f;
    logits.at(1, 20) = -std::numeric_limits<float>::infinity();
    for (const auto score : {RouteSpec::Score::softmax, RouteSpec::Score::sigmoid}) {
        std::vector<int32_t> ids(2 * used);
        std::vector<float> weights(2 * used);
        device->route(logits.view(), {.score = score, .used = used}, {2, used, ids.data(), weights.data()});
        for (int r = 0; r < 2; ++r) {
            std::vector<int> seen(experts);
            for (int rank = 0; rank < used; ++rank) {
                const int32_t e = ids[size_t(r * used + rank)];
                ASSERT_TRUE(e >= 0 && e < experts);
                EXPECT_EQ(seen[size_t(e)]++, 0);
            }
        }
    }
}

TEST(Route, TiesGoToTheLowerIndexAndTinySumsAreClamped) {
    const auto device = make_device();
    std::array<int32_t, 3> ids{};
    std::array<float, 3> weights{};
    Table equal(1, 20);
    device->route(equal.view(), {.used = 3}, {1, 3, ids.data(), weights.data()});
    EXPECT_EQ(ids, (std::array<int32_t, 3>{0, 1, 2}));
    Table low(1, 20);
    for (int e = 0; e < 20; ++e) low.at(0, e) = -30.0f;
    low.at(0, 7) = low.at(0, 3) = -20.0f;
    device->route(low.view(), {.score = RouteSpec::Score::sigmoid, .used = 3}, {1, 3, ids.data(), weights.data()});
    EXPECT_EQ(ids, (std::array<int32_t, 3>{3, 7, 0}));
    expect_near(std::exp(-20.0) * 16384, weights[0], 1e-6);
}

}  // namespace
}  // namespace strata::test
