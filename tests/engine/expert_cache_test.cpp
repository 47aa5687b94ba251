// The bookkeeping of the expert cache, by random histories and small stories.
#include "engine/expert_cache.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace strata {
namespace {

using Expert = ExpertCache::Expert;
using Place = ExpertCache::Place;

uint32_t seed_or(uint32_t seed) {
    const char* given = std::getenv("POLYSTRATA_SEED");
    return given ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : seed;
}

TEST(ExpertCache, AnyHistoryLeavesEveryExpertInAtMostOneSlotOfItsKind) {
    const uint32_t seed = seed_or(5);
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return static_cast<int>(random() % n); };
    ExpertCache cache({{7, 0}, {3, 1}, {7, 0}, {12, 2}});
    std::set<int> slots;
    std::map<int, std::pair<Expert, Place>> model;  // what slots hold, told separately
    for (int step = 0; step < 20000; ++step) {
        const int layer = below(4),
                  expert = below(static_cast<size_t>(cache.layers()[static_cast<size_t>(layer)].experts));
        const Expert e{layer, expert};
        switch (below(6)) {
            case 0:
                if (slots.size() < 16) {
                    EXPECT_TRUE(slots.insert(cache.add_slot(below(3))).second);
                }
                break;
            case 1:
                if (!slots.empty() && below(3) == 0) {
                    const int slot = *std::next(slots.begin(), below(slots.size()));
                    cache.remove_slot(slot);
                    slots.erase(slot);
                    model.erase(slot);
                }
                break;
            case 2: {
                if (cache.place(e) != Place::away) break;
                int slot = cache.free_slot(cache.kind(layer));
                if (slot < 0)
                    if (const auto victim = cache.victim(layer)) slot = cache.slot(*victim);
                if (slot < 0) break;
                cache.load(e, slot);
                model[slot] = {e, Place::loading};
                break;
            }
            case 3:
                for (auto& [slot, held] : model)
                    if (held.second == Place::loading && below(2) == 0) {
                        cache.arrive(slot);
                        held.second = Place::here;
                    }
                break;
            case 4:
                if (!slots.empty()) {
                    const int slot = *std::next(slots.begin(), below(slots.size()));
                    cache.empty(slot);
                    model.erase(slot);
                }
                break;
            default:
                if (below(3) == 0) cache.begin_call();
                cache.use(e);
                cache.pass(below(400));
        }
        ASSERT_TRUE(cache.consistent()) << "step " << step;
        ASSERT_EQ(cache.slots(), static_cast<int>(slots.size()));
        int here = 0;
        for (const auto& [slot, held] : model) {
            ASSERT_EQ(cache.holds(slot), held.first);
            ASSERT_EQ(cache.slot(held.first), slot);
            ASSERT_EQ(cache.place(held.first), held.second);
            here += held.second == Place::here ? 1 : 0;
        }
        ASSERT_EQ(cache.here(), here);
        ASSERT_EQ(cache.wanted().size(), 29 - model.size());
    }
}

TEST(ExpertCache, TheVictimIsTheLeastUsedThatTheCallDoesNotUse) {
    ExpertCache cache({{4, 0}});
    for (int e = 0; e < 3; ++e) {
        cache.load({0, e}, cache.add_slot(0));
        cache.arrive(cache.slot({0, e}));
        for (int n = 0; n <= e; ++n) cache.use({0, e});
    }
    cache.begin_call();
    EXPECT_EQ(cache.victim(0), (Expert{0, 0}));
    cache.use({0, 0});
    EXPECT_EQ(cache.victim(0), (Expert{0, 1}));
    cache.use({0, 1});
    cache.use({0, 2});
    EXPECT_EQ(cache.victim(0), std::nullopt);
}

TEST(ExpertCache, AnExpertOnItsWayIsNoVictim) {
    ExpertCache cache({{2, 0}});
    cache.load({0, 0}, cache.add_slot(0));
    cache.begin_call();
    EXPECT_EQ(cache.victim(0), std::nullopt);
}

TEST(ExpertCache, AUseCountsHalfAfterItsHalfLifeHoweverLongTheRun) {
    ExpertCache cache({{2, 0}});
    for (int i = 0; i < 3000; ++i) cache.pass(static_cast<int>(ExpertCache::kHalfLife));
    cache.use({0, 0});
    EXPECT_DOUBLE_EQ(cache.score({0, 0}), 1);
    cache.pass(static_cast<int>(ExpertCache::kHalfLife));
    cache.use({0, 1});
    EXPECT_NEAR(cache.score({0, 0}), 0.5, 1e-9);
    EXPECT_NEAR(cache.score({0, 1}), 1, 1e-9);
}

TEST(ExpertCache, WithoutUseExpertsComeEvenlyOverLayersAndWithItByScore) {
    ExpertCache cache({{3, 0}, {3, 0}});
    const std::vector<Expert> even = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}};
    EXPECT_EQ(cache.wanted(), even);
    cache.use({1, 2});
    EXPECT_EQ(cache.wanted().front(), (Expert{1, 2}));
}

TEST(ExpertCache, ExpectedProportionsWeighAsMuchAsALongRunOfThem) {
    ExpertCache expected({{4, 0}}), lived({{4, 0}});
    const std::vector<uint64_t> counts = {30, 10, 0, 0};
    expected.expect(counts, 2);
    for (int token = 0; token < 20000; ++token) {
        lived.pass(1);
        lived.use({0, token % 4 == 3 ? 1 : 0});
        lived.use({0, token % 4 == 1 ? 1 : 0});
    }
    EXPECT_GT(expected.score({0, 0}), expected.score({0, 1}));
    EXPECT_EQ(expected.score({0, 2}), 0);
    const double all_expected = expected.score({0, 0}) + expected.score({0, 1});
    const double all_lived = lived.score({0, 0}) + lived.score({0, 1});
    EXPECT_NEAR(all_expected / all_lived, 1, 0.01);
    EXPECT_NEAR(expected.score({0, 1}) / all_expected, lived.score({0, 1}) / all_lived, 0.01);
}

}  // namespace
}  // namespace strata
