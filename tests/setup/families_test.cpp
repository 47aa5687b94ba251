#include "setup/families.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "models/model.h"

namespace strata {
namespace {

TEST(Families, AreOfArchitecturesThatRun) {
    const auto known = known_architectures();
    for (const Family& family : families())
        EXPECT_NE(std::ranges::find(known, family.architecture), known.end()) << family.name;
}

}  // namespace
}  // namespace strata
