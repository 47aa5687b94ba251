#include "engine/engine.h"

#include <gtest/gtest.h>

#include "random_walk.h"
#include "toy_model.h"

namespace strata {
namespace {

struct ToyBench : Bench {
    explicit ToyBench(const ToyShape& shape = {}) : toy(shape) {}
    HookedModel& model() override { return hooked; }
    Device& device() override { return host; }
    uint64_t scratch_bytes(const EngineLimits&) override { return uint64_t{4} << 20; }

    HostDevice host;
    ToyModel toy;
    HookedModel hooked{toy};
};

TEST(Engine, RandomRequestsGiveWhatAPlainReadingGives) {
    for (const bool recurrent : {true, false}) {
        ToyBench bench({.recurrent = recurrent, .ring = true, .draft = true});
        RandomWalk walk(bench, {.seed = recurrent ? 11u : 12u, .steps = 4000});
        walk.run();
        // The walk must have gone through what it is there for.
        EXPECT_GT(walk.reused, walk.read / 20);
        EXPECT_GT(walk.accepted, 1000);
        EXPECT_GT(walk.offered, walk.accepted);
        EXPECT_GT(walk.cancelled, 100);
        EXPECT_GT(walk.loaded, 10);
    }
}

}  // namespace
}  // namespace strata
