#include <cmath>
#include <functional>

#include "ops_harness.h"

namespace strata::test {
namespace {

/// A layer with a state: what it does to rows of its inputs, and its parts.
struct Layer {
    StateLayout layout;
    int width = 0;  // of an output row
    std::function<void(CpuDevice&, Call&, int first_token, int rows, Activations out)> run;
};

/// What a conversation's tokens went through: outputs of every row that stayed, and the bytes of the state.
struct Outcome {
    std::vector<float> out;
    std::vector<std::vector<uint8_t>> parts;
};

void expect_same(const Outcome& a, const Outcome& b) {
    expect_same_bits(a.out, b.out);
    for (size_t p = 0; p < a.parts.size(); ++p) EXPECT_EQ(a.parts[p], b.parts[p]) << "part " << p;
}

/// One step of a conversation: a call of `rows` rows, or a window of which the first `keep` stay.
struct Step {
    int rows;
    int keep = -1;
};

class Conversation {
  public:
    Conversation(CpuDevice& device, const Layer& layer, int room)
        : device_(device), layer_(layer), state(device.make_state(layer.layout, room).value()) {}

    void step(const Step& step) {
        const bool log = step.keep >= 0;
        TestCall call({{&state, step.rows, log}});
        ActivationTable table(step.rows, layer_.width);
        device_.begin(call.call());
        layer_.run(device_, call.call(), state.rows, step.rows, table.view());
        EXPECT_TRUE(device_.status().ok()) << device_.status().error().message;
        table.expect_codes();
        const std::vector<float> values = table.values().values();
        out.insert(out.end(), values.begin(), values.begin() + int64_t(log ? step.keep : step.rows) * layer_.width);
        call.take(log ? step.keep : 0);
    }

    Outcome outcome() {
        if (state.pending) step({0});
        Outcome o{out, {}};
        for (size_t p = 0; p < layer_.layout.parts.size(); ++p) {
            const auto* bytes = reinterpret_cast<const uint8_t*>(state.part(PartId(p)));
            o.parts.emplace_back(bytes, bytes + layer_.layout.parts[p].bytes);
        }
        return o;
    }

  private:
    CpuDevice& device_;
    const Layer& layer_;

  public:
    State state;
    std::vector<float> out;
};

Outcome run(CpuDevice& device, const Layer& layer, const std::vector<Step>& steps, int room) {
    Conversation conversation(device, layer, room);
    for (const Step& step : steps) conversation.step(step);
    return conversation.outcome();
}

std::vector<Step> calls(const std::vector<int>& rows) {
    std::vector<Step> steps;
    for (const int n : rows) steps.push_back({n});
    return steps;
}

/// Windows of any size, of which any number of rows stays, and ordinary calls between; `tokens` rows stay in all.
std::vector<Step> windows(Random& random, int tokens) {
    std::vector<Step> steps;
    for (int left = tokens; left > 0;) {
        const int rows = std::min(left, random.integer(1, kMaxWindow));
        const bool window = random.integer(0, 3) > 0;
        steps.push_back({rows, window ? random.integer(0, rows) : -1});
        left -= window ? steps.back().keep : rows;
    }
    return steps;
}

/// Any way, any cut, any windows: the same rows and the same state.
void expect_one_outcome(Random& random, const Layer& layer, int tokens, const Outcome& reference) {
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        const auto device = make_device(way);
        expect_same(reference, run(*device, layer, {{tokens}}, tokens));
        expect_same(reference, run(*device, layer, calls(random.cuts(tokens, 40)), tokens));
        expect_same(reference, run(*device, layer, calls(std::vector<int>(size_t(tokens), 1)), tokens));
        for (int i = 0; i < 3; ++i) expect_same(reference, run(*device, layer, windows(random, tokens), tokens));
    }
}

// ---- delta net

struct DeltaShape {
    int key_heads = 2, value_heads = 6, width = 32, taps = 4;
    int channels() const { return (2 * key_heads + value_heads) * width; }
    int out() const { return value_heads * width; }
};

struct DeltaInputs {
    std::vector<float> u, z, alpha, beta, conv, decay, dt, norm;
    DeltaInputs(Random& random, const DeltaShape& s, int tokens) {
        const auto n = static_cast<size_t>(tokens);
        u = random.values(n * size_t(s.channels()));
        z = random.values(n * size_t(s.out()));
        alpha = random.values(n * size_t(s.value_heads));
        beta = random.values(n * size_t(s.value_heads));
        conv = random.values(size_t(s.channels()) * size_t(s.taps), 0.5f);
        decay = random.values(size_t(s.value_heads), 0.3f, -0.5f);
        for (float& d : decay) d = -std::abs(d);
        dt = random.values(size_t(s.value_heads));
        norm = random.values(size_t(s.width), 0.3f, 1.0f);
    }
};

Layer delta_layer(const DeltaShape& s, const DeltaInputs& in) {
    Layer layer;
    const auto log_floats = static_cast<uint64_t>((s.key_heads + s.value_heads) * s.width + 2 * s.value_heads);
    layer.layout.add({.kind = PartSpec::Kind::block,
                      .name = "s",
                      .bytes = uint64_t(s.value_heads) * uint64_t(s.width) * uint64_t(s.width) * 4,
                      .log_bytes = log_floats * 4});
    layer.layout.add({.kind = PartSpec::Kind::block,
                      .name = "conv",
                      .bytes = uint64_t(s.taps - 1) * uint64_t(s.channels()) * 4,
                      .log_bytes = uint64_t(s.channels()) * 4});
    layer.width = s.out();
    layer.run = [s, &in](CpuDevice& device, Call& call, int first, int rows, Activations out) {
        Table u(rows, s.channels(), in.u.data() + int64_t(first) * s.channels()),
            z(rows, s.out(), in.z.data() + int64_t(first) * s.out()),
            alpha(rows, s.value_heads, in.alpha.data() + int64_t(first) * s.value_heads),
            beta(rows, s.value_heads, in.beta.data() + int64_t(first) * s.value_heads);
        const DeltaNetSpec spec{.key_heads = s.key_heads,
                                .value_heads = s.value_heads,
                                .width = s.width,
                                .taps = s.taps,
                                .conv = in.conv.data(),
                                .decay = in.decay.data(),
                                .dt = in.dt.data(),
                                .norm = in.norm.data(),
                                .eps = 1e-6f,
                                .state = 0,
                                .history = 1};
        device.delta_net(call, spec, u.view(), z.view(), alpha.view(), beta.view(), out);
    };
    return layer;
}

/// Section 4.1 of the model's page, in its order (decay first, read after the update), in double precision.
void expect_delta_reference(const DeltaShape& s, const DeltaInputs& in, int tokens, const Outcome& outcome) {
    const auto d = static_cast<size_t>(s.width);
    std::vector<double> state(size_t(s.value_heads) * d * d);
    for (int t = 0; t < tokens; ++t) {
        std::vector<double> c(static_cast<size_t>(s.channels()));
        for (int ch = 0; ch < s.channels(); ++ch) {
            double sum = 0;
            for (int j = 0; j < s.taps; ++j)
                if (const int from = t - s.taps + 1 + j; from >= 0)
                    sum += double(in.conv[size_t(ch * s.taps + j)]) * in.u[size_t(from * s.channels() + ch)];
            c[size_t(ch)] = sum / (1 + std::exp(-sum));
        }
        for (int h = 0; h < s.value_heads; ++h) {
            const double *q = c.data() + size_t(h % s.key_heads) * d, *k = q + size_t(s.key_heads) * d,
                         *v = c.data() + size_t(2 * s.key_heads + h) * d;
            double qq = 0, kk = 0;
            for (size_t i = 0; i < d; ++i) {
                qq += q[i] * q[i];
                kk += k[i] * k[i];
            }
            const double q_unit = 1 / std::sqrt(qq + 1e-6) / std::sqrt(double(s.width)),
                         k_unit = 1 / std::sqrt(kk + 1e-6);
            const auto at = static_cast<size_t>(t * s.value_heads + h);
            const double decay =
                std::exp(in.decay[size_t(h)] * std::log1p(std::exp(double(in.alpha[at]) + in.dt[size_t(h)])));
            const double strength = 1 / (1 + std::exp(-double(in.beta[at])));
            double* head = state.data() + size_t(h) * d * d;
            std::vector<double> o(d);
            for (size_t j = 0; j < d; ++j) {
                double* row = head + j * d;
                double seen = 0;
                for (size_t i = 0; i < d; ++i) seen += (row[i] *= decay) * k[i] * k_unit;
                const double delta = strength * (v[j] - seen);
                for (size_t i = 0; i < d; ++i) o[j] += (row[i] += delta * k[i] * k_unit) * q[i] * q_unit;
            }
            double oo = 0;
            for (const double x : o) oo += x * x;
            for (size_t j = 0; j < d; ++j) {
                const auto place = static_cast<size_t>(t * s.out()) + size_t(h) * d + j;
                const double z = in.z[place];
                expect_near(o[j] / std::sqrt(oo / s.width + 1e-6) * in.norm[j] * z / (1 + std::exp(-z)),
                            outcome.out[place], 5e-4);
            }
        }
    }
    const auto* kept = reinterpret_cast<const float*>(outcome.parts[0].data());
    for (size_t i = 0; i < state.size(); ++i) expect_near(state[i], kept[i], 2e-5);
}

TEST(DeltaNet, IsTheRecurrenceOfThePageWhateverTheCalls) {
    STRATA_RANDOM(random);
    for (const DeltaShape& shape : {DeltaShape{}, DeltaShape{.key_heads = 1, .value_heads = 2, .width = 128},
                                    DeltaShape{.key_heads = 2, .value_heads = 4, .width = 48, .taps = 2}}) {
        const int tokens = 140;  // more than a block of rows
        const DeltaInputs inputs(random, shape, tokens);
        const Layer layer = delta_layer(shape, inputs);
        const Outcome reference = run(*make_device(all_ways().front()), layer, {{tokens}}, tokens);
        expect_delta_reference(shape, inputs, tokens, reference);
        expect_one_outcome(random, layer, tokens, reference);
    }
}

TEST(DeltaNet, HistoryHoldsTheLastInputs) {
    STRATA_RANDOM(random);
    const DeltaShape shape;
    const DeltaInputs inputs(random, shape, 9);
    const Outcome outcome = run(*make_device(), delta_layer(shape, inputs), {{1}, {2, 1}, {7}}, 9);
    const std::vector<float> expected(inputs.u.begin() + 6 * shape.channels(), inputs.u.end());
    const auto* history = reinterpret_cast<const float*>(outcome.parts[1].data());
    expect_same_bits(expected, {history, history + 3 * shape.channels()});
}

TEST(DeltaNet, AWindowLeavesTheStateAsItWas) {
    STRATA_RANDOM(random);
    const DeltaShape shape;
    const DeltaInputs inputs(random, shape, 30);
    const Layer layer = delta_layer(shape, inputs);
    const auto device = make_device();
    Conversation conversation(*device, layer, 30);
    conversation.step({10});
    const Outcome before = conversation.outcome();
    for (const int rows : {8, 1, 5}) conversation.step({rows, 0});
    expect_same(before, conversation.outcome());
}

TEST(DeltaNet, ConversationsInOneCallDoNotTouchEachOther) {
    STRATA_RANDOM(random);
    const DeltaShape shape;
    const int tokens = 40;
    const DeltaInputs inputs(random, shape, 2 * tokens);  // the second conversation has the second half
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        const auto device = make_device(way);
        const Layer layer = delta_layer(shape, inputs);
        Layer second = layer;
        second.run = [&](CpuDevice& d, Call& call, int first, int rows, Activations out) {
            layer.run(d, call, tokens + first, rows, out);
        };
        const Outcome a = run(*device, layer, {{tokens}}, tokens), b = run(*device, second, {{tokens}}, tokens);

        Conversation x(*device, layer, tokens), y(*device, second, tokens);
        std::vector<float> x_out, y_out;
        while (x.state.rows < tokens || y.state.rows < tokens) {
            const int n = std::min(random.integer(0, 8), tokens - x.state.rows),
                      m = std::min(random.integer(0, 8), tokens - y.state.rows);
            const bool log = random.integer(0, 1) == 1;
            TestCall call({{&x.state, n, log}, {&y.state, m}});
            Table u(n + m, shape.channels()), z(n + m, shape.out()), alpha(n + m, shape.value_heads),
                beta(n + m, shape.value_heads);
            for (int row = 0; row < n + m; ++row) {
                const int64_t token = row < n ? x.state.rows + row : tokens + y.state.rows + row - n;
                std::copy_n(inputs.u.data() + token * shape.channels(), shape.channels(), u.row(row));
                std::copy_n(inputs.z.data() + token * shape.out(), shape.out(), z.row(row));
                std::copy_n(inputs.alpha.data() + token * shape.value_heads, shape.value_heads, alpha.row(row));
                std::copy_n(inputs.beta.data() + token * shape.value_heads, shape.value_heads, beta.row(row));
            }
            ActivationTable out(n + m, shape.out());
            const DeltaNetSpec spec{.key_heads = shape.key_heads,
                                    .value_heads = shape.value_heads,
                                    .width = shape.width,
                                    .taps = shape.taps,
                                    .conv = inputs.conv.data(),
                                    .decay = inputs.decay.data(),
                                    .dt = inputs.dt.data(),
                                    .norm = inputs.norm.data(),
                                    .state = 0,
                                    .history = 1};
            device->begin(call.call());
            device->delta_net(call.call(), spec, u.view(), z.view(), alpha.view(), beta.view(), out.view());
            const std::vector<float> values = out.values().values();
            x_out.insert(x_out.end(), values.begin(), values.begin() + int64_t(n) * shape.out());
            y_out.insert(y_out.end(), values.begin() + int64_t(n) * shape.out(), values.end());
            call.take(n);
        }
        expect_same_bits(a.out, x_out);
        expect_same_bits(b.out, y_out);
        EXPECT_EQ(a.parts, x.outcome().parts);
        EXPECT_EQ(b.parts, y.outcome().parts);
    }
}

// ---- short convolution

struct ShortInputs {
    std::vector<float> bcx, conv;
};

Layer short_layer(int width, int taps, const ShortInputs& in) {
    Layer layer;
    layer.layout.add({.kind = PartSpec::Kind::block,
                      .name = "conv",
                      .bytes = uint64_t(taps - 1) * uint64_t(width) * 4,
                      .log_bytes = uint64_t(width) * 4});
    layer.width = width;
    layer.run = [=, &in](CpuDevice& device, Call& call, int first, int rows, Activations out) {
        Table bcx(rows, 3 * width, in.bcx.data() + int64_t(first) * 3 * width);
        device.short_conv(call, {.width = width, .taps = taps, .conv = in.conv.data(), .history = 0}, bcx.view(), out);
    };
    return layer;
}

TEST(ShortConv, IsTheGatedConvolutionWhateverTheCalls) {
    STRATA_RANDOM(random);
    for (const auto& [width, taps] : {std::pair{96, 3}, std::pair{608, 4}, std::pair{32, 2}}) {
        const int tokens = 60;
        const ShortInputs inputs{random.values(size_t(tokens) * 3 * size_t(width)),
                                 random.values(size_t(width) * size_t(taps))};
        const Layer layer = short_layer(width, taps, inputs);
        const Outcome reference = run(*make_device(all_ways().front()), layer, {{tokens}}, tokens);
        const auto product = [&, w = width](int t, int c) {
            const float* row = inputs.bcx.data() + int64_t(t) * 3 * w;
            return double(row[c]) * row[2 * w + c];
        };
        for (int t = 0; t < tokens; ++t)
            for (int c = 0; c < width; ++c) {
                double sum = 0;
                for (int j = 0; j < taps; ++j)
                    if (const int from = t - taps + 1 + j; from >= 0)
                        sum += inputs.conv[size_t(c * taps + j)] * product(from, c);
                expect_near(sum * inputs.bcx[size_t((t * 3 + 1) * width + c)], reference.out[size_t(t * width + c)],
                            2e-6);
            }
        const auto* history = reinterpret_cast<const float*>(reference.parts[0].data());
        for (int i = 0; i < taps - 1; ++i)
            for (int c = 0; c < width; ++c)
                expect_near(product(tokens - taps + 1 + i, c), history[i * width + c], 1e-6);
        expect_one_outcome(random, layer, tokens, reference);
    }
}

}  // namespace
}  // namespace strata::test
