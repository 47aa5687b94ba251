// Attention over the caches of a call's conversations.
//
// A block is some query rows of one conversation with all query heads that share a kv head: a tile of keys and values
// is decoded once for all of them. Where there are too few blocks for the threads (answers), blocks are cut at chunk
// borders and the chunks' sums are merged afterwards in their order: the same bits.
#include "cpu/ops_attention.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "cpu/ops.h"

namespace strata::cpu {
namespace {

constexpr int kBlockTarget = 256;            // query heads of a block
constexpr int64_t kBlockValues = 256 * 256;  // and their values: sums must stay in the second cache
constexpr int64_t kMaxPartials = 16 << 20;   // floats of chunk sums kept for merging; a longer call is not cut

struct Block {
    const Span* span;
    int first, rows;  // of the call
    int kv_head;
    int64_t from, to;  // cache rows that any of its queries sees
    int64_t first_chunk, chunks;
};

struct Sums {
    float *largest, *sum, *values;
};

struct Attention {
    const OpContext& op;
    const Call& call;
    const AttentionSpec& spec;
    const HeadRows &q, &gate;
    const Activations& out;
    int group;   // query heads of a kv head
    int padded;  // head width in whole lanes

    /// The last cache row + 1 that a row of the call sees, and the first one.
    int64_t sees_to(const Span& span, int row) const {
        if (!spec.own_rows) return span.start;
        const int64_t own = span.start + row - span.first;
        if (spec.pictures_look_ahead)
            for (const PictureSpan& picture : call.pictures)
                if (row >= picture.first && row < picture.first + picture.rows)
                    return span.start + picture.first + picture.rows - span.first;
        return own + 1;
    }
    int64_t sees_from(const Span& span, int row) const {
        const int64_t own = span.start + row - span.first;
        return spec.window > 0 ? std::max<int64_t>(0, own - spec.window + 1) : 0;
    }

    CacheRows cache(const Span& span, PartId id, int kv_head) const {
        const PartSpec& part = span.state->layout().parts[static_cast<size_t>(id)];
        const auto head_bytes = row_bytes(part.type, static_cast<uint64_t>(q.width));
        return {part.type, span.state->part(id) + static_cast<uint64_t>(kv_head) * head_bytes,
                static_cast<int64_t>(part.row_bytes()), static_cast<int64_t>(head_bytes),
                part.kind == PartSpec::Kind::ring ? part.capacity : 0};
    }

    int queries(const Block& block) const { return block.rows * group; }

    /// Query i of a block: row i / group, head i % group of its kv head.
    void pack(const Block& block, float* query, int64_t* from, int64_t* to) const {
        for (int i = 0; i < queries(block); ++i) {
            const int row = block.first + i / group, head = block.kv_head * group + i % group;
            float* packed = query + static_cast<int64_t>(i) * padded;
            std::memcpy(packed, q.data + row * q.row_stride + head * q.head_stride,
                        static_cast<size_t>(q.width) * sizeof(float));
            std::fill(packed + q.width, packed + padded, 0.0f);
            op.kernels.scale(packed, spec.scale, nullptr, q.width);
            from[i] = sees_from(*block.span, row);
            to[i] = sees_to(*block.span, row);
        }
    }

    void finish(const Block& block, int i, const Sums& sums) const {
        const int row = block.first + i / group, head = block.kv_head * group + i % group;
        float* to = row_of(out.values, row) + static_cast<int64_t>(head) * q.width;
        op.kernels.finish_head({sums.largest + i, sums.sum + i, sums.values + static_cast<int64_t>(i) * padded},
                               spec.sinks ? spec.sinks + head : nullptr, q.width, to);
        if (gate) op.kernels.gate(to, gate.data + row * gate.row_stride + head * gate.head_stride, q.width);
    }
};

Sums take_sums(Workspace& workspace, int64_t queries, int padded) {
    const auto n = static_cast<uint64_t>(queries);
    return {workspace.take<float>(n), workspace.take<float>(n),
            workspace.take<float>(n * static_cast<uint64_t>(padded))};
}

}  // namespace

void attend(const OpContext& op, const Call& call, const AttentionSpec& spec, HeadRows q, HeadRows gate,
            const Activations& out) {
    Workspace& workspace = op.workspace;
    workspace.reset();
    const Attention a{
        op, call, spec, q, gate, out, q.heads / spec.kv_heads, static_cast<int>(round_up(q.width, kLaneCount))};
    const int block_rows =
        static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(kBlockTarget, kBlockValues / a.padded) / a.group));

    // Longest first, so that threads end together.
    int64_t blocks = 0;
    for (const Span& span : call.spans) blocks += ceil_div(span.rows, block_rows) * spec.kv_heads;
    auto* list = workspace.take<Block>(static_cast<uint64_t>(blocks));
    int64_t at = 0, chunks = 0;
    for (const Span& span : call.spans)
        for (int end = span.rows; end > 0; end -= block_rows) {
            const int begin = std::max(0, end - block_rows), first = span.first + begin;
            Block block{&span, first, end - begin, 0, a.sees_from(span, first), 0, 0, 0};
            for (int row = first; row < span.first + end; ++row) block.to = std::max(block.to, a.sees_to(span, row));
            block.from = std::min(block.from, block.to);
            block.first_chunk = chunk_of(block.from);
            block.chunks = block.to > block.from ? chunk_of(block.to - 1) - block.first_chunk + 1 : 1;
            for (block.kv_head = 0; block.kv_head < spec.kv_heads; ++block.kv_head) {
                list[at++] = block;
                chunks += block.chunks;
            }
        }

    const int max_queries = block_rows * a.group;
    const int64_t partial_floats = chunks * max_queries * (a.padded + 2);
    const bool cut =
        blocks < 4 * op.pool.threads() && op.pool.threads() > 1 && chunks > blocks && partial_floats <= kMaxPartials;

    // Memory of each thread.
    struct Memory {
        float* query;
        int64_t *from, *to;
        AttentionWork work;
        Sums total;
    };
    auto* memory = workspace.take<Memory>(static_cast<uint64_t>(op.pool.threads()));
    for (int thread = 0; thread < op.pool.threads(); ++thread) {
        const auto n = static_cast<uint64_t>(max_queries), w = static_cast<uint64_t>(a.padded);
        Memory& m = memory[thread];
        m.query = workspace.take<float>(n * w);
        m.from = workspace.take<int64_t>(n);
        m.to = workspace.take<int64_t>(n);
        m.work.keys = workspace.take<float>(w * kTileRows);
        m.work.tile_values = workspace.take<float>(static_cast<uint64_t>(round_up(a.padded, kPanel)) * kTileRows);
        m.work.scores = workspace.take<float>(n * kTileRows);
        const Sums chunk = take_sums(workspace, max_queries, a.padded);
        m.work.largest = chunk.largest;
        m.work.sum = chunk.sum;
        m.work.values = chunk.values;
        m.total = take_sums(workspace, max_queries, a.padded);
    }
    const auto run = [&](const Block& block, int64_t first, int64_t last, const Memory& m, const Sums& result) {
        a.pack(block, m.query, m.from, m.to);
        AttentionBlock kernel;
        kernel.queries = a.queries(block);
        kernel.width = q.width;
        kernel.padded = a.padded;
        kernel.query = m.query;
        kernel.from = m.from;
        kernel.to = m.to;
        kernel.keys = a.cache(*block.span, spec.keys, block.kv_head);
        kernel.cached_values = a.cache(*block.span, spec.values, block.kv_head);
        kernel.first = first;
        kernel.last = last;
        kernel.work = m.work;
        kernel.largest = result.largest;
        kernel.sum = result.sum;
        kernel.values = result.values;
        op.kernels.attend(kernel);
    };

    if (!cut) {
        op.pool.run(static_cast<int>(blocks), [&](int task, int thread) {
            const Block& block = list[task];
            const Memory& m = memory[thread];
            run(block, block.from, block.to, m, m.total);
            for (int i = 0; i < a.queries(block); ++i) a.finish(block, i, m.total);
        });
    } else {
        struct Piece {
            int64_t block, chunk;
        };
        auto* pieces = workspace.take<Piece>(static_cast<uint64_t>(chunks));
        const Sums sums = take_sums(workspace, chunks * max_queries, a.padded);
        const auto part = [&](int64_t piece) {
            return Sums{sums.largest + piece * max_queries, sums.sum + piece * max_queries,
                        sums.values + piece * max_queries * a.padded};
        };
        auto* first_piece = workspace.take<int64_t>(static_cast<uint64_t>(blocks));
        int64_t piece = 0;
        for (int64_t b = 0; b < blocks; ++b) {
            first_piece[b] = piece;
            for (int64_t c = 0; c < list[b].chunks; ++c) pieces[piece++] = {b, list[b].first_chunk + c};
        }
        op.pool.run(static_cast<int>(chunks), [&](int task, int thread) {
            const Block& block = list[pieces[task].block];
            const int64_t chunk = pieces[task].chunk;
            run(block, std::max(block.from, chunk_start(chunk)), std::min(block.to, chunk_start(chunk + 1)),
                memory[thread], part(task));
        });
        op.pool.run(static_cast<int>(blocks), [&](int task, int) {
            const Block& block = list[task];
            const Sums total = part(first_piece[task]);
            for (int i = 0; i < a.queries(block); ++i) {
                const auto of = [&](const Sums& s) {
                    return SoftmaxSums{s.largest + i, s.sum + i, s.values + static_cast<int64_t>(i) * a.padded};
                };
                for (int64_t c = 1; c < block.chunks; ++c)
                    op.kernels.merge(of(total), of(part(first_piece[task] + c)), a.padded);
                a.finish(block, i, total);
            }
        });
    }
    op.for_rows(call.rows, 2 * out.values.width, [&](int row) { op.quantise_row(out, row); });
}

}  // namespace strata::cpu
