// Operations on rows alone: embedding, rotary table, norms, codes, elementwise work, gather, routing.
#include <cmath>
#include <cstring>

#include "cpu/ops.h"
#include "quant/dequantise.h"

namespace strata::cpu {

void OpContext::quantise_row(const Activations& x, int row) const {
    const QuantisedRows& codes = x.codes;
    if (!codes.values) return;
    const int64_t width = codes.width;
    kernels.quantise(row_of(x.values, row), codes.width, codes.values + row * width, codes.scales + row * (width / 32),
                     codes.half_sums + row * (width / 16));
}

void embed(const OpContext& op, const Call& call, const Matrix& table, float scale, Rows out) {
    const float* pictures = call.picture_rows;
    op.for_rows(call.rows, 4 * out.width, [&](int row) {
        float* to = row_of(out, row);
        int64_t before = 0;  // rows of earlier pictures
        for (const PictureSpan& picture : call.pictures) {
            if (row >= picture.first && row < picture.first + picture.rows) {
                std::memcpy(to, pictures + (before + row - picture.first) * out.width,
                            static_cast<size_t>(out.width) * sizeof(float));
                return;
            }
            before += picture.rows;
        }
        const auto token = static_cast<uint64_t>(call.tokens[static_cast<size_t>(row)]);
        dequantise_row(table.type, table.data + token * row_bytes(table.type, static_cast<uint64_t>(table.cols)),
                       table.cols, to);
        if (table.scales) op.kernels.scale(to, table.scales[0], nullptr, out.width);
        if (scale != 1.0f) op.kernels.scale(to, scale, nullptr, out.width);
    });
}

void rope_table(const OpContext& op, const Call& call, const RopeSpec& rope, Rows out) {
    const size_t pairs = rope.frequency.size();
    op.for_rows(call.rows, static_cast<int64_t>(pairs) * 64, [&](int row) {
        float* to = row_of(out, row);
        const std::array<int32_t, 3>& position = call.positions[static_cast<size_t>(row)];
        for (size_t i = 0; i < pairs; ++i) {
            const double angle = static_cast<double>(position[rope.axis[i]]) * rope.frequency[i];
            to[i] = static_cast<float>(std::cos(angle));
            to[pairs + i] = static_cast<float>(std::sin(angle));
        }
    });
}

void norm(const OpContext& op, Rows x, const float* weight, float eps, const Activations& out) {
    op.for_rows(x.rows, 4 * x.width, [&](int row) {
        op.kernels.norm(row_of(x, row), weight, eps, x.width, row_of(out.values, row));
        op.quantise_row(out, row);
    });
}

void add_norm(const OpContext& op, Rows residual, Rows x, const float* weight, float eps) {
    op.for_rows(x.rows, 2 * x.width,
                [&](int row) { op.kernels.add_norm(row_of(residual, row), row_of(x, row), weight, eps, x.width); });
}

void quantise(const OpContext& op, const Activations& x) {
    op.for_rows(x.values.rows, 2 * x.values.width, [&](int row) { op.quantise_row(x, row); });
}

void add(const OpContext& op, Rows to, Rows from) {
    op.for_rows(to.rows, to.width, [&](int row) { op.kernels.add(row_of(to, row), row_of(from, row), to.width); });
}

void scale(const OpContext& op, Rows x, float factor, const float* weight) {
    op.for_rows(x.rows, x.width, [&](int row) { op.kernels.scale(row_of(x, row), factor, weight, x.width); });
}

void soft_cap(const OpContext& op, Rows x, float cap) {
    op.for_rows(x.rows, 8 * x.width, [&](int row) { op.kernels.soft_cap(row_of(x, row), cap, x.width); });
}

void gather(const OpContext& op, Rows in, std::span<const int32_t> which, Rows out) {
    op.for_rows(static_cast<int>(which.size()), in.width, [&](int row) {
        std::memcpy(row_of(out, row), row_of(in, which[static_cast<size_t>(row)]),
                    static_cast<size_t>(in.width) * sizeof(float));
    });
}

void route(const OpContext& op, Rows logits, const RouteSpec& spec, const Routing& out) {
    op.workspace.reset();
    const auto width = static_cast<uint64_t>(logits.width);
    auto* scores = op.workspace.take<float>(static_cast<uint64_t>(logits.rows) * 3 * width);
    op.for_rows(logits.rows, 16 * logits.width, [&](int row) {
        const int64_t at = static_cast<int64_t>(row) * spec.used;
        op.kernels.route(row_of(logits, row), logits.width, spec, scores + static_cast<uint64_t>(row) * 3 * width,
                         out.experts + at, out.weights + at);
    });
}

}  // namespace strata::cpu
