// Heads made ready for attention: norms, rotary, cache rows.
#include <cstring>

#include "cpu/ops.h"

namespace strata::cpu {
namespace {

/// Row of the call to the place of its cache row: parts are those of its conversation.
std::byte* cache_row(const Span& span, PartId id, int row) {
    const PartSpec& part = span.state->layout().parts[static_cast<size_t>(id)];
    int64_t slot = span.start + row - span.first;
    if (part.kind == PartSpec::Kind::ring) slot %= part.capacity;
    return span.state->part(id) + slot * static_cast<int64_t>(part.row_bytes());
}

void prepare_row(const OpContext& op, const Span& span, const HeadSpec& spec, const Rows& rope, const HeadRows& q,
                 const HeadRows& k, const HeadRows& v, int row) {
    const OpKernels& kernels = op.kernels;
    const auto head = [row](const HeadRows& heads, int h) {
        return heads.data + row * heads.row_stride + h * heads.head_stride;
    };
    const auto turn = [&](float* x, int width, const float* weight) {
        if (weight) kernels.norm(x, weight, spec.eps, width, x);
        if (rope) kernels.rotate(x, row_of(rope, row), rope.width / 2);
    };
    const auto keep = [&](PartId id, const float* x, int width, int h) {
        const Type type = span.state->layout().parts[static_cast<size_t>(id)].type;
        kernels.store(type, x, width, cache_row(span, id, row) + row_bytes(type, static_cast<uint64_t>(h) * width));
    };
    for (int h = 0; h < q.heads; ++h) turn(head(q, h), q.width, spec.query_norm);
    if (spec.keys < 0) return;
    // Values first: they may be the raw keys' memory.
    for (int h = 0; h < v.heads; ++h) {
        const float* x = head(v, h);
        float normed[kMaxHeadWidth];
        if (spec.value_norm) kernels.norm(x, nullptr, spec.eps, v.width, normed);
        keep(spec.values, spec.value_norm ? normed : x, v.width, h);
    }
    for (int h = 0; h < k.heads; ++h) {
        turn(head(k, h), k.width, spec.key_norm);
        keep(spec.keys, head(k, h), k.width, h);
    }
}

}  // namespace

void prepare_heads(const OpContext& op, const Call& call, const HeadSpec& spec, Rows rope, HeadRows q, HeadRows k,
                   HeadRows v) {
    const int64_t values = static_cast<int64_t>(q.heads) * q.width + 2 * static_cast<int64_t>(k.heads) * k.width;
    for (const Span& span : call.spans)
        op.for_rows(span.rows, 4 * values,
                    [&](int row) { prepare_row(op, span, spec, rope, q, k, v, span.first + row); });
}

}  // namespace strata::cpu
