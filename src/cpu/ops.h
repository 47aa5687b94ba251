// The operations of the CPU device that are not weight products, as free functions: they split a call's work over
// threads and hand rows to the kernels of the chosen instruction set. device.h says what each operation means.
#pragma once

#include "cpu/ops_kernels.h"
#include "cpu/thread_pool.h"
#include "cpu/workspace.h"
#include "device/device.h"

namespace strata::cpu {

/// What every operation works with.
struct OpContext {
    ThreadPool& pool;
    const OpKernels& kernels;
    Workspace& workspace;

    /// f(row) for all rows, on all threads where rows * values is worth waking them.
    template <class F>
    void for_rows(int rows, int64_t values, F&& f) const {
        constexpr int64_t kWorthwhile = 1 << 15;
        if (rows < 2 || rows * values < kWorthwhile || pool.threads() == 1) {
            for (int row = 0; row < rows; ++row) f(row);
            return;
        }
        const int tasks = std::min(rows, 4 * pool.threads());
        pool.run(tasks, [&](int task, int) {
            const auto bound = [&](int t) { return static_cast<int>(static_cast<int64_t>(rows) * t / tasks); };
            for (int row = bound(task); row < bound(task + 1); ++row) f(row);
        });
    }

    /// Codes of one row of x, where x has codes.
    void quantise_row(const Activations& x, int row) const;
};

inline float* row_of(const Rows& rows, int row) {
    return rows.data + row * rows.stride;
}

void embed(const OpContext& op, const Call& call, const Matrix& table, float scale, Rows out);
void rope_table(const OpContext& op, const Call& call, const RopeSpec& rope, Rows out);
void norm(const OpContext& op, Rows x, const float* weight, float eps, const Activations& out);
void add_norm(const OpContext& op, Rows residual, Rows x, const float* weight, float eps);
void quantise(const OpContext& op, const Activations& x);
void add(const OpContext& op, Rows to, Rows from);
void scale(const OpContext& op, Rows x, float factor, const float* weight);
void soft_cap(const OpContext& op, Rows x, float cap);
void gather(const OpContext& op, Rows in, std::span<const int32_t> which, Rows out);
void route(const OpContext& op, Rows logits, const RouteSpec& spec, const Routing& out);

void prepare_heads(const OpContext& op, const Call& call, const HeadSpec& spec, Rows rope, HeadRows q, HeadRows k,
                   HeadRows v);
void attend(const OpContext& op, const Call& call, const AttentionSpec& spec, HeadRows q, HeadRows gate,
            const Activations& out);

/// conv_by_tap: spec.conv as [taps, channels].
void delta_net(const OpContext& op, const Call& call, const DeltaNetSpec& spec, const float* conv_by_tap, Rows u,
               Rows z, Rows alpha, Rows beta, const Activations& out);
void short_conv(const OpContext& op, const Call& call, const ShortConvSpec& spec, const float* conv_by_tap, Rows bcx,
                const Activations& out);

}  // namespace strata::cpu
