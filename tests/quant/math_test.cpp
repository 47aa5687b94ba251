// The functions of math.h: their error against double precision, their edges, and lanes against scalars.
#include "quant/math.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "quant/half.h"

namespace strata {
namespace {

/// Error in units of the last place of the exact value (subnormals count like the smallest normal).
double ulps(float value, double exact) {
    const int exponent = std::max(std::ilogb(static_cast<float>(exact)), -126);
    return std::fabs(value - exact) / std::ldexp(1.0, exponent - 23);
}

/// The largest error over every `stride`-th float between two bounds of one sign.
template <class Function, class Exact>
double worst(Function function, Exact exact, float low, float high, uint32_t stride = 997) {
    double largest = 0;
    for (uint32_t bits = float_bits(low);; bits += stride) {
        const float x = float_from_bits(bits);
        if (std::fabs(x) > std::fabs(high)) return largest;
        largest = std::max(largest, ulps(function(x), exact(static_cast<double>(x))));
    }
}

double exact_exp(double x) {
    return std::exp(x);
}
double exact_sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}
double exact_silu(double x) {
    return x / (1 + std::exp(-x));
}
double exact_tanh(double x) {
    return std::tanh(x);
}
double exact_softplus(double x) {
    return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double exact_gelu(double x) {
    return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(Math, ExpIsWithinOneUlp) {
    EXPECT_LE(worst(exp_fixed<float>, exact_exp, 1e-10f, 87.0f), 1.0);
    EXPECT_LE(worst(exp_fixed<float>, exact_exp, -1e-10f, -87.0f), 1.0);
}

TEST(Math, ExpClampsAndIsExactAtZero) {
    EXPECT_EQ(exp_fixed(0.0f), 1.0f);
    EXPECT_EQ(exp_fixed(-0.0f), 1.0f);
    EXPECT_EQ(exp_fixed(1000.0f), exp_fixed(87.0f));
    EXPECT_EQ(exp_fixed(INFINITY), exp_fixed(87.0f));
    EXPECT_EQ(exp_fixed(-INFINITY), exp_fixed(-87.0f));
    EXPECT_GE(exp_fixed(-87.0f), 0x1p-126f);
}

TEST(Math, SigmoidAndSiluAreWithinTwoAndAHalfUlps) {
    for (const float sign : {1.0f, -1.0f}) {
        EXPECT_LE(worst(sigmoid<float>, exact_sigmoid, sign * 1e-10f, sign * 86.0f), 2.5);
        EXPECT_LE(worst(silu<float>, exact_silu, sign * 1e-10f, sign * 86.0f), 2.5);
    }
    EXPECT_EQ(silu(0.0f), 0.0f);
    EXPECT_EQ(silu(200.0f), 200.0f);
    EXPECT_NEAR(silu(-200.0f), 0.0f, 1e-34f);
    EXPECT_TRUE(std::isnan(silu(NAN)));
}

TEST(Math, GeluIsWithinThreeUlpsAboveMinusOne) {
    EXPECT_LE(worst(gelu<float>, exact_gelu, 1e-10f, 100.0f), 2.6);
    EXPECT_LE(worst(gelu<float>, exact_gelu, -1e-10f, -1.0f), 2.6);
    // Further left the exponent's own rounding shows; the value is below 0.16 and falls to zero.
    for (float x = -1; x > -12; x -= 1e-4f) ASSERT_NEAR(gelu(x), exact_gelu(x), 5e-8) << x;
    EXPECT_NEAR(gelu(-50.0f), 0.0f, 1e-35f);
    EXPECT_EQ(gelu(50.0f), 50.0f);
}

TEST(Math, TanhIsWithinTwoUlps) {
    for (const float sign : {1.0f, -1.0f})
        EXPECT_LE(worst(tanh_fixed<float>, exact_tanh, sign * 1e-10f, sign * 20.0f), 1.6);
    EXPECT_EQ(tanh_fixed(0.0f), 0.0f);
    EXPECT_EQ(tanh_fixed(INFINITY), 1.0f);
    EXPECT_EQ(tanh_fixed(-1e30f), -1.0f);
}

TEST(Math, SoftplusIsWithinThreeUlps) {
    for (const float sign : {1.0f, -1.0f})
        EXPECT_LE(worst(softplus<float>, exact_softplus, sign * 1e-10f, sign * 86.0f), 2.8);
    EXPECT_EQ(softplus(500.0f), 500.0f);
    EXPECT_NEAR(softplus(-500.0f), 0.0f, 1e-37f);
}

/// Four lanes at once, as a SIMD file would instantiate the functions.
struct Four {
    float v[4];
    explicit Four(float x) : v{x, x, x, x} {}
    template <class F>
    static Four each(F f) {
        Four out(0);
        for (int i = 0; i < 4; ++i) out.v[i] = f(i);
        return out;
    }
};
Four operator+(Four a, Four b) {
    return Four::each([&](int i) { return a.v[i] + b.v[i]; });
}
Four operator-(Four a, Four b) {
    return Four::each([&](int i) { return a.v[i] - b.v[i]; });
}
Four operator*(Four a, Four b) {
    return Four::each([&](int i) { return a.v[i] * b.v[i]; });
}
Four operator/(Four a, Four b) {
    return Four::each([&](int i) { return a.v[i] / b.v[i]; });
}
Four operator-(Four a) {
    return Four::each([&](int i) { return -a.v[i]; });
}
Four lane_fma(Four a, Four b, Four c) {
    return Four::each([&](int i) { return strata::lane_fma(a.v[i], b.v[i], c.v[i]); });
}
Four lane_min(Four a, Four b) {
    return Four::each([&](int i) { return strata::lane_min(a.v[i], b.v[i]); });
}
Four lane_max(Four a, Four b) {
    return Four::each([&](int i) { return strata::lane_max(a.v[i], b.v[i]); });
}
Four lane_abs(Four a) {
    return Four::each([&](int i) { return strata::lane_abs(a.v[i]); });
}
Four lane_select_less(Four a, Four b, Four x, Four y) {
    return Four::each([&](int i) { return strata::lane_select_less(a.v[i], b.v[i], x.v[i], y.v[i]); });
}
Four lane_exponent_add(Four a, Four n) {
    return Four::each([&](int i) { return strata::lane_exponent_add(a.v[i], n.v[i]); });
}

TEST(Math, LanesGiveTheBitsOfScalars) {
    for (int k = -400; k < 400; ++k) {
        const Four x = Four::each([&](int i) { return 0.25f * static_cast<float>(k) + 0.07f * static_cast<float>(i); });
        const auto check = [&](auto four, auto one) {
            const Four y = four(x);
            for (int i = 0; i < 4; ++i) ASSERT_EQ(float_bits(y.v[i]), float_bits(one(x.v[i]))) << x.v[i];
        };
        check(exp_fixed<Four>, exp_fixed<float>);
        check(sigmoid<Four>, sigmoid<float>);
        check(silu<Four>, silu<float>);
        check(gelu<Four>, gelu<float>);
        check(tanh_fixed<Four>, tanh_fixed<float>);
        check(softplus<Four>, softplus<float>);
    }
}

}  // namespace
}  // namespace strata
