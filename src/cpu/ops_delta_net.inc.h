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
inline constexpr int kDeltaGroup = 8;  // rows that share the loads of key and query
#else
inline constexpr int kDeltaGroup = 2;
#endif

/// One pass over R rows: S = decay S + delta key (where there was a token before), and the products of the result with
/// the next token's key and query.
template <int R, bool Update, bool Next>
inline void delta_pass(float* s, int width, const float* key, float decay, const float* delta, const float* next_key,
                       const float* next_query, float* key_sums, float* query_sums) {
    Lanes a[R], b[R];
    for (int r = 0; r < R; ++r) a[r] = b[r] = Lanes(0.0f);
    const Lanes d(decay);
    for (int i = 0; i < width; i += kLanes) {
        const Lanes k = Update ? Lanes::load(key + i) : d;
        const Lanes nk = Next ? Lanes::load(next_key + i) : d, nq = Next ? Lanes::load(next_query + i) : d;
        for (int r = 0; r < R; ++r) {
            Lanes v = Lanes::load(s + r * width + i);
            if (Update) {
                v = lane_fma(Lanes(delta[r]), k, d * v);
                v.store(s + r * width + i);
            }
            if (Next) {
                a[r] = lane_fma(v, nk, a[r]);
                b[r] = lane_fma(v, nq, b[r]);
            }
        }
    }
    if (Next)
        for (int r = 0; r < R; ++r) {
            key_sums[r] = a[r].sum();
            query_sums[r] = b[r].sum();
        }
}

/// The one-pass form, both products with the state before the token:
/// delta = strength (v - decay S k), out = decay S q + delta (k . q), S = decay S + delta k.
template <int R>
void delta_group(const DeltaRows& rows, float* s, int first) {
    float kv[R], qv[R], delta[R];
    const auto query = [&](int t) {
        return rows.query ? rows.query + t * rows.query_stride : rows.key + t * rows.key_stride;
    };
    delta_pass<R, false, true>(s, rows.width, nullptr, 0.0f, nullptr, rows.key, query(0), kv, qv);
    for (int t = 0; t < rows.tokens; ++t) {
        const float *key = rows.key + t * rows.key_stride, *value = rows.value + t * rows.value_stride + first;
        const float decay = rows.decay[t * rows.gate_stride], strength = rows.strength[t * rows.gate_stride];
        for (int r = 0; r < R; ++r) delta[r] = strength * lane_fma(-decay, kv[r], value[r]);
        if (rows.out) {
            const float kq = rows.key_query[t * rows.key_query_stride];
            for (int r = 0; r < R; ++r)
                rows.out[t * rows.out_stride + first + r] = lane_fma(delta[r], kq, decay * qv[r]);
        }
        if (t + 1 < rows.tokens)
            delta_pass<R, true, true>(s, rows.width, key, decay, delta, key + rows.key_stride, query(t + 1), kv, qv);
        else if (rows.keep)
            delta_pass<R, true, false>(s, rows.width, key, decay, delta, nullptr, nullptr, kv, qv);
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
    for (; first + kDeltaGroup <= rows.rows; first += kDeltaGroup)
        delta_group<kDeltaGroup>(rows, s + first * rows.width, first);
    for (; first < rows.rows; ++first) delta_group<1>(rows, s + first * rows.width, first);
}

}  // namespace
}  // namespace strata::cpu
