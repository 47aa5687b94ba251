// Row kernels: norms, codes, elementwise work, rotary, cache rows, routing. Included by ops_scalar.cpp, ops_avx2.cpp
// and ops_avx512.cpp, once each; docs/numerics.md ("On one device") states the order of every sum.

namespace strata::cpu {
namespace {

float inverse_rms(const float* x, float eps, int n) {
    return 1.0f / __builtin_sqrtf(dot(x, x, n) / static_cast<float>(n) + eps);
}

void norm(const float* x, const float* weight, float eps, int n, float* out) {
    const Lanes r(inverse_rms(x, eps, n));
    if (weight)
        map_row(x, out, n, [&](Lanes v, int i, int count) { return v * r * Lanes::load(weight + i, count); });
    else
        map_row(x, out, n, [&](Lanes v, int, int) { return v * r; });
}

void add_norm(float* residual, const float* x, const float* weight, float eps, int n) {
    const Lanes r(inverse_rms(x, eps, n));
    map_row(residual, residual, n, [&](Lanes sum, int i, int count) {
        const Lanes v = Lanes::load(x + i, count) * r;
        return sum + (weight ? v * Lanes::load(weight + i, count) : v);
    });
}

void norm_silu(const float* x, const float* weight, float eps, const float* z, int n, float* out) {
    const Lanes r(inverse_rms(x, eps, n));
    map_row(x, out, n, [&](Lanes v, int i, int count) {
        return v * r * Lanes::load(weight + i, count) * silu(Lanes::load(z + i, count));
    });
}

/// 32 values as codes; returns their scale. The rule of A8 and of q8_0 cache rows.
float quantise_block(const float* x, int8_t* values, int16_t* half_sums) {
    const Lanes a = Lanes::load(x), b = Lanes::load(x + kLanes);
    const float largest = lane_max_bits(lane_abs(a), lane_abs(b)).max_bits();
    const bool zero = largest < 1e-30f, finite = largest <= 0x1.fffffep127f;
    Lanes qa(0.0f), qb(0.0f);
    if (!zero && finite) {
        const Lanes inverse(127.0f / largest),
            magic(0x1.8p23f);  // adding it rounds to the nearest integer, ties to even
        qa = a * inverse + magic - magic;
        qb = b * inverse + magic - magic;
    }
    qa.store_i8(values);
    qb.store_i8(values + kLanes);
    if (half_sums) {
        half_sums[0] = static_cast<int16_t>(qa.sum());
        half_sums[1] = static_cast<int16_t>(qb.sum());
    }
    return zero ? 0.0f : finite ? largest / 127.0f : float_from_bits(0x7fc00000);
}

void quantise(const float* x, int n, int8_t* values, float* scales, int16_t* half_sums) {
    for (int b = 0; b < n / 32; ++b) scales[b] = quantise_block(x + 32 * b, values + 32 * b, half_sums + 2 * b);
}

void add(float* to, const float* from, int n) {
    map_row(to, to, n, [&](Lanes v, int i, int count) { return v + Lanes::load(from + i, count); });
}

void scale(float* x, float factor, const float* weight, int n) {
    const Lanes f(factor);
    if (weight)
        map_row(x, x, n, [&](Lanes v, int i, int count) { return v * f * Lanes::load(weight + i, count); });
    else
        map_row(x, x, n, [&](Lanes v, int, int) { return v * f; });
}

void soft_cap(float* x, float cap, int n) {
    const Lanes c(cap);
    map_row(x, x, n, [&](Lanes v, int, int) { return c * tanh_fixed(v / c); });
}

double exp_sum(const float* x, float max, int n) {
    // Blocks keep the float sums short; the blocks are added in double, in order.
    constexpr int kBlock = 1024;
    const Lanes top(max);
    double sum = 0;
    for (int first = 0; first < n; first += kBlock) {
        const int end = n - first < kBlock ? n - first : kBlock;
        Lanes lanes(0.0f);
        int i = 0;
        for (; i + kLanes <= end; i += kLanes) lanes = lanes + exp_fixed(Lanes::load(x + first + i) - top);
        float rest = 0;
        for (; i < end; ++i) rest += exp_fixed(x[first + i] - max);
        sum += static_cast<double>(lanes.sum() + rest);
    }
    return sum;
}

void gate(float* x, const float* gates, int n) {
    map_row(x, x, n, [&](Lanes v, int i, int count) { return v * sigmoid(Lanes::load(gates + i, count)); });
}

void multiply(const float* a, const float* b, int n, float* to) {
    map_row(a, to, n, [&](Lanes v, int i, int count) { return v * Lanes::load(b + i, count); });
}

void unit(float* x, float eps, float factor, int n) {
    scale(x, factor / __builtin_sqrtf(dot(x, x, n) + eps), nullptr, n);
}

void rotate(float* x, const float* table, int pairs) {
    const float *cosine = table, *sine = table + pairs;
    for (int i = 0; i < pairs; i += kLanes) {
        const int n = pairs - i < kLanes ? pairs - i : kLanes;
        const Lanes a = Lanes::load(x + i, n), b = Lanes::load(x + pairs + i, n);
        const Lanes c = Lanes::load(cosine + i, n), s = Lanes::load(sine + i, n);
        lane_fma(a, c, -(b * s)).store(x + i, n);
        lane_fma(a, s, b * c).store(x + pairs + i, n);
    }
}

void store_row(Type type, const float* x, int n, std::byte* to) {
    if (type == Type::q8_0) {
        auto* out = reinterpret_cast<uint8_t*>(to);
        for (int b = 0; b < n / 32; ++b, out += 34) {
            int8_t codes[32];
            const uint16_t d = f16_from_float(quantise_block(x + 32 * b, codes, nullptr));
            std::memcpy(out, &d, 2);
            std::memcpy(out + 2, codes, 32);
        }
    } else if (type == Type::f16) {
        auto* out = reinterpret_cast<uint16_t*>(to);
        int i = 0;
        for (; i + kLanes <= n; i += kLanes) Lanes::load(x + i).store_f16(out + i);
        for (; i < n; ++i) out[i] = f16_from_float(x[i]);
    } else {
        std::memcpy(to, x, static_cast<size_t>(n) * sizeof(float));
    }
}

/// Lanes of x from i on; minus infinity behind n.
inline Lanes lanes_or_less(const float* x, int i, int n) {
    return n - i >= kLanes ? Lanes::load(x + i)
                           : lane_range(0, n - i, Lanes::load(x + i, n - i), Lanes(kMinusInfinity));
}

/// The largest of n values that are not NaN.
inline float largest_of(const float* x, int n) {
    Lanes largest(kMinusInfinity);
    for (int i = 0; i < n; i += kLanes) largest = lane_max(lanes_or_less(x, i, n), largest);  // a NaN gives way
    return largest.max();
}

/// The indices of the `used` largest of n keys, equal ones in order. Keys that are taken become NaN, which is never
/// larger; where nothing else is left, the lowest index that is not taken. groups: ceil(n / 16) floats, the largest key
/// of each sixteen.
void choose(float* keys, int n, int used, float* groups, int32_t* chosen) {
    const int count = (n + kLanes - 1) / kLanes;
    for (int g = 0; g < count; ++g)
        groups[g] = largest_of(keys + g * kLanes, n - g * kLanes < kLanes ? n - g * kLanes : kLanes);
    for (int rank = 0; rank < used; ++rank) {
        int best = 0;
        for (int g = 1; g < count; ++g)
            if (groups[g] > groups[best]) best = g;
        const int end = (best + 1) * kLanes < n ? (best + 1) * kLanes : n;
        int e = best * kLanes;
        while (e < end && !(keys[e] == groups[best])) ++e;
        if (e == end) {
            const auto taken = [&](int candidate) {
                for (int r = 0; r < rank; ++r)
                    if (chosen[r] == candidate) return true;
                return false;
            };
            for (e = 0; taken(e);) ++e;
        }
        chosen[rank] = e;
        keys[e] = __builtin_nanf("");
        const int group = e / kLanes * kLanes;
        groups[e / kLanes] = largest_of(keys + group, n - group < kLanes ? n - group : kLanes);
    }
}

/// Scores of all experts, then the choice by rank. scores: 3 * experts floats of scratch.
void route(const float* logits, int experts, const RouteSpec& spec, float* scores, int32_t* chosen, float* weights) {
    if (spec.score == RouteSpec::Score::sigmoid) {
        map_row(logits, scores, experts, [](Lanes z, int, int) { return sigmoid(z); });
    } else {
        const Lanes largest(largest_of(logits, experts));
        Lanes sum(0.0f);
        map_row(logits, scores, experts, [&](Lanes z, int, int count) {
            const Lanes e = exp_fixed(z - largest);
            sum = sum + lane_range(0, count, e, Lanes(0.0f));
            return e;
        });
        const Lanes total(sum.sum());
        map_row(scores, scores, experts, [&](Lanes s, int, int) { return s / total; });
    }

    float* keys = scores + experts;
    const float* base = spec.bias_on_logit ? logits : scores;
    for (int e = 0; e < experts; ++e) keys[e] = spec.bias ? base[e] + spec.bias[e] : base[e];
    choose(keys, experts, spec.used, keys + experts, chosen);
    float sum = 0.0f;
    for (int rank = 0; rank < spec.used; ++rank) {
        weights[rank] = scores[chosen[rank]];
        sum += weights[rank];
    }
    const float divisor = sum > 0x1p-14f ? sum : 0x1p-14f;
    for (int rank = 0; rank < spec.used; ++rank) {
        float w = weights[rank];
        if (spec.normalise) w = w / divisor;
        w = w * spec.scale;
        weights[rank] = spec.expert_scale ? w * spec.expert_scale[chosen[rank]] : w;
    }
}

}  // namespace
}  // namespace strata::cpu
