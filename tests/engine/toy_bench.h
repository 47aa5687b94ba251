// The toy model ready to make engines from, and requests to them.
#pragma once

#include "harness.h"
#include "toy_model.h"

namespace strata {

struct ToyBench : Bench {
    explicit ToyBench(const ToyShape& shape = {}) : toy(shape) {}
    HookedModel& model() override { return hooked; }
    Device& device() override { return host; }
    uint64_t scratch_bytes(const EngineLimits&) override { return uint64_t{4} << 20; }

    HostDevice host;
    ToyModel toy;
    HookedModel hooked{toy};
};

inline EngineRequest asking(std::vector<int32_t> prompt, int64_t max_new = 4) {
    EngineRequest request;
    request.prompt = std::move(prompt);
    request.max_new = max_new;
    return request;
}

inline Recorder answer(Engine& engine, const EngineRequest& request, bool hash = true) {
    Recorder recorder;
    engine.submit(request, recorder, {}, hash);
    EXPECT_TRUE(engine.run());
    return recorder;
}

}  // namespace strata
