// A fixture's model on the simulated card with an expert cache, for engines.
#pragma once

#include <string>

#include "cpu/sim_device.h"
#include "device/measure.h"
#include "engine/expert_store.h"
#include "gguf/file.h"
#include "harness.h"

namespace strata {

struct SimSetup {
    std::string fixture = "qwen35moe/tiny.gguf";
    double experts = 0.5;  // of all experts' bytes there is room for beside all else; above 1: for all and more
    ExpertStoreOptions store;
    SimOptions sim;
    int threads = 1;
    Type cache = Type::f16;
};

class SimBench : public Bench {
  public:
    explicit SimBench(SimSetup setup)
        : file_(must(gguf::File::open(std::string(POLYSTRATA_TEST_DATA) + "/" + setup.fixture))),
          options_{.cache_type = setup.cache, .max_call_rows = 64},
          measured_(must(make_model(file_, measuring_, options_))) {
        // Dense weights, three conversations of 256 rows (a growing one twice), scratch: nothing of it may fail.
        const uint64_t before = measuring_.allocated();
        const State state = must(measuring_.make_state(measured_->layout(), 512 + kMaxWindow));
        conversation_ = measuring_.allocated() - before;
        const uint64_t fixed = measuring_.dense_bytes() + 6 * conversation_ + (uint64_t{8} << 20);
        expert_bytes_ = measuring_.expert_bytes();
        setup.sim.cpu.threads = setup.threads;
        setup.sim.memory = fixed + setup.store.stage.value_or(0) + setup.store.reserve +
                           static_cast<uint64_t>(static_cast<double>(expert_bytes_) * setup.experts);
        setup.store.threads = setup.threads;
        if (!setup.store.stage) setup.store.stage = 0;
        if (setup.store.chunk == 0) setup.store.chunk = 1;  // every slot for itself
        // What is not for experts is kept from them, so that `experts` says how many find a slot.
        if (!setup.store.most)
            setup.store.most = static_cast<uint64_t>(static_cast<double>(expert_bytes_) * setup.experts);
        device_ = must(SimDevice::create(setup.sim));
        model_ = must(make_model(file_, *device_, options_));
        hooked_.emplace(*model_);
        store_ = must(ExpertStore::make(*device_, model_->facts().experts_used, setup.store));
        const auto filled = store_->fill();
        if (!filled) throw std::runtime_error(filled.error().message);
    }

    HookedModel& model() override { return *hooked_; }
    SimDevice& device() override { return *device_; }
    ExpertStore* experts() override { return store_.get(); }
    uint64_t scratch_bytes(const EngineLimits& limits) override {
        return must(ModelRunner::measure(*measured_, measuring_, limits.runner()));
    }
    int experts_total() const { return model_->facts().expert_layers * model_->facts().experts; }
    uint64_t expert_bytes() const { return expert_bytes_; }
    uint64_t conversation_bytes() const { return conversation_; }

  private:
    template <class T>
    static T must(Result<T> result) {
        if (!result) throw std::runtime_error(result.error().message);
        return std::move(result).value();
    }

    gguf::File file_;
    ModelOptions options_;
    MeasuringDevice measuring_;
    std::unique_ptr<Model> measured_;
    uint64_t conversation_ = 0, expert_bytes_ = 0;
    std::unique_ptr<SimDevice> device_;
    std::unique_ptr<Model> model_;
    std::optional<HookedModel> hooked_;
    std::unique_ptr<ExpertStore> store_;
};

}  // namespace strata
