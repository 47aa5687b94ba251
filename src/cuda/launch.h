// Host side of a launch: grid, block, dynamic shared memory, programmatic dependence.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <utility>

namespace strata::cuda {

/// Where operations are enqueued. `pdl`: the card has programmatic dependent launch (sm_90 and later).
struct Queue {
    cudaStream_t stream = nullptr;
    bool pdl = false;
    int multiprocessors = 1;
    int shared_limit = 48 * 1024;     // dynamic shared memory a block may have
    cudaError_t error = cudaSuccess;  // the first one; later launches do nothing
    const char* failed = "";          // kernel family of it

    void keep(cudaError_t result, const char* what) {
        if (error == cudaSuccess && result != cudaSuccess) error = result, failed = what;
    }
};

template <class... Parameters, class... Arguments>
void launch(Queue& queue, const char* what, void (*kernel)(Parameters...), dim3 grid, int block, size_t shared,
            Arguments&&... arguments) {
    if (queue.error != cudaSuccess || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    if (shared > 48 * 1024)
        queue.keep(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
                   what);
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(block));
    config.dynamicSmemBytes = shared;
    config.stream = queue.stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = queue.pdl ? 1 : 0;
    if (queue.error == cudaSuccess)
        queue.keep(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
                   what);
}

inline int div_up(int64_t a, int64_t b) {
    return static_cast<int>((a + b - 1) / b);
}

}  // namespace strata::cuda
