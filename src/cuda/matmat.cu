// Products of long calls: a tile of 128 outputs by 64 tokens a block (tile.cuh).
// Floor: multiply-adds over the int8 tensor rate, or weights over the memory's rate where there are few tokens.
#include <algorithm>

#include "cuda/products.h"
#include "cuda/tile.cuh"

namespace strata::cuda {
namespace {

template <Brick B, int Stages, int MinBlocks>
__global__ void __launch_bounds__(256, MinBlocks)
    matmat_kernel(const u8* weights, int rows, int segments, Codes x, float* out, int64_t out_stride,
                  const float* scale, int add) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ int tokens[kTileTokens];
    const int n0 = blockIdx.x * kTileTokens, last_group = (rows + 31) / 32 - 1;
    const int group = min(static_cast<int>(blockIdx.y * 4 + (threadIdx.x >> 6)), last_group);
    const u8* own = weights + static_cast<int64_t>(group) * segments * BrickInfo<B>::bytes;
    grid_sync();
    if (threadIdx.x < kTileTokens) tokens[threadIdx.x] = min(n0 + static_cast<int>(threadIdx.x), x.rows - 1);
    __syncthreads();

    float y[8][4];
    const int steps = min(8, (x.rows - n0 + 7) / 8);
    tile_product<B, Stages>(y, shared, own, x, tokens, segments, steps);

    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int row = blockIdx.y * kTileRows + warp * 16 + (lane >> 2);
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = row + (i >> 1) * 8, token = n0 + j * 8 + 2 * (lane & 3) + (i & 1);
            if (r >= rows || token >= x.rows) continue;
            const float v = scale ? __fmul_rn(y[j][i], scale[0]) : y[j][i];
            float* to = out + static_cast<int64_t>(token) * out_stride + r;
            *to = add ? __fadd_rn(*to, v) : v;
        }
}

}  // namespace

void matmat(Queue& queue, const Codes& x, std::span<const Product> products, bool add) {
    const int segments = div_up(x.width, 256);
    for (const Product& p : products) {
        with_brick(brick_of(p.matrix.type), [&](auto b) {
            const auto* weights = reinterpret_cast<const u8*>(p.matrix.data);
            const dim3 grid(static_cast<unsigned>(div_up(x.rows, kTileTokens)),
                            static_cast<unsigned>(div_up(p.matrix.rows, kTileRows)));
            constexpr int two = Tile<b>::shared(2), one = Tile<b>::shared(1);
            const auto go = [&](auto kernel, int shared) {
                launch(queue, "matmat", kernel, grid, 256, static_cast<size_t>(shared), weights, p.matrix.rows,
                       segments, x, p.out.data, p.out.stride, p.matrix.scales, add ? 1 : 0);
            };
            if (two <= queue.shared_limit)
                go(matmat_kernel < b, 2, b == Brick::x8 ? 1 : 2 >, two);
            else if (one <= queue.shared_limit)
                go(matmat_kernel<b, 1, 1>, one);
            else
                matvec(queue, x, {&p, 1}, add);
        });
    }
}

}  // namespace strata::cuda
