// The engine's instruction set. A model's layers are written once against it; the CPU device, the CUDA device and the
// simulated card implement it. Each operation is what one good launch should do.
//
// Rules for all operations:
// - Every row of a call is computed as if it were alone: same bits in any company, any cut of a prompt
// (docs/numerics.md).
// - Views are the device's memory. Outputs do not overlap inputs unless an operation says so. Nothing is allocated.
// - Operations are enqueued in order; only `read`, `rank` and `wait` wait. Calls come from one thread at a time.
// - A device that fails (lost card, out of memory) remembers it: `status()` after a call tells.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/call.h"
#include "device/expert_host.h"
#include "device/state.h"
#include "device/tensor.h"

namespace strata {

/// Weights as they lie in a mapped file: `count` matrices of [rows, cols], cols contiguous, `stride` bytes apart.
struct WeightView {
    std::string name;
    Type type = Type::f32;
    int rows = 1;
    int cols = 0;
    int count = 1;
    uint64_t stride = 0;
    const std::byte* data = nullptr;
    const float* scales = nullptr;  // [count] in host memory, or null
};

/// Rotary position encoding: pair i of a head is (value i, value i + pairs), turned by position[axis[i]] *
/// frequency[i].
struct RopeSpec {
    std::vector<double> frequency;  // [pairs]
    std::vector<uint8_t> axis;      // [pairs], 0 t, 1 y, 2 x
};

/// How a head's rows are made ready and kept: per-head RMS norm (null weights with `norm` false: none), rotary, cache.
struct HeadSpec {
    const float* query_norm = nullptr;  // [head width] or null
    const float* key_norm = nullptr;    // [head width] or null
    bool value_norm = false;            // RMS norm of values without weights
    float eps = 1e-6f;
    PartId keys = -1;  // parts of the state; -1: only queries (caches of another layer are read)
    PartId values = -1;
};

struct AttentionSpec {
    PartId keys = -1;
    PartId values = -1;
    int kv_heads = 1;
    float scale = 1.0f;
    int window = 0;                    // tokens seen, the own one included; 0: all before and the own
    const float* sinks = nullptr;      // [query heads]: enlarge the softmax's denominator; null: none
    bool pictures_look_ahead = false;  // rows of a picture see its later rows too
    /// false: the call's rows are not in the cache (a draft that reads the model's caches): rows before the span are
    /// seen, places and window count as if they were.
    bool own_rows = true;
};

/// A gated delta net layer (specs page qwen35moe, 4.1). Channels of u: key_heads * width queries, as many keys,
/// value_heads * width values.
struct DeltaNetSpec {
    int key_heads = 0;
    int value_heads = 0;  // value head h reads key head h % key_heads
    int width = 0;        // of a head
    int taps = 0;
    const float* conv = nullptr;   // [channels, taps], oldest first
    const float* decay = nullptr;  // [value heads], negative: log decay = decay * softplus(alpha + dt)
    const float* dt = nullptr;     // [value heads]
    const float* norm = nullptr;   // [width]
    float eps = 1e-6f;
    PartId state = -1;    // block of value_heads * width * width floats [head][value][key]; a logged row has room for
                          // value_heads * (2 * width + 2) floats, laid out as the device likes
    PartId history = -1;  // block of (taps - 1) * channels floats, oldest first
};

/// A short convolution with two gates (specs page lfm2moe, 4): rows hold [B | C | x] of `width` each.
struct ShortConvSpec {
    int width = 0;
    int taps = 0;
    const float* conv = nullptr;  // [width, taps], oldest first
    PartId history = -1;          // block of (taps - 1) * width floats, oldest first
};

enum class Gate { silu, gelu };  // gelu: the tanh form

/// How router scores become experts and weights. All float32; ties go to the lower index.
struct RouteSpec {
    enum class Score { softmax, sigmoid };
    Score score = Score::softmax;
    int used = 0;                         // experts of a row
    const float* bias = nullptr;          // [experts], for the choice only
    bool bias_on_logit = false;           // the choice is by logit + bias; false: by score + bias
    bool normalise = true;                // weights divided by max(their sum, 2^-14)
    float scale = 1.0f;                   // of every weight, after that
    const float* expert_scale = nullptr;  // [experts], of a chosen expert's weight, last
};

/// The routed experts of one layer.
struct ExpertSet {
    int layer = 0;  // place among the layers with experts, for caches and profiles
    Gate gate_function = Gate::silu;
    Matrix gate;  // [count][inner, width]
    Matrix up;    // [count][inner, width]
    Matrix down;  // [count][width, inner]
    /// Above 0: the device has slots for some of them (ExpertSlots), of so many bytes, and the matrices are the file's
    /// own in host memory.
    uint64_t slot_bytes = 0;
};

/// An expert that every row uses, or a dense gated feed-forward block. Absent: gate.data null.
struct SharedExpert {
    Gate gate_function = Gate::silu;
    Matrix gate, up, down;
    Rows weight_logit;  // [rows, 1]: its weight is the sigmoid of it; empty: weight 1
};

/// What a row of logits makes likeliest.
struct Likeliest {
    int32_t token = 0;  // ties go to the lower one
    float p = 0.0f;     // of the whole row's softmax
};

struct DeviceFacts {
    std::string name;           // "cpu", "cuda", "sim"
    std::string description;    // for people: "AMD EPYC, 2 threads, AVX-512"
    uint64_t memory_total = 0;  // bytes; 0: host memory
    int threads = 1;
    bool warms_up = false;  // a first call is slower than later ones: worth a call before the first request
};

class Device {
  public:
    virtual ~Device() = default;
    virtual const DeviceFacts& facts() const = 0;
    /// Failure of an earlier operation, if any.
    virtual Result<void> status() const { return {}; }
    /// Bytes that are taken of memory_total.
    virtual uint64_t memory_taken() const { return 0; }
    /// Bytes that allocate could still give; 0 where memory is the host's.
    virtual uint64_t memory_free() const { return 0; }
    /// The slots of a card that holds some of the experts; null on every other device.
    virtual ExpertSlots* expert_slots() { return nullptr; }

    // Weights. The file's mapping must outlive the device.
    virtual Result<Matrix> load_matrix(const WeightView& weights) = 0;
    /// Float32 values of a one-dimensional (or flattened) tensor of a float type.
    virtual Result<const float*> load_vector(const WeightView& weights) = 0;
    /// The same from host memory, copied.
    virtual Result<const float*> load_vector(std::span<const float> values) = 0;
    virtual Result<ExpertSet> load_experts(int layer, Gate gate_function, const WeightView& gate, const WeightView& up,
                                           const WeightView& down) = 0;

    // Memory.
    Result<State> make_state(const StateLayout& layout, int max_rows);
    virtual Result<std::byte*> allocate(uint64_t bytes, const char* what) = 0;
    virtual void release(std::byte* memory) = 0;
    virtual void copy_to_host(void* host, const std::byte* from, uint64_t bytes) = 0;  // waits
    /// The same of what `from` holds now, but the host's bytes may arrive as late as finish_copies, which waits for
    /// all.
    virtual void copy_to_host_later(void* host, const std::byte* from, uint64_t bytes) {
        copy_to_host(host, from, bytes);
    }
    virtual void finish_copies() {}
    virtual void copy_from_host(std::byte* to, const void* host, uint64_t bytes) = 0;
    virtual void copy(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
    virtual void zero(std::byte* to, uint64_t bytes) = 0;

    // A call. `begin` brings its tokens, positions and spans to the device; operations that take the call use them.
    virtual void begin(const Call& call) = 0;

    /// out[t] = scale * row tokens[t] of the table; a picture's row instead where one stands, unscaled.
    virtual void embed(const Call& call, const Matrix& table, float scale, Rows out) = 0;
    /// cos and sin of every row's angles: out[t] = [pairs cosines | pairs sines].
    virtual void rope_table(const Call& call, const RopeSpec& rope, Rows out) = 0;

    /// out = x / sqrt(mean(x^2) + eps) * weight, as values and codes. weight null: all ones. out.values may be x;
    /// out.codes.values null: no codes.
    virtual void norm(Rows x, const float* weight, float eps, Activations out) = 0;
    /// residual += rms(x; weight), in place.
    virtual void add_norm(Rows residual, Rows x, const float* weight, float eps) = 0;
    /// Codes of values.
    virtual void quantise(Activations x) = 0;
    /// to += from.
    virtual void add(Rows to, Rows from) = 0;
    /// x[t][i] = x[t][i] * factor * weight[i]; weight null: ones.
    virtual void scale(Rows x, float factor, const float* weight) = 0;
    /// x = cap * tanh(x / cap).
    virtual void soft_cap(Rows x, float cap) = 0;
    /// out row i = row which[i] of in.
    virtual void gather(Rows in, std::span<const int32_t> which, Rows out) = 0;

    /// Products of one input: quantised matrices multiply the codes, float matrices the values.
    virtual void matmul(const Activations& x, std::span<const Product> products) = 0;
    /// residual += matrix . x
    virtual void matmul_add(const Activations& x, const Matrix& matrix, Rows residual) = 0;
    /// Products with unrounded float32 activations whatever the matrices' types (routers, decays, gates).
    virtual void matmul_float(Rows x, std::span<const Product> products) = 0;

    /// Norms and turns queries and keys in place (spec), norms values, appends keys and values to the caches. rope:
    /// rows of rope_table, or empty. k and v are empty when spec.keys < 0; q is empty where only the caches are filled.
    virtual void prepare_heads(const Call& call, const HeadSpec& spec, Rows rope, HeadRows q, HeadRows k,
                               HeadRows v) = 0;
    /// out[t] = concatenated heads of softmax(q . keys * scale) values, each times sigmoid(gate) where gate is given.
    /// After it q may hold what it held before prepare_heads: a device may do both at once.
    virtual void attend(const Call& call, const AttentionSpec& spec, HeadRows q, HeadRows gate, Activations out) = 0;

    /// Convolution, norms and gates, recurrence, head norm and silu(z) gate; brings the state up to date (Span).
    /// u [rows, channels], z [rows, value_heads * width], alpha and beta [rows, value_heads], raw products of the
    /// layer's input.
    virtual void delta_net(const Call& call, const DeltaNetSpec& spec, Rows u, Rows z, Rows alpha, Rows beta,
                           Activations out) = 0;
    /// out = C * conv(B * x) of rows [B | C | x]; brings the history up to date (Span).
    virtual void short_conv(const Call& call, const ShortConvSpec& spec, Rows bcx, Activations out) = 0;

    virtual void route(Rows logits, const RouteSpec& spec, Routing out) = 0;
    /// out = sum by rank of weight * expert(x), then the shared expert; add: out += that sum instead.
    /// The order of the sum is fixed: docs/numerics.md.
    virtual void experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                         Rows out, bool add) = 0;
    /// The shared expert or dense block alone: out = block(x); add: out += block(x).
    virtual void feed_forward(const SharedExpert& block, const Activations& x, Rows out, bool add) = 0;

    /// Waits for everything enqueued.
    virtual void wait() {}
    /// Waits for everything enqueued and copies rows to host memory, [rows, width] back to back.
    virtual void read(Rows rows, float* host) = 0;
    /// The likeliest of every row, where that is cheaper than reading the rows: waits and returns true. False: nothing
    /// was done, read them.
    virtual bool rank(Rows logits, std::span<Likeliest> out) {
        (void)logits, (void)out;
        return false;
    }

  protected:
    friend class State;
    /// A number for a new state (for devices that keep tables of them), and its return.
    virtual int attach(const State&) { return 0; }
    virtual void detach(const State&) {}
};

}  // namespace strata
