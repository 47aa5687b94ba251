// Where tests find their data and the programs; included in every test by tests/CMakeLists.txt.
#pragma once

namespace strata::test {
extern const char* const kTestData;
extern const char* const kBin;
}  // namespace strata::test

#define POLYSTRATA_TEST_DATA (strata::test::kTestData)
#define POLYSTRATA_BIN (strata::test::kBin)
