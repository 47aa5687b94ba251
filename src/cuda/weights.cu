// Uploads: file rows go through pinned staging to a buffer on the card and are permuted there into bricks. Types
// without a brick of their own are decoded by the host's cores into the exact canonical form first (bricks.cuh, x8).
#include <algorithm>
#include <cstring>
#include <thread>

#include "cuda/bricks.cuh"
#include "cuda/launch.h"
#include "cuda/weights.h"
#include "quant/canonical.h"

namespace strata::cuda {
namespace {

constexpr int kX8Row = BrickInfo<Brick::x8>::file_bytes;  // of a segment of a row

/// Rows [first, first + count) of a file matrix to x8 rows: per segment 256 codes, 8 D, 8 E, 16 s, 16 mu.
void expand_rows(Type type, const std::byte* matrix, uint64_t row_bytes, int cols, int first, int count,
                 std::byte* out) {
    const TypeInfo& info = type_info(type);
    const BlockDecoder decode = block_decoder(type);
    const int segments = div_up(cols, 256), per_block = static_cast<int>(info.block) / 32;
    CanonicalBlock blocks[kMaxCanonicalBlocks];
    for (int r = 0; r < count; ++r) {
        const auto* row = reinterpret_cast<const uint8_t*>(matrix + static_cast<uint64_t>(first + r) * row_bytes);
        std::byte* to = out + static_cast<int64_t>(r) * segments * kX8Row;
        std::memset(to, 0, static_cast<size_t>(segments) * kX8Row);
        for (int block = 0; block < cols / static_cast<int>(info.block); ++block) {
            decode(row + static_cast<uint64_t>(block) * info.bytes, blocks);
            for (int i = 0; i < per_block; ++i) {
                const int at = block * per_block + i;  // block of 32 in the row
                std::byte* segment = to + static_cast<int64_t>(at / 8) * kX8Row;
                const int b = at % 8;
                std::memcpy(segment + 32 * b, blocks[i].q, 32);
                std::memcpy(segment + 256 + 4 * b, &blocks[i].d[0], 4);
                std::memcpy(segment + 288 + 4 * b, &blocks[i].e, 4);
                std::memcpy(segment + 320 + 2 * b, blocks[i].s, 2);
                std::memcpy(segment + 336 + 2 * b, blocks[i].mu, 2);
            }
        }
    }
}

/// f(begin, end) over [0, n) on the host's cores.
template <class F>
void in_parallel(int n, F f) {
    const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 32);
    const int each = div_up(n, threads);
    std::vector<std::thread> running;
    for (int begin = each; begin < n; begin += each) running.emplace_back([=] { f(begin, std::min(n, begin + each)); });
    f(0, std::min(n, each));
    for (std::thread& t : running) t.join();
}

/// Bytes of the file to the card, staged by the host's cores.
Result<void> send(const std::byte* from, uint64_t bytes, std::byte* to, Uploader& uploader) {
    for (uint64_t at = 0; at < bytes; at += Uploader::kPiece) {
        const uint64_t n = std::min(bytes - at, Uploader::kPiece);
        STRATA_TRY_ASSIGN(std::byte * staged, uploader.stage());
        constexpr uint64_t kSlice = 1 << 20;
        in_parallel(static_cast<int>((n + kSlice - 1) / kSlice), [&](int begin, int end) {
            const uint64_t first = begin * kSlice, last = std::min<uint64_t>(n, end * kSlice);
            std::memcpy(staged + first, from + at + first, last - first);
        });
        STRATA_TRY(uploader.send(to + at, n));
    }
    return {};
}

/// All matrices of `weights` through `raw` (kPiece bytes on the card), whole 32-row groups at a time.
Result<void> upload_bricks(const WeightView& weights, Brick brick, int64_t stride, std::byte* data, std::byte* raw,
                           Uploader& uploader, cudaStream_t stream) {
    const int segments = div_up(weights.cols, 256);
    const int64_t group_bytes = int64_t{segments} * brick_bytes(brick);
    const uint64_t row_bytes = strata::row_bytes(weights.type, static_cast<uint64_t>(weights.cols));
    const uint64_t raw_row = brick == Brick::x8 ? static_cast<uint64_t>(segments) * kX8Row : row_bytes;
    if (raw_row * 32 > Uploader::kPiece)
        return device_error("tensor " + weights.name + " has rows too long for an upload");
    const int rows_a_piece = static_cast<int>(Uploader::kPiece / raw_row / 32 * 32);

    // Experts that lie back to back are one tall matrix where their rows are whole groups.
    const bool tall = weights.rows % 32 == 0 && weights.stride == row_bytes * static_cast<uint64_t>(weights.rows);
    const int count = tall ? 1 : weights.count;
    const int64_t rows = tall ? int64_t{weights.rows} * weights.count : weights.rows;
    for (int e = 0; e < count; ++e) {
        const std::byte* from = weights.data + static_cast<uint64_t>(e) * weights.stride;
        for (int64_t first = 0; first < rows; first += rows_a_piece) {
            const int n = static_cast<int>(std::min<int64_t>(rows_a_piece, rows - first));
            const std::byte* piece = from + static_cast<uint64_t>(first) * row_bytes;
            if (brick == Brick::x8) {
                STRATA_TRY_ASSIGN(std::byte * staged, uploader.stage());
                in_parallel(n, [&](int begin, int end) {
                    expand_rows(weights.type, piece, row_bytes, weights.cols, begin, end - begin,
                                staged + static_cast<uint64_t>(begin) * raw_row);
                });
                STRATA_TRY(uploader.send(raw, raw_row * static_cast<uint64_t>(n)));
            } else {
                STRATA_TRY(send(piece, row_bytes * static_cast<uint64_t>(n), raw, uploader));
            }
            // In x8's raw form every segment is whole; the file's last one may be short.
            make_bricks(brick, reinterpret_cast<const u8*>(raw), static_cast<int64_t>(raw_row), n,
                        brick == Brick::x8 ? segments * 256 : weights.cols,
                        reinterpret_cast<u8*>(data) + e * stride + first / 32 * group_bytes, stream);
        }
    }
    return {};
}

template <Brick B>
__global__ void __launch_bounds__(256) expand_kernel(const u8* bricks, int rows, int cols, float* out) {
    const int row = blockIdx.x, segments = (cols + 255) / 256;
    const u8* group = bricks + static_cast<int64_t>(row / 32) * segments * BrickInfo<B>::bytes;
    for (int i = threadIdx.x; i < cols; i += 256)
        out[static_cast<int64_t>(row) * cols + i] =
            brick_weight<B>(group + static_cast<int64_t>(i / 256) * BrickInfo<B>::bytes, row % 32, i % 256);
}

}  // namespace

Result<Matrix> upload_matrix(const WeightView& weights, CardMemory& memory, Uploader& uploader, cudaStream_t stream) {
    const TypeInfo& info = type_info(weights.type);
    if (weights.type == Type::nvfp4)
        return device_error("tensor " + weights.name + ": NVFP4 weights run on the CPU only; use --device cpu");
    Matrix matrix;
    matrix.type = weights.type;
    matrix.rows = weights.rows;
    matrix.cols = weights.cols;
    matrix.count = weights.count;
    const uint64_t row_bytes = strata::row_bytes(weights.type, static_cast<uint64_t>(weights.cols));
    if (weights.scales) {
        const uint64_t bytes = static_cast<uint64_t>(weights.count) * sizeof(float);
        STRATA_TRY_ASSIGN(std::byte * scales, memory.take_small(bytes, weights.name));
        if (const cudaError_t error = cudaMemcpy(scales, weights.scales, bytes, cudaMemcpyHostToDevice);
            error != cudaSuccess)
            return cuda_error(weights.name, error);
        matrix.scales = reinterpret_cast<const float*>(scales);
    }
    const uint64_t matrix_bytes = row_bytes * static_cast<uint64_t>(weights.rows);
    if (!info.quantised) {
        matrix.stride = static_cast<int64_t>(matrix_bytes);
        STRATA_TRY_ASSIGN(std::byte * data,
                          memory.take_small(matrix_bytes * static_cast<uint64_t>(weights.count), weights.name));
        for (int e = 0; e < weights.count; ++e)
            STRATA_TRY(send(weights.data + static_cast<uint64_t>(e) * weights.stride, matrix_bytes,
                            data + static_cast<uint64_t>(e) * matrix_bytes, uploader));
        matrix.data = data;
        return matrix;
    }

    const Brick brick = brick_of(weights.type);
    const int segments = div_up(weights.cols, 256);
    const uint64_t group_bytes = static_cast<uint64_t>(segments) * static_cast<uint64_t>(brick_bytes(brick));
    const auto groups = static_cast<uint64_t>(div_up(weights.rows, 32));
    matrix.stride = static_cast<int64_t>(groups * group_bytes);
    STRATA_TRY_ASSIGN(std::byte * data,
                      memory.take(groups * group_bytes * static_cast<uint64_t>(weights.count), weights.name));
    matrix.data = data;

    STRATA_TRY_ASSIGN(std::byte * raw, memory.take(Uploader::kPiece, weights.name + " (upload)"));
    auto sent = upload_bricks(weights, brick, matrix.stride, data, raw, uploader, stream);
    const cudaError_t error = cudaStreamSynchronize(stream);
    memory.give_back(raw);
    if (!sent) return sent.error();
    if (error != cudaSuccess) return cuda_error(weights.name, error);
    return matrix;
}

void expand_matrix(const Matrix& matrix, float* out, cudaStream_t stream) {
    with_brick(brick_of(matrix.type), [&](auto b) {
        expand_kernel<b>
            <<<matrix.rows, 256, 0, stream>>>(reinterpret_cast<const u8*>(matrix.data), matrix.rows, matrix.cols, out);
    });
}

}  // namespace strata::cuda
