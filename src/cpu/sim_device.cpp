#include "cpu/sim_device.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace strata {
namespace {

constexpr int kPoison = 0xff;  // as floats and halves: not a number

uint64_t bytes_of(const WeightView& weights) {
    return static_cast<uint64_t>(weights.count) * static_cast<uint64_t>(weights.rows) *
           row_bytes(weights.type, static_cast<uint64_t>(weights.cols));
}

std::string mib(uint64_t bytes) {
    return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}

}  // namespace

Result<std::unique_ptr<SimDevice>> SimDevice::create(const SimOptions& options) {
    STRATA_TRY_ASSIGN(const CpuDevice::Setup setup, CpuDevice::setup(options.cpu));
    return std::unique_ptr<SimDevice>(new SimDevice(options, setup));
}

SimDevice::SimDevice(const SimOptions& options, const Setup& setup)
    : CpuDevice(setup), options_(options), card_products_(card_pool_, setup.simd) {
    facts_.name = "sim";
    facts_.description = "simulated card of " + mib(options.memory) + " on " + facts_.description;
    facts_.memory_total = options.memory;
    card_ = std::thread([this] { run_queue(); });
}

SimDevice::~SimDevice() {
    {
        const std::lock_guard lock(mutex_);
        end_ = true;
    }
    changed_.notify_all();
    card_.join();
}

// ---- what is enqueued for the card

void SimDevice::enqueue(std::function<void()> work) {
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
    }
    changed_.notify_all();
}

void SimDevice::run_queue() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return end_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const std::function<void()> work = std::move(queue_.front());
        queue_.pop_front();
        working_ = true;
        lock.unlock();
        work();
        lock.lock();
        working_ = false;
        changed_.notify_all();
    }
}

void SimDevice::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !working_; });
}

// ---- memory

uint64_t SimDevice::memory_free() const {
    const uint64_t used = taken_ + elsewhere_;
    return used < options_.memory ? options_.memory - used : 0;
}

Result<void> SimDevice::take(uint64_t bytes, const std::string& what) {
    if (bytes > memory_free())
        return device_error(what + " needs " + mib(bytes) + " on the simulated card, which has " + mib(memory_free()) +
                            " of " + mib(options_.memory) + " free (" + mib(taken_) +
                            " are this program's): use a smaller context, a smaller file, or --device cpu");
    taken_ += bytes;
    return {};
}

Result<std::byte*> SimDevice::allocate(uint64_t bytes, const char* what) {
    if (host_) host_->make_room(bytes);
    STRATA_TRY(take(bytes, what));
    auto memory = CpuDevice::allocate(bytes, what);
    if (!memory) {
        taken_ -= bytes;
        return memory;
    }
    sizes_[*memory] = bytes;
    return memory;
}

void SimDevice::release(std::byte* memory) {
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) return;
    wait();
    taken_ -= found->second;
    sizes_.erase(found);
    CpuDevice::release(memory);
}

Result<Matrix> SimDevice::load_matrix(const WeightView& weights) {
    STRATA_TRY(take(bytes_of(weights), weights.name));
    return CpuDevice::load_matrix(weights);
}

Result<const float*> SimDevice::load_vector(const WeightView& weights) {
    STRATA_TRY(take(bytes_of(weights), weights.name));
    return CpuDevice::load_vector(weights);
}

Result<const float*> SimDevice::load_vector(std::span<const float> values) {
    STRATA_TRY(take(values.size_bytes(), "a vector of weights"));
    return CpuDevice::load_vector(values);
}

Result<ExpertSet> SimDevice::load_experts(int layer, Gate gate_function, const WeightView& gate, const WeightView& up,
                                          const WeightView& down) {
    STRATA_TRY_ASSIGN(ExpertSet set, CpuDevice::load_experts(layer, gate_function, gate, up, down));
    set.slot_bytes = cpu::ExpertSlotForm(set).bytes;
    if (layer != static_cast<int>(sets_.size()))
        return device_error("the experts of layer " + std::to_string(layer) + " came out of order");
    sets_.push_back(set);
    return set;
}

// ---- experts

Result<uint64_t> SimDevice::upload(const ExpertSet& set, int expert, std::byte* slot) {
    const uint64_t bytes = set.slot_bytes;
    enqueue([=] { std::memset(slot, kPoison, bytes); });
    if (options_.upload_fails && options_.upload_fails()) return device_error("the simulated link failed");
    const uint64_t number = ++uploads_;
    enqueue([=, this] {
        cpu::ExpertSlotForm(set).fill(set, expert, slot);
        copied_.store(number, std::memory_order_release);
    });
    return number;
}

uint64_t SimDevice::arrived() {
    seen_.push_back(copied_.load(std::memory_order_acquire));
    while (static_cast<int>(seen_.size()) > options_.lag + 1) seen_.pop_front();
    return static_cast<int>(seen_.size()) > options_.lag ? seen_.front() : 0;
}

void SimDevice::experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                        Rows out, bool add) {
    if (!status().ok()) return;
    if (!host_) return fail("experts outside of the card and nobody to compute them");
    const ExpertCall call{&set, x, routing};
    host_->begin(call);
    const auto width = static_cast<size_t>(out.width), rows = static_cast<size_t>(out.rows);
    const auto pairs = static_cast<size_t>(routing.rows * routing.used);

    // The card's vectors by pair, the host's by the plan's number. One that nobody writes is not a number.
    y_.assign(pairs * width, __builtin_nanf(""));
    by_pair_.resize(pairs);
    std::iota(by_pair_.begin(), by_pair_.end(), 0);
    if (shared.gate) {
        shared_y_.resize(rows * width);
        enqueue([&] {
            const cpu::ExpertOutputs outputs{.shared = &shared, .shared_y = shared_y_.data()};
            card_products_.expert_outputs({.down = shared.down}, x, {.rows = out.rows}, outputs);
        });
    }
    ExpertRound round;
    while (host_->next_round(round)) {
        std::vector<std::byte*> slots(round.slots.begin(), round.slots.end());
        std::vector<ExpertPull> pulls(round.pulls.begin(), round.pulls.end());
        enqueue([&, slots = std::move(slots), pulls = std::move(pulls)] {
            for (const ExpertPull& pull : pulls) cpu::ExpertSlotForm(set).fill(set, pull.expert, pull.slot);
            const cpu::ExpertOutputs outputs{.vector_of = by_pair_.data(), .y = y_.data(), .slots = slots.data()};
            card_products_.expert_outputs(set, x, routing, outputs);
        });
    }
    const ExpertPlan& plan = host_->plan();
    host_y_.assign(static_cast<size_t>(plan.host_pairs) * width, __builtin_nanf(""));
    if (plan.host_pairs > 0) host_->compute(call, host_y_.data());
    of_pair_.resize(pairs);
    for (size_t p = 0; p < pairs; ++p) {
        const int32_t source = plan.source[p];
        of_pair_[p] = source >= 0                   ? host_y_.data() + static_cast<size_t>(source) * width
                      : source == ExpertPlan::kCard ? y_.data() + p * width
                                                    : nullptr;
    }
    wait();
    products().sum_experts({.of_pair = of_pair_.data(), .shared_y = shared.gate ? shared_y_.data() : nullptr}, routing,
                           shared, out, add);
    host_->layer_done(call);
}

}  // namespace strata
