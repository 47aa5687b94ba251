// y[r] = W[r] . x for a window of up to eight tokens, on bricks: reads each weight once.
// Floor: bytes of W over the memory's rate. Measured shape: docs/gpu.md.
//
// A block of eight warps takes one, two, four or eight units of rows. A warp takes a unit's segments in turn, keeps
// each segment's chain in registers and leaves it in shared memory; the segments are added in ascending order. A unit
// is 32 rows, lane = row; or, where that would leave multiprocessors without work, 16 rows with two segments side by
// side in the halves of a warp. Weight loads are issued before the wait for the previous kernel.
//
// Where the input is a norm of one or two rows, every block makes the norm and its codes itself (norm.cuh): cheaper
// than a launch of its own. Blocks beyond the quantised matrices' then multiply float matrices of the same input, a
// warp a row in the order of float_product.cu.
#include <algorithm>
#include <array>

#include "cuda/bricks.cuh"
#include "cuda/norm.cuh"
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
    int end_unit[kMaxJobs];  // running count of units
    const float* scale[kMaxJobs];
    int count;

    __host__ void add(const Product& p, int unit_rows) {
        const int i = count++;
        weights[i] = reinterpret_cast<const u8*>(p.matrix.data);
        out[i] = p.out.data;
        out_stride[i] = p.out.stride;
        rows[i] = p.matrix.rows;
        end_unit[i] = (i > 0 ? end_unit[i - 1] : 0) + div_up(p.matrix.rows, unit_rows);
        scale[i] = p.matrix.scales;
    }
    __host__ __device__ int units() const { return count > 0 ? end_unit[count - 1] : 0; }
    /// The job of a unit below units(), and the unit's number in it.
    __device__ int find(int& unit) const {
        int job = 0;
        while (job < count - 1 && unit >= end_unit[job]) ++job;
        if (job > 0) unit -= end_unit[job - 1];
        return job;
    }
};

// ---- float matrices of a normed input
// ----------------------------------------------------------------------------------------------

/// A warp's share of a float32 row, loaded before the wait: inputs 128 i + 4 lane .. + 3.
template <int Pieces>
struct FloatRow {
    float4 w[8 * Pieces];
};
template <int Pieces>
__device__ __forceinline__ void load_float_row(FloatRow<Pieces>& row, const Jobs& jobs, int unit, int width) {
    if (unit >= jobs.units()) return;
    const int job = jobs.find(unit), lane = threadIdx.x & 31;
    const auto* from = reinterpret_cast<const float*>(jobs.weights[job]) + static_cast<int64_t>(unit) * width;
#pragma unroll
    for (int k = 0; k < 8 * Pieces; ++k) {
        const int i = 128 * k + 4 * lane;
        const uint4 v = i < width ? load_weights(from + i) : make_uint4(0, 0, 0, 0);
        row.w[k] = make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
    }
}
template <int Pieces, int Columns>
__device__ __forceinline__ void multiply_float_row(const FloatRow<Pieces>& row, const Jobs& jobs, int unit, int width,
                                                   const float* values, int padded, int first_column, int columns) {
    if (unit >= jobs.units()) return;
    const int job = jobs.find(unit), lane = threadIdx.x & 31;
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
        float chain = 0.0f;
#pragma unroll
        for (int k = 0; k < 8 * Pieces; ++k) {
            const int i = 128 * k + 4 * lane;
            if (i >= width) break;
            const float4 v = *reinterpret_cast<const float4*>(values + c * padded + i);
            chain = __fmaf_rn(row.w[k].x, v.x, chain);
            chain = __fmaf_rn(row.w[k].y, v.y, chain);
            chain = __fmaf_rn(row.w[k].z, v.z, chain);
            chain = __fmaf_rn(row.w[k].w, v.w, chain);
        }
        const float y = warp_sum(chain);
        if (lane == 0 && first_column + c < columns)
            jobs.out[job][(first_column + c) * jobs.out_stride[job] + unit] =
                jobs.scale[job] ? __fmul_rn(y, jobs.scale[job][0]) : y;
    }
}

/// Only float matrices: a block eight rows.
template <int Columns, int Pieces>
__global__ void __launch_bounds__(256) norm_float_kernel(NormInput norm, Jobs floats) {
    __shared__ float buffer[8];
    __shared__ __align__(16) float values[Columns * Pieces * 1024];
    const int unit = blockIdx.x * 8 + (threadIdx.x >> 5), first_column = blockIdx.y * Columns;
    FloatRow<Pieces> row;
    Held<Pieces> weights;
    grid_release();
    load_float_row<Pieces>(row, floats, unit, norm.x.width);
    if (norm.weight) weights.load(norm.weight, norm.x.width);
    grid_wait();
    norm_rows<Pieces, Columns>(norm, weights, first_column, Pieces * 1024, buffer, nullptr, nullptr, nullptr, values,
                               blockIdx.x == 0);
    multiply_float_row<Pieces, Columns>(row, floats, unit, norm.x.width, values, Pieces * 1024, first_column,
                                        norm.x.rows);
}

// ---- quantised matrices
// ------------------------------------------------------------------------------------------------------------

/// How a launch is cut: `unit_warps` warps a unit, 8 / unit_warps units a block.
struct Cut {
    int segments, unit_warps;
};

/// Half: units of 16 rows. Pieces > 0: the input is `norm` and x is where its codes go (or empty).
template <Brick B, int Columns, bool Half, int Pieces>
__global__ void __launch_bounds__(256)
    matvec_kernel(Jobs jobs, Codes x, Cut cut, int add, NormInput norm, Jobs floats, int blocks) {
    extern __shared__ __align__(16) u8 shared[];
    __shared__ float buffer[8];
    constexpr int unit_rows = Half ? 16 : 32;
    const int segments = cut.segments, width = segments * 256, groups = 8 / cut.unit_warps;
    u8* codes = shared;                                                         // [Columns][width]
    float* scales = reinterpret_cast<float*>(shared + Columns * width);         // [Columns][width / 32]
    short2* sums = reinterpret_cast<short2*>(scales + Columns * (width / 32));  // [Columns][width / 32]
    float* chains = reinterpret_cast<float*>(sums + Columns * (width / 32));    // [groups][segments][Columns][rows]
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, first_column = blockIdx.y * Columns;
    const int padded = width;

    Held<Pieces == 0 ? 1 : Pieces> norm_weights;
    if constexpr (Pieces > 0) {
        if (static_cast<int>(blockIdx.x) >= blocks) {
            float* values = reinterpret_cast<float*>(shared);
            const int unit = (static_cast<int>(blockIdx.x) - blocks) * 8 + warp;
            FloatRow<Pieces> row;
            grid_release();
            load_float_row<Pieces>(row, floats, unit, norm.x.width);
            if (norm.weight) norm_weights.load(norm.weight, norm.x.width);
            grid_wait();
            norm_rows<Pieces, Columns>(norm, norm_weights, first_column, padded, buffer, nullptr, nullptr, nullptr,
                                       values, false);
            multiply_float_row<Pieces, Columns>(row, floats, unit, norm.x.width, values, padded, first_column,
                                                norm.x.rows);
            return;
        }
    }

    const int local = warp / cut.unit_warps, part = warp % cut.unit_warps;
    int unit = blockIdx.x * groups + local;
    const bool live = unit < jobs.units();
    const int job = live ? jobs.find(unit) : 0;
    const int brick_row = Half ? (unit & 1) * 16 + (lane & 15) : lane;
    const u8* weights =
        jobs.weights[job] + static_cast<int64_t>(Half ? unit >> 1 : unit) * segments * BrickInfo<B>::bytes;
    // A warp's segments at once: one, or in halves two, of which the second may not be there and repeats the last.
    const int first_segment = Half ? 2 * part + (lane >> 4) : part, step = (Half ? 2 : 1) * cut.unit_warps;
    const auto brick_at = [&](int s) {
        return weights + static_cast<int64_t>(min(s, segments - 1)) * BrickInfo<B>::bytes;
    };

    Fragment<B> fragment;
    grid_release();
    if (live) load_fragment<B>(fragment, brick_at(first_segment), brick_row);
    if constexpr (Pieces > 0)
        if (norm.weight) norm_weights.load(norm.weight, norm.x.width);
    grid_wait();

    // What is added to, early: its latency is not the last thing to wait for.
    const auto output = [&](int i, int& j, int& row, int& token) {
        token = first_column + i / unit_rows % Columns;
        row = blockIdx.x * groups + i / (Columns * unit_rows);
        if (i >= groups * Columns * unit_rows || row >= jobs.units()) return false;
        j = jobs.find(row);
        row = row * unit_rows + i % unit_rows;
        return row < jobs.rows[j] && token < x.rows;
    };
    float before = 0.0f;
    if (add) {
        int j, row, token;
        if (output(threadIdx.x, j, row, token)) before = jobs.out[j][token * jobs.out_stride[j] + row];
    }

    if constexpr (Pieces > 0) {
        norm_rows<Pieces, Columns>(norm, norm_weights, first_column, padded, buffer, codes, scales, sums, nullptr,
                                   blockIdx.x == 0);
    } else {
        // The tokens' codes, zero beyond the matrix's width and the call's rows.
        for (int i = threadIdx.x; i < Columns * (width / 16); i += 256) {
            const int column = i / (width / 16), at = i % (width / 16), row = first_column + column;
            reinterpret_cast<int4*>(codes)[i] =
                row < x.rows && at * 16 < x.width
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
    }

    if (live) {
        const int4* code_rows = reinterpret_cast<const int4*>(codes);
        for (int base = Half ? 2 * part : part; base < segments; base += step) {
            const int s = Half ? base + (lane >> 4) : base, at = min(s, segments - 1);
            if (s != first_segment) load_fragment<B>(fragment, brick_at(s), brick_row);
            float c[Columns];
            segment_dot<B, Columns>(fragment, code_rows + at * 16, width / 16, scales + at * 8, sums + at * 8,
                                    width / 32, c);
            if (s < segments) {
#pragma unroll
                for (int j = 0; j < Columns; ++j)
                    chains[((local * segments + s) * Columns + j) * unit_rows + (lane & (unit_rows - 1))] = c[j];
            }
        }
    }
    __syncthreads();

    for (int i = threadIdx.x; i < groups * Columns * unit_rows; i += 256) {
        int j, row, token;
        if (!output(i, j, row, token)) continue;
        const int l = i / (Columns * unit_rows), column = i / unit_rows % Columns;
        const float* chain = chains + (l * segments * Columns + column) * unit_rows + i % unit_rows;
        float y = chain[0];
        for (int s = 1; s < segments; ++s) y = __fadd_rn(y, chain[s * Columns * unit_rows]);
        if (jobs.scale[j]) y = __fmul_rn(y, jobs.scale[j][0]);
        float* out = jobs.out[j] + token * jobs.out_stride[j] + row;
        if (add) y = __fadd_rn(i < 256 ? before : *out, y);
        *out = y;
    }
}

template <Brick B, int Columns, bool Half, int Pieces>
void run(Queue& queue, const Jobs& jobs, const Codes& x, int segments, bool add, const NormInput& norm,
         const Jobs& floats) {
    Cut cut{segments, 8};
    while (cut.unit_warps > (Half ? div_up(segments, 2) : segments)) cut.unit_warps /= 2;
    const int groups = 8 / cut.unit_warps, width = segments * 256;
    size_t shared = size_t(Columns) * (size_t(width) + size_t(width / 32) * 8) +
                    size_t(groups) * segments * Columns * (Half ? 16 : 32) * 4;
    if (floats.count > 0) shared = std::max(shared, size_t(Columns) * width * sizeof(float));
    const int blocks = div_up(jobs.units(), groups), float_blocks = div_up(floats.units(), 8);
    const dim3 grid(static_cast<unsigned>(blocks + float_blocks), static_cast<unsigned>(div_up(x.rows, Columns)));
    launch(queue, "matvec", matvec_kernel<B, Columns, Half, Pieces>, grid, 256, shared, jobs, x, cut, add ? 1 : 0, norm,
           floats, blocks);
}

/// The first products of one type, as many as a launch takes. Returns how many.
size_t same_type(std::span<const Product> products) {
    size_t n = 1;
    while (n < products.size() && n < kMaxJobs &&
           brick_of(products[n].matrix.type) == brick_of(products[0].matrix.type))
        ++n;
    return n;
}
Jobs jobs_of(std::span<const Product> products, int unit_rows) {
    Jobs jobs{};
    for (const Product& p : products) jobs.add(p, unit_rows);
    return jobs;
}
/// Units of 16 rows where 32 would leave multiprocessors without a block.
bool halves(const Queue& queue, std::span<const Product> products, int segments) {
    int64_t units = 0;
    for (const Product& p : products) units += div_up(p.matrix.rows, 32);
    return units * std::min(segments, 8) < int64_t{queue.multiprocessors} * 8 && segments >= 2;
}

template <Brick B>
void run_columns(Queue& queue, std::span<const Product> products, const Codes& x, int segments, bool add) {
    // As many columns at once as the call has and shared memory takes.
    const auto fits = [&](int columns) {
        return size_t(columns) * segments * (256 + 64 + 8 * 128) <= static_cast<size_t>(queue.shared_limit);
    };
    if (x.rows <= 2 && halves(queue, products, segments)) {
        const Jobs jobs = jobs_of(products, 16);
        if (x.rows == 1 || !fits(2))
            run<B, 1, true, 0>(queue, jobs, x, segments, add, {}, {});
        else
            run<B, 2, true, 0>(queue, jobs, x, segments, add, {}, {});
        return;
    }
    const Jobs jobs = jobs_of(products, 32);
    if (x.rows == 1 || !fits(2))
        run<B, 1, false, 0>(queue, jobs, x, segments, add, {}, {});
    else if (x.rows == 2 || !fits(4))
        run<B, 2, false, 0>(queue, jobs, x, segments, add, {}, {});
    else if (x.rows <= 4 || !fits(8))
        run<B, 4, false, 0>(queue, jobs, x, segments, add, {}, {});
    else
        run<B, 8, false, 0>(queue, jobs, x, segments, add, {}, {});
}

}  // namespace

void matvec(Queue& queue, const Codes& x, std::span<const Product> products, bool add) {
    const int segments = div_up(x.width, 256);
    while (!products.empty()) {
        const auto same = products.first(same_type(products));
        with_brick(brick_of(same[0].matrix.type), [&](auto b) { run_columns<b>(queue, same, x, segments, add); });
        products = products.subspan(same.size());
    }
}

bool norm_products_take(Rows x) {
    return x.rows >= 1 && x.rows <= 2 && x.width <= 2048;
}

void norm_products(Queue& queue, Rows x, const float* weight, float eps, Rows values, const Codes& codes,
                   std::span<const Product> quantised, std::span<const Product> floats) {
    const NormInput norm{x, weight, eps, values, codes};
    // Float32 matrices ride along; what does not fit in a launch reads the norm that the first launch left in memory.
    std::vector<Product> riding, later;
    for (const Product& p : floats)
        (p.matrix.type == Type::f32 && riding.size() < kMaxJobs ? riding : later).push_back(p);
    const Jobs float_jobs = jobs_of(riding, 1);
    if (quantised.empty()) {
        const auto go = [&](auto columns) {
            launch(queue, "norm and float products", norm_float_kernel<columns, 2>,
                   dim3(static_cast<unsigned>(std::max(1, div_up(float_jobs.units(), 8)))), 256, 0, norm, float_jobs);
        };
        if (x.rows == 1)
            go(std::integral_constant<int, 1>{});
        else
            go(std::integral_constant<int, 2>{});
    } else {
        const auto same = quantised.first(same_type(quantised));
        with_brick(brick_of(same[0].matrix.type), [&](auto b) {
            const Jobs jobs = jobs_of(same, 32);
            if (x.rows == 1)
                run<b, 1, false, 2>(queue, jobs, codes, div_up(x.width, 256), false, norm, float_jobs);
            else
                run<b, 2, false, 2>(queue, jobs, codes, div_up(x.width, 256), false, norm, float_jobs);
        });
        if (same.size() < quantised.size()) matvec(queue, codes, quantised.subspan(same.size()), false);
    }
    if (!later.empty()) float_product(queue, values, later, false);
}

}  // namespace strata::cuda
