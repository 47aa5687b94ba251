// A model of three layers that computes with hashes instead of weights, and a device that is host memory, for tests of
// the engine: thousands of requests a second, and every wrong row, ring, block, position or order changes the next
// token.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/random.h"
#include "models/model.h"

namespace strata {

class HostDevice : public Device {
  public:
    const DeviceFacts& facts() const override { return facts_; }
    Result<void> status() const override {
        return broken ? Result<void>(device_error("the toy card is gone")) : Result<void>();
    }
    Result<Matrix> load_matrix(const WeightView&) override { std::abort(); }
    Result<const float*> load_vector(const WeightView&) override { std::abort(); }
    Result<const float*> load_vector(std::span<const float>) override { std::abort(); }
    Result<ExpertSet> load_experts(int, Gate, const WeightView&, const WeightView&, const WeightView&) override {
        std::abort();
    }

    Result<std::byte*> allocate(uint64_t bytes, const char* what) override {
        if (allocations_left == 0) return device_error(std::string("no memory for ") + what);
        if (allocations_left > 0) --allocations_left;
        ++allocations;
        auto* memory = new std::byte[bytes];
        std::memset(memory, 0xa5, bytes);  // nothing may rely on zeroes
        return memory;
    }
    void release(std::byte* memory) override {
        --allocations;
        delete[] memory;
    }
    void copy_to_host(void* host, const std::byte* from, uint64_t bytes) override { std::memcpy(host, from, bytes); }
    void copy_from_host(std::byte* to, const void* host, uint64_t bytes) override { std::memcpy(to, host, bytes); }
    void copy(std::byte* to, const std::byte* from, uint64_t bytes) override { std::memmove(to, from, bytes); }
    void zero(std::byte* to, uint64_t bytes) override { std::memset(to, 0, bytes); }
    void begin(const Call&) override { ++calls; }
    void read(Rows rows, float* host) override {
        for (int i = 0; i < rows.rows; ++i)
            std::memcpy(host + int64_t{i} * rows.width, rows.data + i * rows.stride,
                        static_cast<size_t>(rows.width) * sizeof(float));
    }

    void embed(const Call&, const Matrix&, float, Rows) override { std::abort(); }
    void rope_table(const Call&, const RopeSpec&, Rows) override { std::abort(); }
    void norm(Rows, const float*, float, Activations) override { std::abort(); }
    void add_norm(Rows, Rows, const float*, float) override { std::abort(); }
    void quantise(Activations) override { std::abort(); }
    void add(Rows, Rows) override { std::abort(); }
    void scale(Rows, float, const float*) override { std::abort(); }
    void soft_cap(Rows, float) override { std::abort(); }
    void gather(Rows, std::span<const int32_t>, Rows) override { std::abort(); }
    void matmul(const Activations&, std::span<const Product>) override { std::abort(); }
    void matmul_add(const Activations&, const Matrix&, Rows) override { std::abort(); }
    void matmul_float(Rows, std::span<const Product>) override { std::abort(); }
    void prepare_heads(const Call&, const HeadSpec&, Rows, HeadRows, HeadRows, HeadRows) override { std::abort(); }
    void attend(const Call&, const AttentionSpec&, HeadRows, HeadRows, Activations) override { std::abort(); }
    void delta_net(const Call&, const DeltaNetSpec&, Rows, Rows, Rows, Rows, Activations) override { std::abort(); }
    void short_conv(const Call&, const ShortConvSpec&, Rows, Activations) override { std::abort(); }
    void route(Rows, const RouteSpec&, Routing) override { std::abort(); }
    void experts(const ExpertSet&, const Activations&, const Routing&, const SharedExpert&, Rows, bool) override {
        std::abort();
    }
    void feed_forward(const SharedExpert&, const Activations&, Rows, bool) override { std::abort(); }

    int64_t allocations = 0;        // that are alive
    int64_t allocations_left = -1;  // until memory runs out; negative: never
    int64_t calls = 0;
    bool broken = false;

  private:
    DeviceFacts facts_{"cpu", "host memory", 0, 1};
};

struct ToyShape {
    bool recurrent = true;  // has a block
    bool ring = true;
    bool draft = true;
    int vocabulary = 40;
    int window = 7;          // of the ring
    int ring_capacity = 80;  // at least window - 1 + the most rows of a call
    int context = 4096;
};

/// Layer 0 moves the block on; layer 1 writes a cache row and reads all; layer 2 a ring row and reads the window. A
/// row's hash goes through them in its residual. The likeliest next token follows from the last one, so that answers
/// have repetitions; the hash of the whole state decides often enough what comes instead.
class ToyModel : public Model, public DraftBlock {
  public:
    static constexpr int kWidth = 4;  // floats of a residual row: a hash in the first two

    explicit ToyModel(const ToyShape& shape) : shape_(shape) {
        facts_.architecture = "toy";
        facts_.layers = 3;
        facts_.width = kWidth;
        facts_.vocabulary = shape.vocabulary;
        facts_.context = shape.context;
        facts_.recurrent = shape.recurrent;
        rows_ = layout_.add({.kind = PartSpec::Kind::rows, .name = "rows", .type = Type::f32, .width = 2});
        if (shape.ring)
            ring_ = layout_.add({.kind = PartSpec::Kind::ring,
                                 .name = "ring",
                                 .type = Type::f32,
                                 .width = 2,
                                 .window = shape.window,
                                 .capacity = shape.ring_capacity});
        if (shape.recurrent)
            block_ = layout_.add({.kind = PartSpec::Kind::block,
                                  .name = "block",
                                  .type = Type::f32,
                                  .bytes = sizeof(uint64_t),
                                  .log_bytes = sizeof(uint64_t)});
        if (shape.draft)
            draft_ = layout_.add(
                {.kind = PartSpec::Kind::rows, .name = "draft", .type = Type::f32, .width = 2, .draft = true});
    }

    const ModelFacts& facts() const override { return facts_; }
    const StateLayout& layout() const override { return layout_; }
    DraftBlock* draft() override { return shape_.draft ? this : nullptr; }

    void start(Call& call) override {
        call.residual = call.scratch->rows(call.rows, kWidth);
        for (int t = 0; t < call.rows; ++t) {
            const auto& p = call.positions[static_cast<size_t>(t)];
            set(call.residual, t,
                mix64(static_cast<uint64_t>(call.tokens[static_cast<size_t>(t)]) << 32 | static_cast<uint32_t>(p[0])));
        }
    }

    void layer(int index, Call& call) override {
        for (const Span& span : call.spans) {
            if (index == 0 && block_ >= 0) block_layer(span, call);
            if (index == 1) cache_layer(span, call);
            if (index == 2 && ring_ >= 0) ring_layer(span, call);
        }
    }

    void settle(Call& call) override {
        for (const Span& span : call.spans)
            if (block_ >= 0) block_layer(span, call);
    }

    void finish(Call& call) override {
        call.hidden = call.scratch->rows(call.rows, kWidth);
        for (int t = 0; t < call.rows; ++t) set(call.hidden, t, get(call.residual, t));
        write_logits(call, 2, [&](int t) { return get(call.hidden, t); });
    }

    // Row p of the block keeps what it was made from: the token at p and the hidden row before it.
    void fill(Call& call, Rows before) override {
        for (const Span& span : call.spans)
            for (int i = 0; i < span.rows; ++i) {
                const int t = span.first + i;
                const auto token = static_cast<uint64_t>(call.tokens[static_cast<size_t>(t)]);
                cell(*span.state, draft_, span.start + i) = mix64(get(before, t) ^ token);
            }
    }

    void guess(Call& call, Rows before) override {
        fill(call, before);
        call.hidden = call.scratch->rows(call.rows, kWidth);
        for (int t = 0; t < call.rows; ++t) set(call.hidden, t, get(before, t));
        write_logits(call, 0, [](int) { return uint64_t{0}; });
    }

    /// The block's row at `row`, for tests that compare them.
    uint64_t draft_row(const State& state, int row) const { return cell(state, draft_, row); }

  private:
    static uint64_t get(const Rows& rows, int t) {
        uint64_t value;
        std::memcpy(&value, rows.data + t * rows.stride, sizeof value);
        return value;
    }
    static void set(const Rows& rows, int t, uint64_t value) {
        std::memcpy(rows.data + t * rows.stride, &value, sizeof value);
    }
    static uint64_t& cell(const State& state, PartId part, int row) {
        return reinterpret_cast<uint64_t*>(state.part(part))[row];
    }

    void cache_layer(const Span& span, Call& call) {
        uint64_t sum = 0;
        for (int j = 0; j < span.start; ++j) sum = mix64(sum ^ cell(*span.state, rows_, j));
        for (int i = 0; i < span.rows; ++i) {
            cell(*span.state, rows_, span.start + i) = get(call.residual, span.first + i);
            sum = mix64(sum ^ get(call.residual, span.first + i));
            set(call.residual, span.first + i, sum);
        }
    }

    void ring_layer(const Span& span, Call& call) {
        const auto row = [&](int token) -> uint64_t& { return cell(*span.state, ring_, token % shape_.ring_capacity); };
        for (int i = 0; i < span.rows; ++i) row(span.start + i) = get(call.residual, span.first + i);
        for (int i = 0; i < span.rows; ++i) {
            const int p = span.start + i;
            uint64_t sum = 1;
            for (int j = std::max(0, p - shape_.window + 1); j <= p; ++j) sum = mix64(sum ^ row(j));
            set(call.residual, span.first + i, sum);
        }
    }

    void block_layer(const Span& span, Call& call) {
        uint64_t& block = cell(*span.state, block_, 0);
        auto* log = reinterpret_cast<uint64_t*>(span.state->log(block_));
        for (int i = 0; i < span.replay; ++i) block = mix64(block ^ log[i]);
        uint64_t running = block;
        for (int i = 0; i < span.rows; ++i) {
            const uint64_t x = get(call.residual, span.first + i);
            if (span.log) log[i] = x;
            running = mix64(running ^ x);
            set(call.residual, span.first + i, running);
        }
        if (!span.log) block = running;
    }

    /// The token that follows from the last one gets a bonus over the noise of the row's hash; without noise where
    /// `noise` is 0.
    template <class Hash>
    void write_logits(Call& call, float noise, Hash hash) {
        call.logits = call.scratch->rows(static_cast<int>(call.outputs.size()), shape_.vocabulary);
        for (int i = 0; i < call.logits.rows; ++i) {
            const int t = call.outputs[static_cast<size_t>(i)];
            float* out = call.logits.data + i * call.logits.stride;
            for (int v = 0; v < shape_.vocabulary; ++v)
                out[v] = static_cast<float>(uniform_noise(hash(t), 1, static_cast<uint64_t>(v))) * noise;
            out[(call.tokens[static_cast<size_t>(t)] * 5 + 3) % shape_.vocabulary] += 1.4f;
        }
    }

    ToyShape shape_;
    ModelFacts facts_;
    StateLayout layout_;
    PartId rows_ = -1, ring_ = -1, block_ = -1, draft_ = -1;
};

}  // namespace strata
