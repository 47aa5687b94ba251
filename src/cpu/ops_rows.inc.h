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

/// Scores of all experts, then the choice by rank: the largest key, of equal ones the lowest index.
void route(const float* logits, int experts, const RouteSpec& spec, float* scores, int32_t* chosen, float* weights) {
    if (spec.score == RouteSpec::Score::sigmoid) {
        map_row(logits, scores, experts, [](Lanes z, int, int) { return sigmoid(z); });
    } else {
        float largest = logits[0];
        for (int e = 1; e < experts; ++e) largest = logits[e] > largest ? logits[e] : largest;
        map_row(logits, scores, experts, [&](Lanes z, int, int) { return exp_fixed(z - Lanes(largest)); });
        Lanes sum(0.0f);
        for (int e = 0; e < experts; e += kLanes)
            sum = sum + Lanes::load(scores + e, experts - e < kLanes ? experts - e : kLanes);
        const Lanes total(sum.sum());
        map_row(scores, scores, experts, [&](Lanes s, int, int) { return s / total; });
    }

    float* keys = scores + experts;
    const float* base = spec.bias_on_logit ? logits : scores;
    for (int e = 0; e < experts; ++e) keys[e] = spec.bias ? base[e] + spec.bias[e] : base[e];
    float sum = 0.0f;
    for (int rank = 0; rank < spec.used; ++rank) {
        int best = -1;
        for (int e = 0; e < experts; ++e) {
            bool taken = false;
            for (int r = 0; r < rank; ++r) taken = taken || chosen[r] == e;
            if (!taken && (best < 0 || keys[e] > keys[best])) best = e;
        }
        chosen[rank] = best;
        weights[rank] = scores[best];
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
