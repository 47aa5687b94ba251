// y[r] = W[r] . x for a window of up to eight tokens, on bricks: reads each weight once.
// Floor: bytes of W over the memory's rate. Measured shape: docs/gpu.md.
//
// A block of eight warps takes one, two, four or eight groups of 32 rows; a warp takes a group's segments in turn with
// its lanes as rows, keeps each segment's chain in registers and leaves it in shared memory; the segments are added in
// ascending order. Weight loads are issued before the wait for the previous kernel.
#include <algorithm>
#include <array>

#include "cuda/bricks.cuh"
#include "cuda/products.h"

namespace strata::cuda {
namespace {

constexpr int kMaxJobs = 4;

/// Matrices of one type and width that share an input.
struct Jobs {
    const u8* weights[kMaxJobs];
    float* out[kMaxJobs];
    int64_t out_stride[kMaxJobs];
    int rows[kMaxJobs];
    int end_group[kMaxJobs];  // running count of 32-row groups
    const float* scale[kMaxJobs];
    int count;
};

template <Brick B, int Columns>
__global__ void __launch_bounds__(256) matvec_kernel(Jobs jobs, Codes x, int segments, int segment_warps, int add) {
    extern __shared__ __align__(16) u8 shared[];
    const int width = segments * 256, groups = 8 / segment_warps;
    int4* codes = reinterpret_cast<int4*>(shared);                              // [Columns][width / 16]
    float* scales = reinterpret_cast<float*>(shared + Columns * width);         // [Columns][width / 32]
    short2* sums = reinterpret_cast<short2*>(scales + Columns * (width / 32));  // [Columns][width / 32]
    float* chains = reinterpret_cast<float*>(sums + Columns * (width / 32));    // [groups][segments][Columns][32]
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int local = warp / segment_warps, first_segment = warp % segment_warps;
    const int first_column = blockIdx.y * Columns;

    int group = blockIdx.x * groups + local, job = 0;
    while (job < jobs.count - 1 && group >= jobs.end_group[job]) ++job;
    const bool live = group < jobs.end_group[jobs.count - 1];
    if (job > 0) group -= jobs.end_group[job - 1];
    const u8* weights = jobs.weights[job] + static_cast<int64_t>(group) * segments * BrickInfo<B>::bytes;

    Fragment<B> fragment;
    grid_release();
    if (live && first_segment < segments)
        load_fragment<B>(fragment, weights + static_cast<int64_t>(first_segment) * BrickInfo<B>::bytes, lane);
    grid_wait();

    // The tokens' codes, zero beyond the matrix's width and the call's rows.
    for (int i = threadIdx.x; i < Columns * (width / 16); i += 256) {
        const int column = i / (width / 16), at = i % (width / 16), row = first_column + column;
        codes[i] = row < x.rows && at * 16 < x.width
                       ? *reinterpret_cast<const int4*>(x.values + static_cast<int64_t>(row) * x.width + at * 16)
                       : make_int4(0, 0, 0, 0);
    }
    for (int i = threadIdx.x; i < Columns * (width / 32); i += 256) {
        const int column = i / (width / 32), block = i % (width / 32), row = first_column + column;
        const bool inside = row < x.rows && block * 32 < x.width;
        scales[i] = inside ? x.scales[static_cast<int64_t>(block) * x.rows + row] : 0.0f;
        sums[i] = inside ? x.half_sums[static_cast<int64_t>(block) * x.rows + row] : make_short2(0, 0);
    }
    __syncthreads();

    if (live) {
        for (int s = first_segment; s < segments; s += segment_warps) {
            if (s != first_segment)
                load_fragment<B>(fragment, weights + static_cast<int64_t>(s) * BrickInfo<B>::bytes, lane);
            float c[Columns];
            segment_dot<B, Columns>(fragment, codes + s * 16, width / 16, scales + s * 8, sums + s * 8, width / 32, c);
#pragma unroll
            for (int j = 0; j < Columns; ++j) chains[((local * segments + s) * Columns + j) * 32 + lane] = c[j];
        }
    }
    __syncthreads();

    for (int i = threadIdx.x; i < groups * Columns * 32; i += 256) {
        const int l = i / (Columns * 32), column = i / 32 % Columns, r = i & 31, token = first_column + column;
        int g = blockIdx.x * groups + l, j = 0;
        while (j < jobs.count - 1 && g >= jobs.end_group[j]) ++j;
        if (g >= jobs.end_group[jobs.count - 1] || token >= x.rows) continue;
        if (j > 0) g -= jobs.end_group[j - 1];
        const int row = g * 32 + r;
        if (row >= jobs.rows[j]) continue;
        const float* chain = chains + (l * segments * Columns + column) * 32 + r;
        float y = chain[0];
        for (int s = 1; s < segments; ++s) y = __fadd_rn(y, chain[s * Columns * 32]);
        if (jobs.scale[j]) y = __fmul_rn(y, jobs.scale[j][0]);
        float* out = jobs.out[j] + token * jobs.out_stride[j] + row;
        *out = add ? __fadd_rn(*out, y) : y;
    }
}

template <Brick B, int Columns>
void run(Queue& queue, const Jobs& jobs, const Codes& x, int segments, bool add) {
    int segment_warps = 8;
    while (segment_warps > segments) segment_warps /= 2;
    const int groups = 8 / segment_warps;
    const int width = segments * 256;
    const size_t shared =
        size_t(Columns) * (size_t(width) + size_t(width / 32) * 8) + size_t(groups) * segments * Columns * 32 * 4;
    const dim3 grid(static_cast<unsigned>(div_up(jobs.end_group[jobs.count - 1], groups)),
                    static_cast<unsigned>(div_up(x.rows, Columns)));
    launch(queue, "matvec", matvec_kernel<B, Columns>, grid, 256, shared, jobs, x, segments, segment_warps,
           add ? 1 : 0);
}

template <Brick B>
void run_columns(Queue& queue, const Jobs& jobs, const Codes& x, int segments, bool add) {
    // As many columns at once as the call has and shared memory takes.
    const auto fits = [&](int columns) {
        return size_t(columns) * segments * (256 + 64 + 8 * 128) <= static_cast<size_t>(queue.shared_limit);
    };
    if (x.rows == 1 || !fits(2))
        run<B, 1>(queue, jobs, x, segments, add);
    else if (x.rows == 2 || !fits(4))
        run<B, 2>(queue, jobs, x, segments, add);
    else if (x.rows <= 4 || !fits(8))
        run<B, 4>(queue, jobs, x, segments, add);
    else
        run<B, 8>(queue, jobs, x, segments, add);
}

}  // namespace

void matvec(Queue& queue, const Codes& x, std::span<const Product> products, bool add) {
    const int segments = div_up(x.width, 256);
    for (size_t first = 0; first < products.size();) {
        const Brick brick = brick_of(products[first].matrix.type);
        Jobs jobs{};
        size_t last = first;
        int groups = 0;
        for (; last < products.size() && jobs.count < kMaxJobs && brick_of(products[last].matrix.type) == brick;
             ++last) {
            const Product& p = products[last];
            const int i = jobs.count++;
            groups += div_up(p.matrix.rows, 32);
            jobs.weights[i] = reinterpret_cast<const u8*>(p.matrix.data);
            jobs.out[i] = p.out.data;
            jobs.out_stride[i] = p.out.stride;
            jobs.rows[i] = p.matrix.rows;
            jobs.end_group[i] = groups;
            jobs.scale[i] = p.matrix.scales;
        }
        with_brick(brick, [&](auto b) { run_columns<b>(queue, jobs, x, segments, add); });
        first = last;
    }
}

}  // namespace strata::cuda
