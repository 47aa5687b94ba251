// How much memory the machine has to give.
#pragma once

#include <cstdint>

namespace strata {

/// Bytes that programs can still take without swapping; all there could be where the system does not say.
uint64_t available_memory();
/// Bytes of this process in physical memory now, and the most there were, without pages of mapped files; 0 where
/// unknown.
struct OwnMemory {
    uint64_t now = 0;
    uint64_t peak = 0;
};
OwnMemory own_memory();

}  // namespace strata
