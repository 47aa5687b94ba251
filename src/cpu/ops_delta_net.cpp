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

constexpr int kStateRows = 32;  // rows of a head's state that a task takes through a block
constexpr int kBlockRows =
    128;  // rows of a call that go through all steps before the next: what lies between stays in cache

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

/// A call's way through a delta net: everything of a row before and after the recurrence.
struct DeltaNet {
    const OpContext& op;
    const DeltaNetSpec& spec;
    const float* conv;  // [taps, channels]
    const Rows &u, &z, &alpha, &beta;
    const Activations& out;

    // Of the rows of a block, by head, so that the recurrence reads them one after another.
    int room;          // rows
    float* mixed;      // [query heads, key heads, value heads][room][width]: queries and keys of unit length, values
    float* decay;      // [value heads][room]
    float* strength;   // [value heads][room]
    float* key_query;  // [key heads][room]: key . query

    int64_t keys() const { return static_cast<int64_t>(spec.key_heads) * spec.width; }
    int64_t values() const { return static_cast<int64_t>(spec.value_heads) * spec.width; }
    int64_t channels() const { return 2 * keys() + values(); }
    int heads() const { return 2 * spec.key_heads + spec.value_heads; }
    int64_t log_row() const { return keys() + values() + 2 * spec.value_heads; }

    History history(const Span& span) const {
        return {floats(span.state->part(spec.history)), channels(), spec.taps - 1};
    }

    /// Head h of the mixed channels in row i of the block: queries, then keys, then values.
    float* head(int h, int i) const { return mixed + (static_cast<int64_t>(h) * room + i) * spec.width; }
    float& of(float* numbers, int h, int i) const { return numbers[static_cast<int64_t>(h) * room + i]; }

    /// Convolution and norms of heads [first, last) of row `start + i` of the span.
    void mix(const Span& span, int start, int i, int first, int last) const {
        const int d = spec.width;
        const float* taps[kMaxTaps];
        history(span).inputs(row_of(u, span.first), u.stride, start + i, taps);
        for (int j = 0; j < spec.taps; ++j) taps[j] += static_cast<int64_t>(first) * d;
        for (int h = first; h < last; ++h) {
            float* to = head(h, i);
            op.kernels.conv_silu(taps, conv + static_cast<int64_t>(h) * d, channels(), spec.taps, d, to);
            for (int j = 0; j < spec.taps; ++j) taps[j] += d;
            if (h < spec.key_heads)
                op.kernels.unit(to, spec.eps, 1.0f / std::sqrt(static_cast<float>(d)), d);
            else if (h < 2 * spec.key_heads)
                op.kernels.unit(to, spec.eps, 1.0f, d);
        }
    }

    /// The numbers that each head of that row has. work: 2 * value_heads floats.
    void mix_numbers(const Span& span, int start, int i, float* work) const {
        float *decays = work, *strengths = work + spec.value_heads;
        const int row = span.first + start + i;
        op.kernels.delta_gates(row_of(alpha, row), row_of(beta, row), spec.decay, spec.dt, spec.value_heads, decays,
                               strengths);
        for (int h = 0; h < spec.value_heads; ++h) {
            of(decay, h, i) = decays[h];
            of(strength, h, i) = strengths[h];
        }
        for (int h = 0; h < spec.key_heads; ++h)
            of(key_query, h, i) = op.kernels.dot(head(spec.key_heads + h, i), head(h, i), spec.width);
    }

    /// Rows [first, first + rows) of the state of value head h take in what a window kept.
    void replay(const Span& span, int h, int first, int rows) const {
        const float* log = floats(span.state->log(spec.state));
        DeltaRows r = state_rows(span, h, first, rows);
        r.tokens = span.replay;
        r.key = log + static_cast<int64_t>(h % spec.key_heads) * spec.width;
        r.value = log + keys() + static_cast<int64_t>(h) * spec.width + first;
        r.decay = log + keys() + values() + h;
        r.strength = r.decay + spec.value_heads;
        r.key_stride = r.value_stride = r.gate_stride = log_row();
        op.kernels.delta_rows(r);
    }

    /// The same rows go through the block: rows [start, start + tokens) of the span. work: as much as they are.
    void recur(const Span& span, int start, int tokens, int h, int first, int rows, float* work) const {
        const int key_head = h % spec.key_heads;
        DeltaRows r = state_rows(span, h, first, rows);
        r.work = work;
        r.keep = !span.log;
        r.tokens = tokens;
        r.query = head(key_head, 0);
        r.key = head(spec.key_heads + key_head, 0);
        r.value = head(2 * spec.key_heads + h, 0) + first;
        r.key_stride = r.query_stride = r.value_stride = spec.width;
        r.decay = &of(decay, h, 0);
        r.strength = &of(strength, h, 0);
        r.key_query = &of(key_query, key_head, 0);
        r.gate_stride = r.key_query_stride = 1;
        r.out = row_of(out.values, span.first + start) + static_cast<int64_t>(h) * spec.width + first;
        r.out_stride = out.values.stride;
        op.kernels.delta_rows(r);
    }

    DeltaRows state_rows(const Span& span, int h, int first, int rows) const {
        DeltaRows r;
        r.rows = rows;
        r.width = spec.width;
        r.state = floats(span.state->part(spec.state)) + (static_cast<int64_t>(h) * spec.width + first) * spec.width;
        return r;
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
            for (int h = spec.key_heads; h < heads(); ++h, to += spec.width)
                std::memcpy(to, head(h, t), static_cast<size_t>(spec.width) * sizeof(float));
            for (int h = 0; h < spec.value_heads; ++h) {
                to[h] = of(decay, h, t);
                to[spec.value_heads + h] = of(strength, h, t);
            }
        }
    }
};

}  // namespace

void delta_net(const OpContext& op, const Call& call, const DeltaNetSpec& spec, const float* conv_by_tap, Rows u,
               Rows z, Rows alpha, Rows beta, const Activations& out) {
    Workspace& workspace = op.workspace;
    workspace.reset();
    int room = 1;
    for (const Span& span : call.spans) room = std::max(room, std::min(span.rows, kBlockRows));
    DeltaNet net{op, spec, conv_by_tap, u, z, alpha, beta, out, room, nullptr, nullptr, nullptr, nullptr};
    const auto rows = static_cast<uint64_t>(room), value_heads = static_cast<uint64_t>(spec.value_heads);
    net.mixed = workspace.take<float>(rows * static_cast<uint64_t>(net.channels()));
    net.decay = workspace.take<float>(rows * value_heads);
    net.strength = workspace.take<float>(rows * value_heads);
    net.key_query = workspace.take<float>(rows * static_cast<uint64_t>(spec.key_heads));
    // Of each thread: numbers of a row, rows of a state.
    const uint64_t work_floats =
        std::max(2 * value_heads, static_cast<uint64_t>(kStateRows) * static_cast<uint64_t>(spec.width));
    auto* work = workspace.take<float>(static_cast<uint64_t>(op.pool.threads()) * work_floats);
    const auto work_of = [&](int thread) { return work + static_cast<uint64_t>(thread) * work_floats; };

    for (const Span& span : call.spans) {
        // A single token's state is one read and one write: whole heads, so that what is asked for ahead is used.
        const int task_rows = span.rows == 1 && !span.log ? spec.width : kStateRows;
        const int pieces = static_cast<int>(ceil_div(spec.width, task_rows));
        const History history = net.history(span);
        if (span.replay > 0)
            history.push(floats(span.state->log(spec.history)), net.channels(), span.replay, 0, net.channels());
        for (int start = 0; start == 0 || start < span.rows; start += kBlockRows) {
            const int tokens = std::min(kBlockRows, span.rows - start);
            if (tokens < 2 * op.pool.threads()) {  // few rows: heads to threads
                const int shares = std::min(net.heads(), op.pool.threads() > 1 ? 2 * op.pool.threads() : 1);
                op.pool.run(tokens * shares, [&](int task, int) {
                    const int share = task % shares;
                    net.mix(span, start, task / shares, net.heads() * share / shares,
                            net.heads() * (share + 1) / shares);
                });
                for (int i = 0; i < tokens; ++i) net.mix_numbers(span, start, i, work_of(0));
            } else {
                constexpr int kRowsOfTask = 4;
                op.pool.run(static_cast<int>(ceil_div(tokens, kRowsOfTask)), [&](int task, int thread) {
                    for (int i = task * kRowsOfTask; i < std::min((task + 1) * kRowsOfTask, tokens); ++i) {
                        net.mix(span, start, i, 0, net.heads());
                        net.mix_numbers(span, start, i, work_of(thread));
                    }
                });
            }
            op.pool.run(spec.value_heads * pieces, [&](int task, int thread) {
                const int h = task / pieces, first = task % pieces * task_rows,
                          count = std::min(task_rows, spec.width - first);
                if (start == 0 && span.replay > 0) net.replay(span, h, first, count);
                net.recur(span, start, tokens, h, first, count, work_of(thread));
            });
        }
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
