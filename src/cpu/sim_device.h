// The simulated card: a device with a memory budget and slots for experts, backed by host memory and computing with the
// CPU's kernels, so that everything about experts outside of a card is tested on any machine. Slots are real copies,
// full of poison while they hold nothing, and what is enqueued for the card runs on a thread of its own: a slot that is
// read too early or too late shows as a wrong token, or as a race.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "cpu/cpu_device.h"

namespace strata {

struct SimOptions {
    CpuOptions cpu;
    uint64_t memory = 0;  // bytes of the card
    bool pulls = false;   // it can bring experts in by itself (ExpertRound::pulls)
    int lag = 0;          // an upload is said to have arrived after so many more questions for it
    /// Asked before every upload: true makes it fail. Null: none fails.
    std::function<bool()> upload_fails;
};

class SimDevice final : public CpuDevice, public ExpertSlots {
  public:
    static Result<std::unique_ptr<SimDevice>> create(const SimOptions& options);
    ~SimDevice() override;

    uint64_t memory_taken() const override { return taken_; }
    uint64_t memory_free() const override;
    ExpertSlots* expert_slots() override { return this; }
    /// What another program has of the card's memory, from now on.
    void take_elsewhere(uint64_t bytes) { elsewhere_ = bytes; }

    Result<Matrix> load_matrix(const WeightView& weights) override;
    Result<const float*> load_vector(const WeightView& weights) override;
    Result<const float*> load_vector(std::span<const float> values) override;
    Result<ExpertSet> load_experts(int layer, Gate gate_function, const WeightView& gate, const WeightView& up,
                                   const WeightView& down) override;
    Result<std::byte*> allocate(uint64_t bytes, const char* what) override;
    void release(std::byte* memory) override;
    void experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                 Rows out, bool add) override;
    void wait() override;

    std::span<const ExpertSet> sets() const override { return sets_; }
    void serve(ExpertHost* host) override { host_ = host; }
    Result<uint64_t> upload(const ExpertSet& set, int expert, std::byte* slot) override;
    uint64_t arrived() override;
    bool pulls() const override { return options_.pulls; }

  private:
    SimDevice(const SimOptions& options, const Setup& setup);
    Result<void> take(uint64_t bytes, const std::string& what);
    void enqueue(std::function<void()> work);
    void run_queue();

    const SimOptions options_;
    uint64_t taken_ = 0, elsewhere_ = 0;
    std::unordered_map<const std::byte*, uint64_t> sizes_;
    std::vector<ExpertSet> sets_;
    ExpertHost* host_ = nullptr;

    // The card's thread does what was enqueued, in order.
    cpu::ThreadPool card_pool_{1};
    cpu::Products card_products_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    bool working_ = false, end_ = false;
    std::thread card_;

    uint64_t uploads_ = 0;             // begun
    std::atomic<uint64_t> copied_{0};  // done by the card's thread
    std::deque<uint64_t> seen_;        // what `arrived` found at its last calls, newest last
    std::vector<float> y_, shared_y_, host_y_;
    std::vector<int32_t> by_pair_;  // 0, 1, 2, ...
    std::vector<const float*> of_pair_;
};

}  // namespace strata
