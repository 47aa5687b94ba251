#include <cmath>
#include <optional>

#include "ops_harness.h"

namespace strata::test {
namespace {

/// An attention layer of one kind and the inputs of a conversation's tokens.
struct Layer {
    int heads = 4, kv_heads = 2, width = 32;
    Type cache = Type::f32;
    int window = 0;    // of a ring; 0: all rows are kept
    int capacity = 0;  // of the ring
    bool gated = false, sinks = false, normed = true, value_norm = false, values_are_keys = false;
    int pairs = 8;  // turned; 0: no position encoding
    float scale = 0.25f;
    bool look_ahead = false;
};

struct Inputs {
    std::vector<float> q, k, v, gate;         // [tokens, heads * width]
    std::vector<float> query_norm, key_norm;  // [width]
    std::vector<float> sinks;                 // [heads]

    Inputs(Random& random, const Layer& layer, int tokens) {
        const auto n = static_cast<size_t>(tokens), q_width = size_t(layer.heads) * size_t(layer.width),
                   kv_width = size_t(layer.kv_heads) * size_t(layer.width);
        q = random.values(n * q_width);
        k = random.values(n * kv_width);
        v = random.values(n * kv_width);
        gate = random.values(n * q_width);
        query_norm = random.values(size_t(layer.width), 0.5f, 1.5f);
        key_norm = random.values(size_t(layer.width), 0.5f, 1.5f);
        sinks = random.values(size_t(layer.heads), 2.0f);
    }
};

StateLayout layout_of(const Layer& layer) {
    StateLayout layout;
    for (const char* name : {"k", "v"})
        layout.add({.kind = layer.window ? PartSpec::Kind::ring : PartSpec::Kind::rows,
                    .name = name,
                    .type = layer.cache,
                    .width = layer.kv_heads * layer.width,
                    .window = layer.window,
                    .capacity = layer.capacity});
    return layout;
}

/// A conversation on a device: which of the inputs' tokens come next follows from its state.
class Conversation {
  public:
    Conversation(CpuDevice& device, const Layer& layer, const Inputs& inputs, int room)
        : layer(layer), inputs(inputs), layout_(layout_of(layer)), state(device.make_state(layout_, room).value()) {}

    const Layer& layer;
    const Inputs& inputs;

  private:
    StateLayout layout_;

  public:
    State state;
};

/// One call over `rows` tokens of each conversation; outputs [all rows, heads * width], codes checked.
std::vector<float> run_call(CpuDevice& device, const std::vector<std::pair<Conversation*, int>>& parts,
                            std::span<const PictureSpan> pictures = {}) {
    const Layer& layer = parts.front().first->layer;
    const Inputs& shared = parts.front().first->inputs;
    std::vector<Part> spans;
    int rows = 0;
    for (const auto& [conversation, count] : parts) {
        spans.push_back({&conversation->state, count});
        rows += count;
    }
    TestCall call(spans);
    call.call().pictures = pictures;
    const int q_width = layer.heads * layer.width, kv_width = layer.kv_heads * layer.width;
    Table q(rows, 2 * q_width), k(rows, kv_width), v(rows, kv_width);  // q: per head query, then gate
    int row = 0;
    for (const auto& [conversation, count] : parts)
        for (int i = 0; i < count; ++i, ++row) {
            const int64_t token = conversation->state.rows + i;
            for (int h = 0; h < layer.heads; ++h) {
                const int64_t at = token * q_width + h * layer.width;
                std::copy_n(conversation->inputs.q.data() + at, layer.width, q.row(row) + 2 * h * layer.width);
                std::copy_n(conversation->inputs.gate.data() + at, layer.width, q.row(row) + (2 * h + 1) * layer.width);
            }
            std::copy_n(conversation->inputs.k.data() + token * kv_width, kv_width, k.row(row));
            std::copy_n(conversation->inputs.v.data() + token * kv_width, kv_width, v.row(row));
        }
    RopeSpec rope;
    for (int i = 0; i < layer.pairs; ++i) {
        rope.frequency.push_back(std::pow(1000.0, -double(i) / layer.pairs));
        rope.axis.push_back(0);
    }
    Table turns(rows, std::max(1, 2 * layer.pairs));
    HeadRows queries = as_heads(q.view(), layer.heads), gates = queries;
    queries.width = gates.width = layer.width;
    gates.data += layer.width;
    HeadSpec heads{.query_norm = layer.normed ? shared.query_norm.data() : nullptr,
                   .key_norm = layer.normed ? shared.key_norm.data() : nullptr,
                   .value_norm = layer.value_norm,
                   .keys = 0,
                   .values = 1};
    ActivationTable out(rows, q_width);
    device.begin(call.call());
    if (layer.pairs) device.rope_table(call.call(), rope, turns.view());
    const HeadRows keys = as_heads(k.view(), layer.kv_heads);
    device.prepare_heads(call.call(), heads, layer.pairs ? turns.view() : Rows{}, queries, keys,
                         layer.values_are_keys ? keys : as_heads(v.view(), layer.kv_heads));
    const AttentionSpec spec{.keys = 0,
                             .values = 1,
                             .kv_heads = layer.kv_heads,
                             .scale = layer.scale,
                             .window = layer.window,
                             .sinks = layer.sinks ? shared.sinks.data() : nullptr,
                             .pictures_look_ahead = layer.look_ahead};
    device.attend(call.call(), spec, queries, layer.gated ? gates : HeadRows{}, out.view());
    EXPECT_TRUE(device.status().ok()) << device.status().error().message;
    out.expect_codes();
    call.take();
    return out.values().values();
}

std::vector<float> run(CpuDevice& device, const Layer& layer, const Inputs& inputs, const std::vector<int>& calls,
                       int room) {
    Conversation conversation(device, layer, inputs, room);
    std::vector<float> all;
    for (const int rows : calls) {
        const std::vector<float> out = run_call(device, {{&conversation, rows}});
        all.insert(all.end(), out.begin(), out.end());
    }
    return all;
}

// ---- the definition in double precision

using Doubles = std::vector<double>;

Doubles prepared(const float* x, const Layer& layer, const float* weight, bool norm, bool turn, int64_t position) {
    Doubles y(x, x + layer.width);
    if (norm) {
        double sum = 0;
        for (const double v : y) sum += v * v;
        const double r = 1 / std::sqrt(sum / layer.width + 1e-6);
        for (int i = 0; i < layer.width; ++i) y[size_t(i)] *= r * (weight ? weight[i] : 1.0f);
    }
    if (turn)
        for (int i = 0; i < layer.pairs; ++i) {
            const double angle = double(position) * std::pow(1000.0, -double(i) / layer.pairs);
            const double a = y[size_t(i)], b = y[size_t(i + layer.pairs)];
            y[size_t(i)] = a * std::cos(angle) - b * std::sin(angle);
            y[size_t(i + layer.pairs)] = a * std::sin(angle) + b * std::cos(angle);
        }
    return y;
}

Doubles stored(const Doubles& x, Type type) {
    std::vector<float> f(x.begin(), x.end());
    if (type == Type::f16)
        for (float& v : f) v = float_from_f16(f16_from_float(v));
    if (type == Type::q8_0) {
        std::vector<uint8_t> row(f.size() / 32 * kQ8_0Bytes);
        quantise_q8_0_row(f.data(), int(f.size()), row.data());
        dequantise_q8_0_row(row.data(), int(f.size()), f.data());
    }
    return {f.begin(), f.end()};
}

/// The output of one token's head; rows [from, to) are seen.
Doubles reference_head(const Layer& layer, const Inputs& in, int64_t token, int h, int64_t from, int64_t to) {
    const int64_t q_width = layer.heads * layer.width, kv_width = layer.kv_heads * layer.width;
    const int g = h / (layer.heads / layer.kv_heads);
    const Doubles q = prepared(in.q.data() + token * q_width + h * layer.width, layer, in.query_norm.data(),
                               layer.normed, layer.pairs > 0, token);
    Doubles scores;
    for (int64_t j = from; j < to; ++j) {
        const Doubles k = stored(prepared(in.k.data() + j * kv_width + g * layer.width, layer, in.key_norm.data(),
                                          layer.normed, layer.pairs > 0, j),
                                 layer.cache);
        double dot = 0;
        for (int i = 0; i < layer.width; ++i) dot += q[size_t(i)] * k[size_t(i)];
        scores.push_back(dot * layer.scale);
    }
    double largest = layer.sinks ? in.sinks[size_t(h)] : -1e300;
    for (const double s : scores) largest = std::max(largest, s);
    double sum = layer.sinks ? std::exp(in.sinks[size_t(h)] - largest) : 0;
    for (double& s : scores) sum += s = std::exp(s - largest);
    Doubles out(static_cast<size_t>(layer.width));
    for (int64_t j = from; j < to; ++j) {
        const float* raw = (layer.values_are_keys ? in.k : in.v).data() + j * kv_width + g * layer.width;
        const Doubles v = stored(prepared(raw, layer, nullptr, layer.value_norm, false, j), layer.cache);
        for (int i = 0; i < layer.width; ++i) out[size_t(i)] += scores[size_t(j - from)] / sum * v[size_t(i)];
    }
    if (layer.gated)
        for (int i = 0; i < layer.width; ++i)
            out[size_t(i)] /= 1 + std::exp(-double(in.gate[size_t(token * q_width + h * layer.width + i)]));
    return out;
}

void expect_reference(const Layer& layer, const Inputs& in, const std::vector<float>& out, int64_t first_token,
                      const std::vector<int64_t>& tokens, double tolerance) {
    for (const int64_t token : tokens) {
        SCOPED_TRACE("token " + std::to_string(token));
        for (int h = 0; h < layer.heads; ++h) {
            const int64_t from = layer.window ? std::max<int64_t>(0, token - layer.window + 1) : 0;
            const Doubles expected = reference_head(layer, in, token, h, from, token + 1);
            for (int i = 0; i < layer.width; ++i)
                expect_near(expected[size_t(i)],
                            out[size_t(((token - first_token) * layer.heads + h) * layer.width + i)], tolerance);
        }
    }
}

/// Against the definition, and the same bits by every way and any cut.
void expect_attention(const Layer& layer, int tokens, int longest_call, double tolerance) {
    STRATA_RANDOM(random);
    const Inputs inputs(random, layer, tokens);
    const auto cut = [&](int largest) { return random.cuts(tokens, std::min(largest, longest_call)); };
    const std::vector<float> reference =
        run(*make_device(all_ways().front()), layer, inputs, cut(longest_call), tokens);
    std::vector<int64_t> checked{0, 1, tokens - 1};
    for (int i = 0; i < 6; ++i) checked.push_back(random.integer(0, tokens - 1));
    expect_reference(layer, inputs, reference, 0, checked, tolerance);
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        const auto device = make_device(way);
        expect_same_bits(reference, run(*device, layer, inputs, cut(longest_call), tokens));
        expect_same_bits(reference, run(*device, layer, inputs, cut(9), tokens));
    }
}

TEST(Attention, GroupedHeadsWithNormsGateAndPartialRotary) {
    expect_attention({.gated = true}, 150, 100, 2e-5);
}

TEST(Attention, HalfCache) {
    expect_attention({.heads = 3, .kv_heads = 1, .width = 64, .cache = Type::f16}, 330, 330, 2e-3);
}

TEST(Attention, Q8Cache) {
    expect_attention({.cache = Type::q8_0, .pairs = 16}, 140, 140, 2e-2);
}

TEST(Attention, WideHeads) {
    expect_attention({.heads = 2, .kv_heads = 1, .width = 256, .cache = Type::f16, .pairs = 32, .scale = 1.0f / 16}, 70,
                     70, 2e-3);
}

TEST(Attention, WidthsThatFillNoLanes) {
    expect_attention({.heads = 4, .kv_heads = 2, .width = 24, .cache = Type::f16, .pairs = 5}, 70, 70, 2e-3);
    expect_attention({.heads = 4, .kv_heads = 1, .width = 80, .pairs = 40}, 70, 70, 2e-5);
}

TEST(Attention, SinksWithoutPositions) {
    expect_attention({.sinks = true, .pairs = 0}, 90, 90, 2e-5);
}

TEST(Attention, RingWrapsAround) {
    // 37 - 1 + 28: the least room for calls of 28 rows.
    expect_attention({.cache = Type::f16, .window = 37, .capacity = 64}, 300, 28, 2e-3);
    expect_attention({.window = 37, .capacity = 71, .sinks = true}, 300, 35, 2e-5);
}

TEST(Attention, ValuesAreTheRawKeysNormed) {
    expect_attention({.normed = true, .value_norm = true, .values_are_keys = true, .pairs = 16, .scale = 1.0f}, 70, 70,
                     2e-5);
}

TEST(Attention, LongContextsAcrossBothChunkLengths) {
    STRATA_RANDOM(random);
    const Layer layer{.heads = 2, .kv_heads = 1, .width = 32, .cache = Type::f16};
    const int tokens = 9500, last = 5;  // the last rows lie in the second long chunk
    const Inputs inputs(random, layer, tokens);
    std::vector<float> reference;
    for (const Way& way : all_ways()) {
        if (way.simd == cpu::Simd::scalar && way.threads > 1) continue;
        SCOPED_TRACE(to_string(way));
        const auto device = make_device(way);
        // Only the cache rows of the front are wanted; queries of few heads make them cheap.
        const auto rows_at_end = [&](const std::vector<int>& calls) {
            Conversation conversation(*device, layer, inputs, tokens);
            const int kv = layer.kv_heads * layer.width;
            Table k(tokens - last, kv, inputs.k.data()), v(tokens - last, kv, inputs.v.data());
            TestCall front({{&conversation.state, tokens - last}});
            Table turns(tokens - last, 2 * layer.pairs);
            RopeSpec rope;
            for (int i = 0; i < layer.pairs; ++i) {
                rope.frequency.push_back(std::pow(1000.0, -double(i) / layer.pairs));
                rope.axis.push_back(0);
            }
            device->begin(front.call());
            device->rope_table(front.call(), rope, turns.view());
            device->prepare_heads(front.call(), {.key_norm = inputs.key_norm.data(), .keys = 0, .values = 1},
                                  turns.view(), {}, as_heads(k.view(), 1), as_heads(v.view(), 1));
            front.take();
            std::vector<float> all;
            for (const int rows : calls) {
                const std::vector<float> out = run_call(*device, {{&conversation, rows}});
                all.insert(all.end(), out.begin(), out.end());
            }
            return all;
        };
        const std::vector<float> out = rows_at_end({last});
        if (reference.empty()) {
            reference = out;
            expect_reference(layer, inputs, out, tokens - last, {tokens - last, tokens - 1}, 2e-3);
        }
        expect_same_bits(reference, out);
        expect_same_bits(reference, rows_at_end({1, 3, 1}));
    }
}

TEST(Attention, ConversationsInOneCallDoNotTouchEachOther) {
    STRATA_RANDOM(random);
    const Layer layer{
        .heads = 4, .kv_heads = 2, .width = 32, .cache = Type::q8_0, .window = 20, .capacity = 40, .gated = true};
    const int tokens = 120;
    std::vector<Inputs> inputs;
    for (int c = 0; c < 3; ++c) {
        inputs.emplace_back(random, layer, tokens);
        inputs.back().query_norm = inputs.front().query_norm;  // weights are the layer's
        inputs.back().key_norm = inputs.front().key_norm;
    }
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        const auto device = make_device(way);
        std::vector<std::vector<float>> together(3);
        std::vector<std::unique_ptr<Conversation>> conversations;
        for (const Inputs& in : inputs)
            conversations.push_back(std::make_unique<Conversation>(*device, layer, in, tokens));
        for (;;) {
            std::vector<std::pair<Conversation*, int>> parts;
            for (const auto& c : conversations)
                parts.emplace_back(c.get(), std::min(random.integer(0, 21), tokens - c->state.rows));
            const std::vector<float> out = run_call(*device, parts);
            const int width = layer.heads * layer.width;
            int row = 0, left = 0;
            for (size_t c = 0; c < 3; ++c) {
                together[c].insert(together[c].end(), out.begin() + int64_t(row) * width,
                                   out.begin() + int64_t(row + parts[c].second) * width);
                row += parts[c].second;
                left += tokens - conversations[c]->state.rows;
            }
            if (left == 0) break;
        }
        for (size_t c = 0; c < 3; ++c)
            expect_same_bits(run(*device, layer, inputs[c], random.cuts(tokens, 21), tokens), together[c]);
    }
}

TEST(Attention, PicturesSeeTheirLaterRowsWithinTheWindow) {
    STRATA_RANDOM(random);
    const Layer layer{.window = 12, .capacity = 60, .look_ahead = true};
    const int before = 10, picture = 17, after = 5, tokens = before + picture + after;
    const Inputs inputs(random, layer, tokens);
    for (const Way& way : all_ways()) {
        SCOPED_TRACE(to_string(way));
        const auto device = make_device(way);
        Conversation conversation(*device, layer, inputs, tokens);
        std::vector<float> out = run_call(*device, {{&conversation, before - 3}});
        const std::array<PictureSpan, 1> spans{{{3, picture}}};
        const std::vector<float> rest = run_call(*device, {{&conversation, 3 + picture + after}}, spans);
        out.insert(out.end(), rest.begin(), rest.end());
        for (int token = 0; token < tokens; ++token) {
            const bool seen = token >= before && token < before + picture;
            for (int h = 0; h < layer.heads; ++h) {
                const Doubles expected = reference_head(layer, inputs, token, h, std::max(0, token - layer.window + 1),
                                                        seen ? before + picture : token + 1);
                for (int i = 0; i < layer.width; ++i)
                    expect_near(expected[size_t(i)], out[size_t((token * layer.heads + h) * layer.width + i)], 2e-5);
            }
        }
    }
}

TEST(Attention, ADraftReadsTheRowsBeforeItsPlace) {
    STRATA_RANDOM(random);
    const Layer layer{.window = 12, .capacity = 40, .normed = false, .pairs = 0};
    const Inputs inputs(random, layer, 30);
    const auto device = make_device();
    Conversation conversation(*device, layer, inputs, 30);
    for (const int rows : {0, 29}) {
        if (rows) run_call(*device, {{&conversation, rows}});
        TestCall call({{&conversation.state, 1}});
        Table q(1, layer.heads * layer.width, inputs.q.data() + int64_t(rows) * layer.heads * layer.width);
        ActivationTable out(1, layer.heads * layer.width);
        device->begin(call.call());
        device->attend(call.call(),
                       {.keys = 0,
                        .values = 1,
                        .kv_heads = layer.kv_heads,
                        .scale = layer.scale,
                        .window = layer.window,
                        .own_rows = false},
                       as_heads(q.view(), layer.heads), {}, out.view());
        for (int h = 0; h < layer.heads; ++h) {
            const Doubles expected = rows ? reference_head(layer, inputs, rows, h, rows - layer.window + 1, rows)
                                          : Doubles(static_cast<size_t>(layer.width));
            for (int i = 0; i < layer.width; ++i)
                expect_near(expected[size_t(i)], out.values().at(0, h * layer.width + i), 2e-5);
        }
    }
}

TEST(Attention, RowsThatNobodySeesAreNotRead) {
    // Dead rows of a cache (rejected guesses, rows behind a window) may hold anything.
    STRATA_RANDOM(random);
    const Layer layer{.heads = 2, .kv_heads = 1, .width = 32, .pairs = 0};
    const Inputs inputs(random, layer, 200);
    const auto device = make_device();
    Conversation clean(*device, layer, inputs, 400), dirty(*device, layer, inputs, 400);
    std::fill_n(reinterpret_cast<float*>(dirty.state.part(0)), 400 * 32, std::nanf(""));
    std::fill_n(reinterpret_cast<float*>(dirty.state.part(1)), 400 * 32, std::nanf(""));
    for (const int rows : {1, 60, 70, 3})
        expect_same_bits(run_call(*device, {{&clean, rows}}), run_call(*device, {{&dirty, rows}}));
}

}  // namespace
}  // namespace strata::test
