// What the tests of the CPU device's operations share: every way to run them, random rows, calls over conversations.
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/cpu_device.h"
#include "quant/half.h"

namespace strata::test {

/// Random values. The seed is printed where a test fails; POLYSTRATA_SEED takes it back.
class Random {
  public:
    Random() : seed_(chosen_seed()), engine_(seed_) {}
    std::string trace() const { return "POLYSTRATA_SEED=" + std::to_string(seed_); }

    int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
    float value(float deviation = 1.0f) { return std::normal_distribution<float>(0.0f, deviation)(engine_); }
    std::vector<float> values(size_t n, float deviation = 1.0f, float mean = 0.0f) {
        std::vector<float> v(n);
        for (float& x : v) x = mean + value(deviation);
        return v;
    }
    /// Parts that add up to n.
    std::vector<int> cuts(int n, int largest) {
        std::vector<int> parts;
        for (int left = n; left > 0; left -= parts.back()) parts.push_back(integer(1, std::min(left, largest)));
        return parts;
    }

  private:
    static uint32_t chosen_seed() {
        const char* given = std::getenv("POLYSTRATA_SEED");
        return given ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
    }
    uint32_t seed_;
    std::mt19937 engine_;
};

#define STRATA_RANDOM(name)      \
    ::strata::test::Random name; \
    SCOPED_TRACE(name.trace())

/// A way to run: instruction set and threads. Each must give the bits of the first.
struct Way {
    cpu::Simd simd;
    int threads;
};

inline std::vector<Way> all_ways() {
    std::vector<Way> ways;
    for (const cpu::Simd simd : {cpu::Simd::scalar, cpu::Simd::avx2, cpu::Simd::avx512})
        if (simd <= cpu::best_simd())
            for (const int threads : {1, 4}) ways.push_back({simd, threads});
    return ways;
}

inline std::string to_string(const Way& way) {
    return std::string(cpu::name_of(way.simd)) + ", " + std::to_string(way.threads) + " threads";
}

inline std::unique_ptr<CpuDevice> make_device(const Way& way) {
    auto device = CpuDevice::create({.threads = way.threads, .simd = way.simd});
    return std::move(device).value();
}

/// The fastest way, for tests of what is computed and not of its bits.
inline std::unique_ptr<CpuDevice> make_device() {
    return make_device({cpu::best_simd(), 2});
}

/// Rows that own their memory; rows are further apart than they are wide, and what lies between stays as it was.
class Table {
  public:
    Table(int rows, int width)
        : rows_(rows), width_(width), stride_(width + 3), data_(size_t(rows) * size_t(stride_), kBetween) {
        for (int r = 0; r < rows; ++r) std::fill_n(row(r), width, 0.0f);
    }
    Table(int rows, int width, const float* values) : Table(rows, width) {
        for (int r = 0; r < rows; ++r) std::copy_n(values + int64_t(r) * width, width, row(r));
    }
    ~Table() {
        for (int r = 0; r < rows_; ++r)
            for (int64_t i = width_; i < stride_; ++i) EXPECT_EQ(row(r)[i], kBetween) << "written behind row " << r;
    }

    Rows view() { return {data_.data(), rows_, width_, stride_}; }
    float* row(int r) { return data_.data() + r * stride_; }
    float& at(int r, int i) { return row(r)[i]; }
    std::vector<float> values() {
        std::vector<float> all;
        for (int r = 0; r < rows_; ++r) all.insert(all.end(), row(r), row(r) + width_);
        return all;
    }

  private:
    static constexpr float kBetween = 12345.0f;
    int rows_, width_;
    int64_t stride_;
    std::vector<float> data_;
};

/// Activations that own their memory.
class ActivationTable {
  public:
    ActivationTable(int rows, int width) : values_(rows, width), codes_(rows, width) {}
    Activations view() { return {values_.view(), codes_.view()}; }
    Table& values() { return values_; }
    /// Values and codes as bytes, for comparisons.
    std::vector<uint8_t> bytes() {
        std::vector<uint8_t> all;
        const auto append = [&](const void* data, size_t bytes) {
            const auto* p = static_cast<const uint8_t*>(data);
            all.insert(all.end(), p, p + bytes);
        };
        const std::vector<float> values = values_.values();
        append(values.data(), values.size() * sizeof(float));
        const QuantisedRows q = codes_.view();
        const size_t n = size_t(q.rows) * size_t(q.width);
        append(q.values, n);
        append(q.scales, n / 32 * sizeof(float));
        append(q.half_sums, n / 16 * sizeof(int16_t));
        return all;
    }
    /// The codes are those of the values.
    void expect_codes() {
        const QuantisedRows q = codes_.view();
        if (q.rows == 0) return;
        A8Rows reference(q.rows, q.width);
        for (int r = 0; r < q.rows; ++r) reference.set_row(r, values_.row(r));
        const QuantisedRows p = reference.view();
        const size_t n = size_t(q.rows) * size_t(q.width);
        EXPECT_EQ(std::memcmp(p.values, q.values, n), 0);
        EXPECT_EQ(std::memcmp(p.scales, q.scales, n / 32 * sizeof(float)), 0);
        EXPECT_EQ(std::memcmp(p.half_sums, q.half_sums, n / 16 * sizeof(int16_t)), 0);
    }

  private:
    Table values_;
    A8Rows codes_;
};

inline void expect_near(double reference, float value, double tolerance) {
    EXPECT_NEAR(reference, value, tolerance * (1.0 + std::abs(reference)));
}

inline void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
        ASSERT_EQ(float_bits(a[i]), float_bits(b[i])) << "value " << i << ": " << a[i] << " and " << b[i];
}

/// Some rows of one conversation in a call.
struct Part {
    State* state;
    int rows;
    bool log = false;
};

/// A call over conversations, each at its own place. After the operations: take(), which moves the conversations on.
class TestCall {
  public:
    explicit TestCall(const std::vector<Part>& parts) : parts_(parts) {
        int first = 0;
        for (const Part& part : parts) {
            spans_.push_back({part.state, first, part.rows, part.state->rows, part.state->pending, part.log});
            for (int i = 0; i < part.rows; ++i) {
                const int p = part.state->rows + i;
                positions_.push_back({p, p, p});
            }
            first += part.rows;
        }
        tokens_.resize(size_t(first));
        call_.rows = first;
        call_.spans = spans_;
        call_.positions = positions_;
        call_.tokens = tokens_;
    }
    TestCall(const TestCall&) = delete;
    TestCall& operator=(const TestCall&) = delete;

    Call& call() { return call_; }

    /// keep: rows of each window that stay (all of ordinary spans do).
    void take(int keep = 0) {
        for (const Part& part : parts_) {
            part.state->rows += part.log ? keep : part.rows;
            part.state->pending = part.log ? keep : 0;
        }
    }

  private:
    std::vector<Part> parts_;
    std::vector<Span> spans_;
    std::vector<std::array<int32_t, 3>> positions_;
    std::vector<int32_t> tokens_;
    Call call_;
};

}  // namespace strata::test
