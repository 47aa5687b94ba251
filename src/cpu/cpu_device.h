// The CPU device: host memory, weights in place in the mapped file, every operation done when its call returns.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cpu/ops.h"
#include "cpu/products.h"
#include "cpu/simd.h"
#include "device/device.h"

namespace strata {

struct CpuOptions {
    int threads = 0;                // 0: one a processor
    std::optional<cpu::Simd> simd;  // none: the best that the machine has
};

class CpuDevice : public Device {
  public:
    /// Refused: an instruction set that this machine does not have.
    static Result<std::unique_ptr<CpuDevice>> create(const CpuOptions& options = {});
    ~CpuDevice() override;

    /// Where the machine's memory belongs to several nodes: keeps the threads on the one that holds most of `memory`,
    /// pages that were touched, and returns a line that says so. Empty: there is nothing to gain. From any thread,
    /// once, also while operations run.
    std::string stay_near(std::span<const std::span<const std::byte>> memory);

    const DeviceFacts& facts() const override { return facts_; }
    Result<void> status() const override { return status_; }

    Result<Matrix> load_matrix(const WeightView& weights) override;
    Result<const float*> load_vector(const WeightView& weights) override;
    Result<const float*> load_vector(std::span<const float> values) override;
    Result<ExpertSet> load_experts(int layer, Gate gate_function, const WeightView& gate, const WeightView& up,
                                   const WeightView& down) override;

    /// Zero pages of the system: nothing is resident before it is written, so room for a long context costs nothing at
    /// first.
    Result<std::byte*> allocate(uint64_t bytes, const char* what) override;
    void release(std::byte* memory) override;
    void copy_to_host(void* host, const std::byte* from, uint64_t bytes) override;
    void copy_from_host(std::byte* to, const void* host, uint64_t bytes) override;
    void copy(std::byte* to, const std::byte* from, uint64_t bytes) override;
    void zero(std::byte* to, uint64_t bytes) override;

    /// Checks the call. One that would leave its conversations' memory fails the device (status) and is not computed.
    void begin(const Call& call) override;

    void embed(const Call& call, const Matrix& table, float scale, Rows out) override;
    void rope_table(const Call& call, const RopeSpec& rope, Rows out) override;
    void norm(Rows x, const float* weight, float eps, Activations out) override;
    void add_norm(Rows residual, Rows x, const float* weight, float eps) override;
    void quantise(Activations x) override;
    void add(Rows to, Rows from) override;
    void scale(Rows x, float factor, const float* weight) override;
    void soft_cap(Rows x, float cap) override;
    void gather(Rows in, std::span<const int32_t> which, Rows out) override;
    void matmul(const Activations& x, std::span<const Product> products) override;
    void matmul_add(const Activations& x, const Matrix& matrix, Rows residual) override;
    void matmul_float(Rows x, std::span<const Product> products) override;
    void prepare_heads(const Call& call, const HeadSpec& spec, Rows rope, HeadRows q, HeadRows k, HeadRows v) override;
    void attend(const Call& call, const AttentionSpec& spec, HeadRows q, HeadRows gate, Activations out) override;
    void delta_net(const Call& call, const DeltaNetSpec& spec, Rows u, Rows z, Rows alpha, Rows beta,
                   Activations out) override;
    void short_conv(const Call& call, const ShortConvSpec& spec, Rows bcx, Activations out) override;
    void route(Rows logits, const RouteSpec& spec, Routing out) override;
    void experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                 Rows out, bool add) override;
    void feed_forward(const SharedExpert& block, const Activations& x, Rows out, bool add) override;
    void read(Rows rows, float* host) override;

  protected:
    struct Setup {
        int threads;
        cpu::Simd simd;
    };
    static Result<Setup> setup(const CpuOptions& options);
    explicit CpuDevice(const Setup& setup);
    void fail(std::string message);
    cpu::Products& products() { return products_; }
    DeviceFacts facts_;

  private:
    cpu::OpContext context() { return {pool_, kernels_, workspace_}; }
    /// conv as [taps, channels]; made at first use, kept as long as the device.
    const float* by_tap(const float* conv, int channels, int taps);

    cpu::ThreadPool pool_;
    const cpu::OpKernels& kernels_;
    cpu::Workspace workspace_;
    cpu::Products products_;
    Result<void> status_;
    std::vector<std::vector<float>> vectors_;                     // converted weights
    std::unordered_map<const std::byte*, uint64_t> allocations_;  // size of each
    std::unordered_map<const float*, std::vector<float>> by_tap_;
};

}  // namespace strata
