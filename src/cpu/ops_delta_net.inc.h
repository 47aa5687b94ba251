// Kernels of the gated delta net and the short convolution. Included once for each instruction set.

namespace strata::cpu {
namespace {

/// Sum over taps, oldest first, one fma chain from +0. conv is [taps, stride]: taps apart, channels together.
inline Lanes convolve(const float* const* rows, const float* conv, int64_t stride, int taps, int i, int count) {
    Lanes sum(0.0f);
    for (int j = 0; j < taps; ++j)
        sum = count == kLanes
                  ? lane_fma(Lanes::load(conv + j * stride + i), Lanes::load(rows[j] + i), sum)
                  : lane_fma(Lanes::load(conv + j * stride + i, count), Lanes::load(rows[j] + i, count), sum);
    return sum;
}

void conv_silu(const float* const* rows, const float* conv, int64_t stride, int taps, int n, float* out) {
    map_row(rows[taps - 1], out, n,
            [&](Lanes, int i, int count) { return silu(convolve(rows, conv, stride, taps, i, count)); });
}

void conv_gate(const float* const* rows, const float* conv, int64_t stride, int taps, const float* gates, int n,
               float* out) {
    map_row(gates, out, n, [&](Lanes c, int i, int count) { return c * convolve(rows, conv, stride, taps, i, count); });
}

void delta_gates(const float* alpha, const float* beta, const float* rate, const float* dt, int heads, float* decay,
                 float* strength) {
    map_row(alpha, decay, heads, [&](Lanes a, int i, int count) {
        return exp_fixed(Lanes::load(rate + i, count) * softplus(a + Lanes::load(dt + i, count)));
    });
    map_row(beta, strength, heads, [](Lanes b, int, int) { return sigmoid(b); });
}

#if defined(__AVX512F__)
inline constexpr int kDeltaGroup = 4;
#else
inline constexpr int kDeltaGroup = 2;
#endif

/// R rows of a state that share the loads of key and query, and their products with the next token's.
template <int R>
struct DeltaGroup {
    static constexpr int kAhead = 16;  // rows from those of a first pass to those that it asks for

    float* s;                // [R, width]
    int first;               // row
    float sums[2 * R] = {};  // S k, then S q, of each row
    float delta[R] = {};

    /// One pass over the rows: S = decay S + delta key (Update), then the products with the next key and query (Next).
    template <bool Update, bool Next>
    inline void pass(int width, const float* key, float decay, const float* next_key, const float* next_query) {
        Lanes sum[2 * R];
#pragma GCC unroll 16
        for (int r = 0; r < 2 * R; ++r) sum[r] = Lanes(0.0f);
        const Lanes d(decay);
        for (int i = 0; i < width; i += kLanes) {
            const Lanes k = Update ? Lanes::load(key + i) : d;
            const Lanes nk = Next ? Lanes::load(next_key + i) : d, nq = Next ? Lanes::load(next_query + i) : d;
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                Lanes v = Lanes::load(s + r * width + i);
                if (!Update) __builtin_prefetch(s + (kAhead + r) * width + i, 1, 2);
                if (Update) {
                    v = lane_fma(Lanes(delta[r]), k, d * v);
                    v.store(s + r * width + i);
                }
                if (Next) {
                    sum[r] = lane_fma(v, nk, sum[r]);
                    sum[R + r] = lane_fma(v, nq, sum[R + r]);
                }
            }
        }
        if (Next) sum_each(sum, sums);
    }

    /// What the token adds, and its output, from the products with the state before it.
    inline void step(const DeltaRows& rows, int t) {
        const float* value = rows.value + t * rows.value_stride + first;
        const float decay = rows.decay[t * rows.gate_stride], strength = rows.strength[t * rows.gate_stride];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) delta[r] = strength * lane_fma(-decay, sums[r], value[r]);
        if (!rows.out) return;
        const float kq = rows.key_query[t * rows.key_query_stride];
        float* out = rows.out + t * rows.out_stride + first;
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) out[r] = lane_fma(delta[r], kq, decay * sums[R + r]);
    }
};

/// The one-pass form, both products with the state before the token:
/// delta = strength (v - decay S k), out = decay S q + delta (k . q), S = decay S + delta k.
/// G groups take turns, so that one's pass hides the other's way from sums to delta.
template <int R, int G>
void delta_groups(const DeltaRows& rows, float* s, int first) {
    DeltaGroup<R> groups[G];
    for (int g = 0; g < G; ++g) {
        groups[g].s = s + (first + g * R) * rows.width;
        groups[g].first = first + g * R;
    }
    const auto key = [&](int t) { return rows.key + t * rows.key_stride; };
    const auto query = [&](int t) { return rows.query ? rows.query + t * rows.query_stride : key(t); };
    for (DeltaGroup<R>& group : groups) group.template pass<false, true>(rows.width, nullptr, 0.0f, key(0), query(0));
    const int last = rows.tokens - 1;
    for (int t = 0; t < last; ++t)
        for (DeltaGroup<R>& group : groups) {
            group.step(rows, t);
            group.template pass<true, true>(rows.width, key(t), rows.decay[t * rows.gate_stride], key(t + 1),
                                            query(t + 1));
        }
    for (DeltaGroup<R>& group : groups) {
        group.step(rows, last);
        if (rows.keep)
            group.template pass<true, false>(rows.width, key(last), rows.decay[last * rows.gate_stride], nullptr,
                                             nullptr);
    }
}

void delta_rows(const DeltaRows& rows) {
    if (rows.tokens == 0) return;
    float* s = rows.state;
    if (!rows.keep) {
        std::memcpy(rows.work, rows.state, static_cast<size_t>(rows.rows) * rows.width * sizeof(float));
        s = rows.work;
    }
    int first = 0;
    for (; first + 2 * kDeltaGroup <= rows.rows; first += 2 * kDeltaGroup) delta_groups<kDeltaGroup, 2>(rows, s, first);
    for (; first < rows.rows; ++first) delta_groups<1, 1>(rows, s, first);
}

}  // namespace
}  // namespace strata::cpu
