#include "paths.h"

namespace strata::test {
const char* const kTestData = POLYSTRATA_TEST_DATA_FOLDER;
const char* const kBin = POLYSTRATA_BIN_FOLDER;
}  // namespace strata::test
