// The CUDA device: weights as bricks in the card's memory, operations as kernels on one stream. Short calls (windows of
// guesses) are recorded as graphs: the operations of a call are first only noted, with a fingerprint of everything that
// shapes their launches; a call whose fingerprint was seen before is one graph launch.
#pragma once

#include <memory>

#include "device/device.h"

namespace strata {

struct CudaOptions {
    int card = 0;
    bool graphs = true;     // false: every operation is launched by itself (for checks)
    bool dependent = true;  // false: no programmatic dependent launch (for checks)
};

/// Cards that can be used, as sentences ("NVIDIA H200, 139 GiB, sm_90"); empty without a card or driver.
std::vector<std::string> cuda_cards();

/// Refused where there is no such card or its driver does not answer.
Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options = {});

}  // namespace strata
