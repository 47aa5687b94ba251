// Per-head norms, rotary, and the write of keys and values into the caches. A warp a head of a token.
#include "cuda/heads.cuh"

namespace strata::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxWidth = 512;

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
    prepare_head(from, x.width, weight, weight || (kind == 2 && spec.value_norm), spec.eps,
                 kind < 2 && rope.data ? rope.data + row * rope.stride : nullptr, rope.width / 2, mine, lane);
    if (kind == 0) {
        for (int i = lane; i < x.width; i += 32) from[i] = mine[i];
        return;
    }
    const CachePart part = kind == 1 ? spec.keys : spec.values;
    if (part.id < 0) return;
    store_row(cache_place(step, part, step.spans[step.span_of[row]].slot, step.cache_row(row)), part.type,
              head * x.width, mine, x.width, lane);
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
