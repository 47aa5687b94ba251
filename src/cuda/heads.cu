// Per-head norms, rotary, and the write of keys and values into the caches. A warp a head of a token.
#include "cuda/heads.h"

namespace strata::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxWidth = 512;

__device__ void store_row(std::byte* row, Type type, int at, const float* head, int width, int lane) {
    if (type == Type::f16) {
        __half* to = reinterpret_cast<__half*>(row) + at;
        for (int i = lane; i < width; i += 32) to[i] = __float2half_rn(head[i]);
    } else if (type == Type::f32) {
        float* to = reinterpret_cast<float*>(row) + at;
        for (int i = lane; i < width; i += 32) to[i] = head[i];
    } else {  // q8_0: blocks of 32, none crosses a head
        for (int b = 0; b < width / 32; ++b) {
            const float v = head[b * 32 + lane];
            const float s = __fdiv_rn(warp_max(fabsf(v)), 127.0f);
            std::byte* block = row + (at / 32 + b) * 34;
            const int q = s > 0 ? __float2int_rn(__fdiv_rn(v, s)) : 0;
            if (lane == 0) *reinterpret_cast<__half*>(block) = __float2half_rn(s);
            reinterpret_cast<int8_t*>(block + 2)[lane] = static_cast<int8_t>(q);
        }
    }
}

__global__ void __launch_bounds__(kWarps * 32)
    prepare_kernel(Step step, PreparedHeads spec, Rows rope, HeadRows q, HeadRows k, HeadRows v) {
    __shared__ float heads[kWarps][kMaxWidth];
    grid_sync();
    const int lane = threadIdx.x & 31, unit = blockIdx.x * kWarps + (threadIdx.x >> 5);
    const int per_row = q.heads + k.heads + v.heads, row = unit / per_row;
    int head = unit % per_row;
    const int rows = q.data ? q.rows : k.rows;
    if (row >= rows) return;
    const int kind = head < q.heads ? 0 : head < q.heads + k.heads ? 1 : 2;
    if (kind > 0) head -= q.heads;
    if (kind > 1) head -= k.heads;
    HeadRows x = q;
    if (kind == 1) x = k;
    if (kind == 2) x = v;
    float* from = x.data + row * x.row_stride + head * x.head_stride;
    float* mine = heads[threadIdx.x >> 5];

    const float* weight = kind == 0 ? spec.query_norm : kind == 1 ? spec.key_norm : nullptr;
    if (weight || (kind == 2 && spec.value_norm)) {
        float sum = 0.0f;
        for (int i = lane; i < x.width; i += 32) sum = __fmaf_rn(from[i], from[i], sum);
        const float mean = __fdiv_rn(warp_sum(sum), static_cast<float>(x.width));
        const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, spec.eps)));
        for (int i = lane; i < x.width; i += 32) {
            const float y = __fmul_rn(from[i], factor);
            mine[i] = weight ? __fmul_rn(y, weight[i]) : y;
        }
    } else {
        for (int i = lane; i < x.width; i += 32) mine[i] = from[i];
    }
    __syncwarp();
    if (kind < 2 && rope.data) {
        const int pairs = rope.width / 2;
        const float* angles = rope.data + row * rope.stride;
        for (int i = lane; i < pairs; i += 32) {
            const float a = mine[i], b = mine[i + pairs], c = angles[i], s = angles[pairs + i];
            mine[i] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
            mine[i + pairs] = __fadd_rn(__fmul_rn(a, s), __fmul_rn(b, c));
        }
        __syncwarp();
    }
    if (kind == 0) {
        for (int i = lane; i < x.width; i += 32) from[i] = mine[i];
        return;
    }
    const CachePart part = kind == 1 ? spec.keys : spec.values;
    if (part.id < 0) return;
    int place = step.cache_row(row);
    if (part.capacity > 0) place %= part.capacity;
    std::byte* cache =
        step.part(step.spans[step.span_of[row]].slot, part.id) + static_cast<int64_t>(place) * part.row_bytes;
    store_row(cache, part.type, head * x.width, mine, x.width, lane);
}

}  // namespace

void prepare_heads(Queue& queue, const Step& step, const PreparedHeads& spec, Rows rope, HeadRows q, HeadRows k,
                   HeadRows v) {
    const int rows = q.data ? q.rows : k.rows;
    const int64_t units = static_cast<int64_t>(rows) * (q.heads + k.heads + v.heads);
    launch(queue, "heads", prepare_kernel, dim3(static_cast<unsigned>(div_up(units, kWarps))), kWarps * 32, 0, step,
           spec, rope, q, k, v);
}

}  // namespace strata::cuda
