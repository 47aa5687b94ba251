// The gated delta net and the short convolution over a call's conversations.
//
// Logs (Span::log): a row of the history's log is the row of u (short convolution: of B * x); a row of the state's log
// is [keys, normed: key_heads * width | values: value_heads * width | decays: value_heads | strengths: value_heads].
#include "cpu/ops_delta_net.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "cpu/ops.h"

namespace strata::cpu {
namespace {

constexpr int kStateRows = 32;  // rows of a head's state that a task takes through a span

float* floats(std::byte* memory) {
    return reinterpret_cast<float*>(memory);
}

/// The last `taps - 1` inputs of a convolution, some columns of them.
struct History {
    float* rows;     // [taps - 1, stride], oldest first
    int64_t stride;  // channels
    int count;       // taps - 1

    /// Takes in n more rows, `from` apart by from_stride.
    void push(const float* from, int64_t from_stride, int n, int64_t first, int64_t columns) const {
        if (n == 0) return;
        const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
        for (int i = 0; i < count; ++i) {
            const int source = i + n;  // of the old rows followed by the new ones
            std::memcpy(rows + i * stride + first,
                        source < count ? rows + source * stride + first : from + (source - count) * from_stride + first,
                        bytes);
        }
    }

    /// Pointers to the inputs of every tap for row t of the rows at `from`.
    void inputs(const float* from, int64_t from_stride, int t, const float** taps) const {
        for (int j = 0; j <= count; ++j) {
            const int source = t - count + j;
            taps[j] = source < 0 ? rows + (count + source) * stride : from + source * from_stride;
        }
    }
};

/// Rows of a call that take the same way through a delta net: everything of a row before and after the recurrence.
struct DeltaNet {
    const OpContext& op;
    const DeltaNetSpec& spec;
    const float* conv;  // [taps, channels]
    const Rows &u, &z, &alpha, &beta;
    const Activations& out;

    // [rows of the call] each
    float* mixed;      // [channels]: queries and keys of unit length, values
    float* decay;      // [value heads]
    float* strength;   // [value heads]
    float* key_query;  // [key heads]: key . query

    int64_t keys() const { return static_cast<int64_t>(spec.key_heads) * spec.width; }
    int64_t values() const { return static_cast<int64_t>(spec.value_heads) * spec.width; }
    int64_t channels() const { return 2 * keys() + values(); }
    int64_t log_row() const { return keys() + values() + 2 * spec.value_heads; }

    History history(const Span& span) const {
        return {floats(span.state->part(spec.history)), channels(), spec.taps - 1};
    }

    /// Convolution, norms and gates of one row; key head h with its query and the value heads h, h + key_heads, ...
    void mix(const Span& span, int t, int h) const {
        const OpKernels& k = op.kernels;
        const int row = span.first + t, d = spec.width;
        const float* taps[kMaxTaps];
        history(span).inputs(row_of(u, span.first), u.stride, t, taps);
        float* to = mixed + row * channels();
        const auto head = [&](int64_t channel) {
            const float* shifted[kMaxTaps];
            for (int j = 0; j < spec.taps; ++j) shifted[j] = taps[j] + channel;
            k.conv_silu(shifted, conv + channel, channels(), spec.taps, d, to + channel);
            return to + channel;
        };
        float* query = head(static_cast<int64_t>(h) * d);
        float* key = head(keys() + static_cast<int64_t>(h) * d);
        for (int v = h; v < spec.value_heads; v += spec.key_heads) head(2 * keys() + static_cast<int64_t>(v) * d);
        k.unit(query, spec.eps, 1.0f / std::sqrt(static_cast<float>(d)), d);
        k.unit(key, spec.eps, 1.0f, d);
        key_query[static_cast<int64_t>(row) * spec.key_heads + h] = k.dot(key, query, d);
        if (h == 0)
            k.delta_gates(row_of(alpha, row), row_of(beta, row), spec.decay, spec.dt, spec.value_heads,
                          decay + static_cast<int64_t>(row) * spec.value_heads,
                          strength + static_cast<int64_t>(row) * spec.value_heads);
    }

    /// Rows [first, first + rows) of value head h through the span.
    void recur(const Span& span, int h, int first, int rows, float* work) const {
        const int d = spec.width, key_head = h % spec.key_heads;
        DeltaRows r;
        r.rows = rows;
        r.width = d;
        r.state = floats(span.state->part(spec.state)) + (static_cast<int64_t>(h) * d + first) * d;
        r.work = work;
        if (span.replay > 0) {
            const float* log = floats(span.state->log(spec.state));
            r.tokens = span.replay;
            r.key = log + static_cast<int64_t>(key_head) * d;
            r.value = log + keys() + static_cast<int64_t>(h) * d + first;
            r.decay = log + keys() + values() + h;
            r.strength = r.decay + spec.value_heads;
            r.key_stride = r.value_stride = r.gate_stride = log_row();
            op.kernels.delta_rows(r);
        }
        const float* input = mixed + span.first * channels();
        r.tokens = span.rows;
        r.keep = !span.log;
        r.query = input + static_cast<int64_t>(key_head) * d;
        r.key = r.query + keys();
        r.value = input + 2 * keys() + static_cast<int64_t>(h) * d + first;
        r.key_stride = r.query_stride = r.value_stride = channels();
        r.decay = decay + static_cast<int64_t>(span.first) * spec.value_heads + h;
        r.strength = strength + static_cast<int64_t>(span.first) * spec.value_heads + h;
        r.gate_stride = spec.value_heads;
        r.key_query = key_query + static_cast<int64_t>(span.first) * spec.key_heads + key_head;
        r.key_query_stride = spec.key_heads;
        r.out = row_of(out.values, span.first) + static_cast<int64_t>(h) * d + first;
        r.out_stride = out.values.stride;
        op.kernels.delta_rows(r);
    }

    /// Head norm, gate and codes of one row.
    void close(int row) const {
        for (int h = 0; h < spec.value_heads; ++h) {
            float* o = row_of(out.values, row) + static_cast<int64_t>(h) * spec.width;
            op.kernels.norm_silu(o, spec.norm, spec.eps, row_of(z, row) + static_cast<int64_t>(h) * spec.width,
                                 spec.width, o);
        }
        op.quantise_row(out, row);
    }

    void write_log(const Span& span) const {
        float* history_log = floats(span.state->log(spec.history));
        float* state_log = floats(span.state->log(spec.state));
        for (int t = 0; t < span.rows; ++t) {
            const int64_t row = span.first + t;
            std::memcpy(history_log + t * channels(), u.data + row * u.stride,
                        static_cast<size_t>(channels()) * sizeof(float));
            float* to = state_log + t * log_row();
            const size_t gates = static_cast<size_t>(spec.value_heads) * sizeof(float);
            std::memcpy(to, mixed + row * channels() + keys(), static_cast<size_t>(keys() + values()) * sizeof(float));
            to += keys() + values();
            std::memcpy(to, decay + row * spec.value_heads, gates);
            std::memcpy(to + spec.value_heads, strength + row * spec.value_heads, gates);
        }
    }
};

}  // namespace

void delta_net(const OpContext& op, const Call& call, const DeltaNetSpec& spec, const float* conv_by_tap, Rows u,
               Rows z, Rows alpha, Rows beta, const Activations& out) {
    Workspace& workspace = op.workspace;
    workspace.reset();
    const auto rows = static_cast<uint64_t>(call.rows);
    DeltaNet net{op, spec, conv_by_tap, u, z, alpha, beta, out, nullptr, nullptr, nullptr, nullptr};
    net.mixed = workspace.take<float>(rows * static_cast<uint64_t>(net.channels()));
    net.decay = workspace.take<float>(rows * static_cast<uint64_t>(spec.value_heads));
    net.strength = workspace.take<float>(rows * static_cast<uint64_t>(spec.value_heads));
    net.key_query = workspace.take<float>(rows * static_cast<uint64_t>(spec.key_heads));
    const auto state_floats = static_cast<uint64_t>(kStateRows) * static_cast<uint64_t>(spec.width);
    auto* state_work = workspace.take<float>(static_cast<uint64_t>(op.pool.threads()) * state_floats);

    const int pieces = static_cast<int>(ceil_div(spec.width, kStateRows));
    for (const Span& span : call.spans) {
        const History history = net.history(span);
        if (span.replay > 0)
            history.push(floats(span.state->log(spec.history)), net.channels(), span.replay, 0, net.channels());

        constexpr int kRowsOfTask = 8;
        const int row_groups = static_cast<int>(ceil_div(span.rows, kRowsOfTask));
        op.pool.run(row_groups * spec.key_heads, [&](int task, int) {
            const int first = task / spec.key_heads * kRowsOfTask, h = task % spec.key_heads;
            for (int t = first; t < std::min(first + kRowsOfTask, span.rows); ++t) net.mix(span, t, h);
        });
        op.pool.run(spec.value_heads * pieces, [&](int task, int thread) {
            const int first = task % pieces * kStateRows;
            net.recur(span, task / pieces, first, std::min(kStateRows, spec.width - first),
                      state_work + static_cast<uint64_t>(thread) * state_floats);
        });
        if (span.log)
            net.write_log(span);
        else
            history.push(row_of(u, span.first), u.stride, span.rows, 0, net.channels());
    }
    op.for_rows(call.rows, 16 * net.values(), [&](int row) { net.close(row); });
}

void short_conv(const OpContext& op, const Call& call, const ShortConvSpec& spec, const float* conv_by_tap, Rows bcx,
                const Activations& out) {
    Workspace& workspace = op.workspace;
    workspace.reset();
    const int64_t width = spec.width;
    auto* products = workspace.take<float>(static_cast<uint64_t>(call.rows) * static_cast<uint64_t>(width));
    constexpr int kColumns = 256;  // channels of a task: nothing crosses channels
    const int pieces = static_cast<int>(ceil_div(spec.width, kColumns));
    for (const Span& span : call.spans) {
        const History history{floats(span.state->part(spec.history)), width, spec.taps - 1};
        float* log = floats(span.state->log(spec.history));
        op.pool.run(pieces, [&](int task, int) {
            const int64_t first = static_cast<int64_t>(task) * kColumns,
                          count = std::min<int64_t>(kColumns, width - first);
            if (span.replay > 0) history.push(log, width, span.replay, first, count);
            float* from = products + span.first * width;
            for (int t = 0; t < span.rows; ++t) {
                const float* row = row_of(bcx, span.first + t) + first;
                op.kernels.multiply(row, row + 2 * width, static_cast<int>(count), from + t * width + first);
            }
            for (int t = 0; t < span.rows; ++t) {
                const float* taps[kMaxTaps];
                history.inputs(from, width, t, taps);
                for (int j = 0; j < spec.taps; ++j) taps[j] += first;
                op.kernels.conv_gate(taps, conv_by_tap + first, width, spec.taps,
                                     row_of(bcx, span.first + t) + width + first, static_cast<int>(count),
                                     row_of(out.values, span.first + t) + first);
            }
            if (!span.log) {
                history.push(from, width, span.rows, first, count);
                return;
            }
            for (int t = 0; t < span.rows; ++t)
                std::memcpy(log + t * width + first, from + t * width + first,
                            static_cast<size_t>(count) * sizeof(float));
        });
    }
    op.for_rows(call.rows, 2 * width, [&](int row) { op.quantise_row(out, row); });
}

}  // namespace strata::cpu
