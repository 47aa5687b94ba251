// The engine's property test over real models: one line a fixture.
#include <gtest/gtest.h>

#include "fixture_bench.h"
#include "random_walk.h"

namespace strata {
namespace {

struct Fixture {
    const char* file;
    bool has_draft;
    Type cache = Type::f16;
    int threads = 1;
    const char* draft = "";  // a draft model in a file of its own
};

constexpr const char* kGemma4Draft = "gemma4/tiny-assistant.gguf";

class FixtureWalk : public testing::TestWithParam<Fixture> {};

TEST_P(FixtureWalk, RandomRequestsGiveWhatAPlainReadingGives) {
    const Fixture& fixture = GetParam();
    FixtureBench bench(fixture.file, fixture.threads, 64, fixture.cache, fixture.draft);
    EXPECT_EQ(bench.model().draft() != nullptr, fixture.has_draft);
    RandomWalk walk(bench, {.seed = seed_or(21),
                            .steps = 60,
                            .max_context = 256,
                            .longest_prompt = 60,
                            .longest_answer = 16,
                            .checkpoint_every = 16,
                            .fresh_plain = false});
    walk.run();
    EXPECT_GT(walk.reused, 0);
    EXPECT_GT(walk.accepted, 10);
    EXPECT_GT(walk.offered, walk.accepted);
}

INSTANTIATE_TEST_SUITE_P(
    Models, FixtureWalk,
    testing::Values(Fixture{"qwen35moe/tiny.gguf", true}, Fixture{"qwen35moe/tiny.gguf", true, Type::q8_0, 3},
                    Fixture{"qwen35moe/heads.gguf", true, Type::f32}, Fixture{"clover_moe/tiny.gguf", false},
                    Fixture{"gemma4/tiny.gguf", false, Type::f32, 3},
                    Fixture{"gemma4/tiny.gguf", true, Type::f16, 1, kGemma4Draft},
                    Fixture{"gemma4/tiny.gguf", true, Type::q8_0, 1, kGemma4Draft},
                    Fixture{"lfm2moe/tiny.gguf", false, Type::f16, 3}, Fixture{"kolibri1/tiny.gguf", false},
                    Fixture{"kolibri1/tiny.gguf", false, Type::q8_0}, Fixture{"flint/tiny.gguf", false},
                    Fixture{"flint/tiny-b.gguf", false, Type::q8_0, 3}));

}  // namespace
}  // namespace strata
