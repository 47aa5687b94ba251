#include "device/measure.h"

#include <algorithm>
#include <cstring>

namespace strata {
namespace {

uint64_t bytes_of(const WeightView& weights) {
    return static_cast<uint64_t>(weights.count) * static_cast<uint64_t>(weights.rows) *
           row_bytes(weights.type, static_cast<uint64_t>(weights.cols));
}

Matrix matrix_of(const WeightView& weights) {
    Matrix matrix;
    matrix.type = weights.type;
    matrix.rows = weights.rows;
    matrix.cols = weights.cols;
    matrix.count = weights.count;
    matrix.stride = static_cast<int64_t>(weights.stride);
    matrix.data = weights.data;
    matrix.scales = weights.scales;
    return matrix;
}

}  // namespace

Result<Matrix> MeasuringDevice::load_matrix(const WeightView& weights) {
    dense_bytes_ += bytes_of(weights);
    return matrix_of(weights);
}

Result<const float*> MeasuringDevice::load_vector(const WeightView& weights) {
    dense_bytes_ += bytes_of(weights);
    return reinterpret_cast<const float*>(weights.data);
}

Result<const float*> MeasuringDevice::load_vector(std::span<const float> values) {
    dense_bytes_ += values.size_bytes();
    return values.data();
}

Result<ExpertSet> MeasuringDevice::load_experts(int layer, Gate gate_function, const WeightView& gate,
                                                const WeightView& up, const WeightView& down) {
    ExpertSet set;
    set.layer = layer;
    set.gate_function = gate_function;
    for (const WeightView* weights : {&gate, &up, &down}) expert_bytes_ += bytes_of(*weights);
    set.gate = matrix_of(gate);
    set.up = matrix_of(up);
    set.down = matrix_of(down);
    return set;
}

Result<std::byte*> MeasuringDevice::allocate(uint64_t bytes, const char*) {
    auto* place = reinterpret_cast<std::byte*>(next_);
    next_ += (std::max<uint64_t>(bytes, 1) + 4095) & ~uint64_t{4095};
    sizes_[place] = bytes;
    allocated_ += bytes;
    peak_ = std::max(peak_, allocated_);
    return place;
}

void MeasuringDevice::release(std::byte* memory) {
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) return;
    allocated_ -= found->second;
    sizes_.erase(found);
}

void MeasuringDevice::copy_to_host(void* host, const std::byte*, uint64_t bytes) {
    std::memset(host, 0, bytes);
}

void MeasuringDevice::read(Rows rows, float* host) {
    std::memset(host, 0, static_cast<size_t>(rows.rows) * static_cast<size_t>(rows.width) * sizeof(float));
}

}  // namespace strata
