// File rows to bricks, on the card: each byte read and written once.
#include "cuda/bricks.cuh"
#include "cuda/launch.h"

namespace strata::cuda {
namespace {

__device__ void copy_bytes(u8* to, const u8* from, int n) {
    for (int i = 0; i < n; ++i) to[i] = from[i];
}

/// A block of 32 x 8 threads a brick: thread (row, part) moves every eighth chunk of its row.
template <Brick B>
__global__ void __launch_bounds__(256)
    permute(const u8* raw, int64_t row_bytes, int rows, int cols, int segments, u8* out) {
    using Info = BrickInfo<B>;
    const int group = blockIdx.x / segments, segment = blockIdx.x % segments;
    const int lane = threadIdx.x & 31, row = group * 32 + lane;
    u8* brick = out + static_cast<int64_t>(blockIdx.x) * Info::bytes;
    const u8* from = raw + static_cast<int64_t>(row) * row_bytes + static_cast<int64_t>(segment) * Info::file_bytes;
    const int blocks = min(8, (cols - segment * 256) / 32);  // of 32 inputs; only q8_0 may have fewer than eight
    for (int c = threadIdx.x >> 5; c < Info::chunks; c += 8) {
        u8* to = brick + c * 512 + lane * 16;
        *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
        if (row >= rows) continue;
        if constexpr (B == Brick::q8_0) {
            if (c == 0) {
                for (int b = 0; b < blocks; ++b) copy_bytes(to + 2 * b, from + 34 * b, 2);
            } else if ((c - 1) / 2 < blocks) {
                copy_bytes(to, from + 34 * ((c - 1) / 2) + 2 + 16 * ((c - 1) & 1), 16);
            }
        } else {
            copy_bytes(to, from + c * 16, 16);
        }
    }
    if constexpr (B == Brick::q6_k) {
        if (threadIdx.x < 32) {
            u8* to = brick + 13 * 512 + lane * 2;
            to[0] = row < rows ? from[208] : 0;
            to[1] = row < rows ? from[209] : 0;
        }
    }
}

}  // namespace

void make_bricks(Brick brick, const u8* raw, int64_t row_bytes, int rows, int cols, u8* out, cudaStream_t stream) {
    const int segments = div_up(cols, 256);
    with_brick(brick, [&](auto b) {
        permute<b><<<div_up(rows, 32) * segments, 256, 0, stream>>>(raw, row_bytes, rows, cols, segments, out);
    });
}

}  // namespace strata::cuda
