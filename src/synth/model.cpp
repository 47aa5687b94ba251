#include "synth/model.h"

#include <cmath>

#include "synth/random.h"

namespace strata::synth {
namespace {

Fill normal(float spread, float mean = 0) {
    return {.mean = mean, .spread = spread};
}

float root(uint64_t value) {
    return std::sqrt(static_cast<float>(value));
}

constexpr float kSkewStep = 0.12f;  // spread of the sizes of routers' rows at skew 1

}  // namespace

void Model::matrix(std::string_view n, uint64_t in, uint64_t out, float gain) {
    add({name(n), {in, out}, {}, normal(gain / root(in))});
}

void Model::experts(std::string_view n, uint64_t in, uint64_t out, uint64_t count, float gain) {
    add({name(n), {in, out, count}, {}, normal(gain / root(in))});
}

void Model::table(std::string_view n, uint64_t width, uint64_t rows, float spread) {
    add({name(n), {width, rows}, {}, normal(spread)});
}

void Model::plain(std::string_view n, std::vector<uint64_t> dims, float gain, Type type) {
    const float spread = gain / root(dims[0]);
    add({name(n), std::move(dims), type, normal(spread)});
}

void Model::norm(std::string_view n, uint64_t width, float mean, float spread) {
    add({name(n), {width}, Type::f32, normal(mean * spread, mean)});
}

void Model::values(std::string_view n, std::vector<float> numbers) {
    const uint64_t count = numbers.size();
    add({name(n), {count}, Type::f32, {.kind = Fill::Kind::values, .values = std::move(numbers)}});
}

void Model::router(std::string_view n, uint64_t in, uint64_t count, float gain, Type type) {
    Fill fill = normal(gain / root(in));
    fill.row_spread = kSkewStep * options_.skew;
    add({name(n), {in, count}, type, fill});
}

std::vector<float> Model::uniform(std::string_view n, uint64_t count, float lo, float hi) const {
    Random random(mix(options_.seed, hash(name(n))));
    std::vector<float> numbers(count);
    for (float& number : numbers) number = lo + (hi - lo) * random.uniform();
    return numbers;
}

MixModel Model::mix_model() const {
    MixModel model{blocks, heads, kv_heads, expert_count, {}};
    for (const Slot& slot : slots) model.tensors.push_back({slot.name, slot.dims, slot.fixed});
    return model;
}

}  // namespace strata::synth
