// A device that computes nothing: a dry run of a model on it, with a measuring arena, tells how much scratch a call of
// a given shape takes; its allocations tell how much memory a conversation takes, its loads how much the weights do.
#pragma once

#include <unordered_map>

#include "device/device.h"

namespace strata {

/// Weights and memory that it gives out are places, not memory: nothing may follow their pointers. What it gives back
/// to the host (read, copy_to_host) is zeros.
class MeasuringDevice final : public Device {
  public:
    const DeviceFacts& facts() const override { return facts_; }

    Result<Matrix> load_matrix(const WeightView& weights) override;
    Result<const float*> load_vector(const WeightView& weights) override;
    Result<const float*> load_vector(std::span<const float> values) override;
    Result<ExpertSet> load_experts(int layer, Gate gate_function, const WeightView& gate, const WeightView& up,
                                   const WeightView& down) override;

    /// Bytes of all weights that were loaded, as they lie in the file: the routed experts, and the rest.
    uint64_t expert_bytes() const { return expert_bytes_; }
    uint64_t dense_bytes() const { return dense_bytes_; }

    Result<std::byte*> allocate(uint64_t bytes, const char* what) override;
    void release(std::byte* memory) override;
    /// Bytes that are allocated now, and the most that were at once.
    uint64_t allocated() const { return allocated_; }
    uint64_t peak() const { return peak_; }

    void copy_to_host(void* host, const std::byte* from, uint64_t bytes) override;
    void copy_from_host(std::byte*, const void*, uint64_t) override {}
    void copy(std::byte*, const std::byte*, uint64_t) override {}
    void zero(std::byte*, uint64_t) override {}

    void begin(const Call&) override {}
    void embed(const Call&, const Matrix&, float, Rows) override {}
    void rope_table(const Call&, const RopeSpec&, Rows) override {}
    void norm(Rows, const float*, float, Activations) override {}
    void add_norm(Rows, Rows, const float*, float) override {}
    void quantise(Activations) override {}
    void add(Rows, Rows) override {}
    void scale(Rows, float, const float*) override {}
    void soft_cap(Rows, float) override {}
    void gather(Rows, std::span<const int32_t>, Rows) override {}
    void matmul(const Activations&, std::span<const Product>) override {}
    void matmul_add(const Activations&, const Matrix&, Rows) override {}
    void matmul_float(Rows, std::span<const Product>) override {}
    void prepare_heads(const Call&, const HeadSpec&, Rows, HeadRows, HeadRows, HeadRows) override {}
    void attend(const Call&, const AttentionSpec&, HeadRows, HeadRows, Activations) override {}
    void delta_net(const Call&, const DeltaNetSpec&, Rows, Rows, Rows, Rows, Activations) override {}
    void short_conv(const Call&, const ShortConvSpec&, Rows, Activations) override {}
    void route(Rows, const RouteSpec&, Routing) override {}
    void experts(const ExpertSet&, const Activations&, const Routing&, const SharedExpert&, Rows, bool) override {}
    void feed_forward(const SharedExpert&, const Activations&, Rows, bool) override {}
    void read(Rows rows, float* host) override;

  private:
    DeviceFacts facts_{.name = "measure", .description = "counts memory, computes nothing"};
    std::unordered_map<const std::byte*, uint64_t> sizes_;
    uintptr_t next_ = 4096;  // the next allocation's place
    uint64_t allocated_ = 0, peak_ = 0;
    uint64_t dense_bytes_ = 0, expert_bytes_ = 0;
};

}  // namespace strata
