#include "cpu/products.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>

#include "cpu/weights.h"
#include "quant/activations.h"
#include "quant/dot.h"
#include "quant/math.h"

namespace strata::cpu {
namespace {

/// Rows of activations in both forms, in memory of exactly their size.
class Inputs {
  public:
    Inputs(int rows, int width, std::mt19937& random)
        : values_(static_cast<size_t>(rows) * size_t(width)), codes_(rows, std::max(32, width / 32 * 32)) {
        std::normal_distribution<float> normal;
        for (float& value : values_) value = normal(random);
        for (size_t at = 0; at + 32 <= values_.size();
             at += 32) {  // extremes: only +-127, zero, one outlier, tiny, huge
            const unsigned kind = random() % 24;
            for (size_t i = at; i < at + 32; ++i) {
                if (kind == 0) values_[i] = random() % 2 ? 3.0f : -3.0f;
                if (kind == 1) values_[i] = 0;
                if (kind == 2) values_[i] *= i == at + 5 ? 1e4f : 1;
                if (kind == 3) values_[i] *= 1e-20f;
                if (kind == 4) values_[i] = -7;
                if (kind == 5) values_[i] *= 1e9f;
            }
        }
        if (width % 32 == 0)
            for (int row = 0; row < rows; ++row)
                codes_.set_row(row, values_.data() + static_cast<size_t>(row) * size_t(width));
        view_ = {{values_.data(), rows, width, width}, codes_.view()};
    }

    const Activations& view() const { return view_; }
    const float* row(int r) const { return values_.data() + int64_t(r) * view_.values.width; }

  private:
    std::vector<float> values_;
    A8Rows codes_;
    Activations view_;
};

struct OutRows {
    std::vector<float> memory;
    Rows rows;
    OutRows(int count, int width, float fill = 0)
        : memory(size_t(count) * size_t(width + 3), fill), rows{memory.data(), count, width, width + 3} {}
    float at(int row, int i) const { return rows.data[row * rows.stride + i]; }
};

float expected(const TestMatrix& m, int which, int r, const Inputs& x, int row) {
    float y = type_info(m.matrix.type).quantised
                  ? dot_reference(m.matrix.type, m.row(which, r), x.view().codes, row)
                  : dot_float_reference(m.matrix.type, m.row(which, r), x.row(row), m.matrix.cols);
    return m.matrix.scales ? y * m.matrix.scales[which] : y;
}

bool same(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

class ProductsTest : public testing::TestWithParam<Simd> {
  protected:
    void SetUp() override {
        seed_ = std::random_device{}();
        if (const char* given = std::getenv("POLYSTRATA_SEED")) seed_ = static_cast<unsigned>(std::atoi(given));
        random_.seed(seed_);
        RecordProperty("seed", static_cast<int>(seed_));
    }
    void TearDown() override {
        if (HasFailure()) std::fprintf(stderr, "POLYSTRATA_SEED=%u\n", seed_);
    }

    unsigned seed_ = 0;
    std::mt19937 random_;
    ThreadPool pool_{2};
    Products products_{pool_, GetParam()};
};

std::vector<Simd> machine_simds() {
    std::vector<Simd> simds;
    for (const Simd simd : {Simd::scalar, Simd::avx2, Simd::avx512})
        if (simd <= best_simd()) simds.push_back(simd);
    return simds;
}

INSTANTIATE_TEST_SUITE_P(, ProductsTest, testing::ValuesIn(machine_simds()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(ProductsTest, EveryTypeEqualsTheReferenceBitForBitForAnyNumberOfRows) {
    for (const Type type : matrix_types()) {
        const auto block = static_cast<int>(type_info(type).block);
        for (const int cols : {block <= 32 ? 704 : 512, block <= 32 ? 32 : 256, 1024}) {
            const TestMatrix m(type, 70, cols, random_);
            for (const int rows : {1, 2, 3, 4, 5, 8, 9, 17}) {
                const Inputs x(rows, cols, random_);
                OutRows out(rows, 70, 99);
                products_.matmul(x.view(), std::array{Product{m.matrix, out.rows}});
                for (int row = 0; row < rows; ++row)
                    for (int r = 0; r < 70; ++r)
                        ASSERT_TRUE(same(out.at(row, r), expected(m, 0, r, x, row)))
                            << type_name(type) << " cols " << cols << " rows " << rows << " row " << row << " output "
                            << r << ": " << out.at(row, r) << " instead of " << expected(m, 0, r, x, row);
                ASSERT_EQ(out.at(0, 70), 99);
            }
        }
    }
}

TEST_P(ProductsTest, ARowHasTheSameBitsAloneAndInACallOf512) {
    for (const Type type : {Type::q4_k, Type::q8_0, Type::q6_k, Type::q2_k, Type::iq3_xxs, Type::f16}) {
        const TestMatrix m(type, 33, 768, random_);
        const Inputs x(512, 768, random_);
        OutRows together(512, 33), alone(1, 33);
        products_.matmul(x.view(), std::array{Product{m.matrix, together.rows}});
        for (const int row : {0, 1, 63, 64, 65, 300, 509, 510, 511}) {
            const QuantisedRows& all = x.view().codes;
            const Activations one{x.view().values.slice(row, 1),
                                  {1, 768, all.row_values(row), all.row_scales(row), all.row_half_sums(row)}};
            products_.matmul(one, std::array{Product{m.matrix, alone.rows}});
            for (int r = 0; r < 33; ++r)
                ASSERT_TRUE(same(alone.at(0, r), together.at(row, r))) << type_name(type) << " row " << row;
        }
    }
}

TEST_P(ProductsTest, SeveralProductsOfOneInputMayDifferInTypeAndSize) {
    const TestMatrix a(Type::q4_k, 40, 512, random_), b(Type::f32, 5, 512, random_), c(Type::q8_0, 130, 512, random_);
    const Inputs x(3, 512, random_);
    OutRows ya(3, 40), yb(3, 5), yc(3, 130);
    products_.matmul(x.view(),
                     std::array{Product{a.matrix, ya.rows}, Product{b.matrix, yb.rows}, Product{c.matrix, yc.rows}});
    for (int row = 0; row < 3; ++row) {
        for (int r = 0; r < 40; ++r) ASSERT_TRUE(same(ya.at(row, r), expected(a, 0, r, x, row)));
        for (int r = 0; r < 5; ++r) ASSERT_TRUE(same(yb.at(row, r), expected(b, 0, r, x, row)));
        for (int r = 0; r < 130; ++r) ASSERT_TRUE(same(yc.at(row, r), expected(c, 0, r, x, row)));
    }
}

TEST_P(ProductsTest, MatmulAddAddsTheScaledProductOnce) {
    const float scale = 0.37f;
    TestMatrix m(Type::q5_k, 64, 256, random_);
    m.matrix.scales = &scale;
    const Inputs x(2, 256, random_);
    OutRows out(2, 64, 1.25f);
    products_.matmul_add(x.view(), m.matrix, out.rows);
    for (int row = 0; row < 2; ++row)
        for (int r = 0; r < 64; ++r) ASSERT_TRUE(same(out.at(row, r), 1.25f + expected(m, 0, r, x, row)));
}

TEST_P(ProductsTest, MatmulFloatDoesNotRoundActivations) {
    for (const Type type : matrix_types()) {
        const auto block = static_cast<int>(type_info(type).block);
        for (const int cols : {512, block == 1 ? 51 : block == 32 ? 96 : 256}) {
            if (cols % block != 0) continue;
            const TestMatrix m(type, 37, cols, random_);
            for (const int rows : {1, 2, 3, 4, 7}) {
                const Inputs x(rows, cols, random_);
                OutRows out(rows, 37);
                products_.matmul_float(x.view().values, std::array{Product{m.matrix, out.rows}});
                for (int row = 0; row < rows; ++row)
                    for (int r = 0; r < 37; ++r)
                        ASSERT_TRUE(same(out.at(row, r), dot_float_reference(type, m.row(0, r), x.row(row), cols)))
                            << type_name(type) << " cols " << cols << " row " << row << " output " << r;
            }
        }
    }
}

/// One layer's experts and the straightforward evaluation of docs/numerics.md, "An expert".
struct Layer {
    TestMatrix gate, up, down;
    TestMatrix shared_gate, shared_up, shared_down;
    std::vector<float> scales;
    ExpertSet set;
    SharedExpert shared;

    Layer(Type gate_type, Type down_type, int experts, int width, int inner, int shared_inner, std::mt19937& random,
          Gate function)
        : gate(gate_type, inner, width, random, experts, 7),
          up(gate_type, inner, width, random, experts),
          down(down_type, width, inner, random, experts, 13),
          shared_gate(Type::q8_0, shared_inner, width, random),
          shared_up(Type::q8_0, shared_inner, width, random),
          shared_down(Type::q8_0, width, shared_inner, random) {
        for (int e = 0; e < experts; ++e) scales.push_back(0.01f + 0.03f * static_cast<float>(e));
        gate.matrix.scales = up.matrix.scales = down.matrix.scales = scales.data();
        set = {0, function, gate.matrix, up.matrix, down.matrix};
        shared = {function, shared_gate.matrix, shared_up.matrix, shared_down.matrix, {}};
    }
};

std::vector<float> expert(const TestMatrix& gate, const TestMatrix& up, const TestMatrix& down, int which,
                          Gate function, const Inputs& x, int row) {
    const int inner = gate.matrix.rows;
    std::vector<float> h(static_cast<size_t>(inner)), y(static_cast<size_t>(down.matrix.rows));
    for (int i = 0; i < inner; ++i) {
        const float g = expected(gate, which, i, x, row), u = expected(up, which, i, x, row);
        h[size_t(i)] = (function == Gate::silu ? silu(g) : gelu(g)) * u;
    }
    A8Rows codes(h.data(), 1, inner);
    for (size_t i = 0; i < y.size(); ++i) {
        const std::byte* weights = down.row(which, static_cast<int>(i));
        y[i] = type_info(down.matrix.type).quantised ? dot_reference(down.matrix.type, weights, codes.view(), 0)
                                                     : dot_float_reference(down.matrix.type, weights, h.data(), inner);
        if (down.matrix.scales) y[i] *= down.matrix.scales[which];
    }
    return y;
}

bool same_or_nan(float a, float b) {
    return same(a, b) || (std::isnan(a) && std::isnan(b));
}

TEST_P(ProductsTest, ExpertsAreAddedByRankThenTheSharedOneThenTheResidual) {
    struct Case {
        Type gate, down;
        Gate function;
        int width, inner;
    };
    for (const Case& its :
         {Case{Type::q4_k, Type::q5_k, Gate::silu, 256, 512}, Case{Type::mxfp4, Type::q8_0, Gate::silu, 160, 96},
          Case{Type::q8_0, Type::iq4_nl, Gate::gelu, 96, 704}, Case{Type::f16, Type::f32, Gate::silu, 64, 32},
          Case{Type::q5_0, Type::bf16, Gate::silu, 64, 64}, Case{Type::f32, Type::q4_0, Gate::gelu, 64, 64},
          Case{Type::q8_0, Type::f16, Gate::gelu, 96, 40}}) {
        constexpr int kExperts = 9, kUsed = 3;
        const Layer layer(its.gate, its.down, kExperts, its.width, its.inner, 128, random_, its.function);
        for (const int rows : {1, 2, 5, 21}) {
            const Inputs x(rows, its.width, random_);
            std::vector<int32_t> chosen;
            std::vector<float> weights;
            OutRows logit(rows, 1);
            for (int row = 0; row < rows; ++row) {
                logit.rows.data[row * logit.rows.stride] = 0.3f * static_cast<float>(row) - 0.5f;
                int first = static_cast<int>(random_() % kExperts);
                for (int rank = 0; rank < kUsed; ++rank) {
                    chosen.push_back((first + 4 * rank) % kExperts);
                    weights.push_back(0.5f / static_cast<float>(rank + 1));
                }
            }
            const Routing routing{rows, kUsed, chosen.data(), weights.data()};
            for (const bool weighted : {false, true}) {
                for (const bool add : {false, true}) {
                    SharedExpert shared = layer.shared;
                    if (weighted) shared.weight_logit = logit.rows;
                    OutRows out(rows, its.width, 0.75f);
                    products_.experts(layer.set, x.view(), routing, shared, out.rows, add);
                    for (int row = 0; row < rows; ++row) {
                        std::vector<float> sum(static_cast<size_t>(its.width));
                        for (int rank = 0; rank < kUsed; ++rank) {
                            const auto pair = static_cast<size_t>(row * kUsed + rank);
                            const auto y = expert(layer.gate, layer.up, layer.down, chosen[pair], its.function, x, row);
                            for (size_t i = 0; i < sum.size(); ++i) sum[i] = std::fma(weights[pair], y[i], sum[i]);
                        }
                        const auto y =
                            expert(layer.shared_gate, layer.shared_up, layer.shared_down, 0, its.function, x, row);
                        const float weight = weighted ? sigmoid(logit.at(row, 0)) : 1;
                        for (size_t i = 0; i < sum.size(); ++i) {
                            sum[i] = std::fma(weight, y[i], sum[i]);
                            if (add) sum[i] = 0.75f + sum[i];
                            ASSERT_TRUE(same_or_nan(out.at(row, static_cast<int>(i)), sum[i]))
                                << type_name(its.gate) << "/" << type_name(its.down) << " rows " << rows << " row "
                                << row << " value " << i << ": " << out.at(row, static_cast<int>(i)) << " instead of "
                                << sum[i];
                        }
                    }
                }
            }
        }
    }
}

TEST_P(ProductsTest, ExpertsWithoutASharedOneAndAFeedForwardBlockAlone) {
    const Layer layer(Type::q4_k, Type::q6_k, 4, 256, 256, 64, random_, Gate::silu);
    for (const int rows : {1, 3}) {
        const Inputs x(rows, 256, random_);
        std::vector<int32_t> chosen(static_cast<size_t>(rows), 2);
        std::vector<float> weights(static_cast<size_t>(rows), 0.5f);
        OutRows routed(rows, 256), dense(rows, 256, 2);
        products_.experts(layer.set, x.view(), {rows, 1, chosen.data(), weights.data()}, {}, routed.rows, false);
        products_.feed_forward(layer.shared, x.view(), dense.rows, true);
        for (int row = 0; row < rows; ++row) {
            const auto y = expert(layer.gate, layer.up, layer.down, 2, Gate::silu, x, row);
            const auto z = expert(layer.shared_gate, layer.shared_up, layer.shared_down, 0, Gate::silu, x, row);
            for (int i = 0; i < 256; ++i) {
                ASSERT_TRUE(same_or_nan(routed.at(row, i), std::fma(0.5f, y[size_t(i)], 0.0f)));
                ASSERT_TRUE(same_or_nan(dense.at(row, i), 2 + std::fma(1.0f, z[size_t(i)], 0.0f)));
            }
        }
    }
}

TEST_P(ProductsTest, ResultsDoNotDependOnTheNumberOfThreads) {
    const Layer layer(Type::q5_k, Type::q8_0, 16, 512, 256, 256, random_, Gate::silu);
    const Inputs x(19, 512, random_);
    std::vector<int32_t> chosen;
    std::vector<float> weights;
    for (int row = 0; row < 19; ++row)
        for (int rank = 0; rank < 4; ++rank) chosen.push_back((row * 3 + rank * 5) % 16), weights.push_back(0.25f);
    OutRows two(19, 512);
    products_.experts(layer.set, x.view(), {19, 4, chosen.data(), weights.data()}, layer.shared, two.rows, false);
    for (const int threads : {1, 7}) {
        ThreadPool pool(threads);
        Products products(pool, GetParam());
        OutRows out(19, 512);
        products.experts(layer.set, x.view(), {19, 4, chosen.data(), weights.data()}, layer.shared, out.rows, false);
        for (int row = 0; row < 19; ++row)
            for (int i = 0; i < 512; ++i) ASSERT_TRUE(same_or_nan(out.at(row, i), two.at(row, i)));
    }
}

TEST_P(ProductsTest, ASecondCallOfTheSameSizeAllocatesNothing) {
    const TestMatrix m(Type::q8_0, 64, 256, random_);
    const Inputs x(8, 256, random_);
    OutRows out(8, 64);
    products_.matmul(x.view(), std::array{Product{m.matrix, out.rows}});
    const uint64_t before = products_.scratch_bytes();
    products_.matmul(x.view(), std::array{Product{m.matrix, out.rows}});
    EXPECT_EQ(products_.scratch_bytes(), before);
}

}  // namespace
}  // namespace strata::cpu
