// The experts of a layer in one batch, in up to three stages: the columns of every expert that has several tokens are
// packed; gate and up of 32 rows make 32 values of h and one block of its codes; 32 rows of every expert's down are
// multiplied and added up by rank at once. Nothing but h passes between threads, and stages wait for each other through
// a counter, without a new dispatch.
#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "cpu/products.h"
#include "cpu/products_tasks.h"
#include "quant/math.h"

namespace strata::cpu {

struct Products::ExpertCall {
    /// An expert with the rows of the call that use it: `count` of them, at slots [first, first + count).
    struct Unit {
        const Matrix *gate, *up, *down;
        Gate gate_function;
        int which;
        int first;
        int count;
        const int32_t* rows;  // [count]; null: row i of the call
        Columns x;            // of the call, packed where several rows use codes
        bool packed;
        Columns h;  // of this expert's slots
    };

    const Activations& x;
    const Routing& routing;
    const SharedExpert& shared;
    Rows out;
    bool add;

    const ExpertOutputs* outputs = nullptr;  // where vectors go; null: they are added up

    int rows = 0;
    int slots = 0;          // pairs of row and expert, then the shared expert's rows
    Unit* units = nullptr;  // with at least one row; the shared expert first
    int unit_count = 0;
    int shared_first = -1;       // slot of row 0's shared expert
    int32_t* slot_of = nullptr;  // [rows, used]
    int32_t* row_of = nullptr;   // [pairs], by slot
    int32_t* pair_of = nullptr;  // [pairs], by slot

    decltype(OpKernels::quantise) quantise = nullptr;
    TileScratch* scratch = nullptr;  // [threads]
    float* sums = nullptr;           // [threads][sums_per_thread]
    uint64_t sums_per_thread = 0;

    // `after`: the tile that this thread multiplies after the range, or null.
    void make_hidden(const ProductKernels& kernels, const TileRange& range, const Tile* after, int thread) const;
    void add_experts(const ProductKernels& kernels, const TileRange& range, const Tile* after, int thread) const;
    void add_up(const ProductKernels& kernels, const float* y, int tile) const;
    void hand_out(const float* y, int tile) const;
};

namespace {

using QuantiseFunction = decltype(OpKernels::quantise);

/// Writes a block of h for column c: its codes, interleaved with its group's, and its values where down reads them.
void store_hidden(QuantiseFunction quantise, const Columns& h, int c, int block, const float* values) {
    if (h.values) {
        const auto at = static_cast<int64_t>(h.index ? h.index[c] : c) * h.stride + block * 32;
        std::copy_n(values, 32, const_cast<float*>(h.values) + at);
        return;
    }
    int8_t codes[32];
    int16_t half_sums[2];
    float scale;
    quantise(values, 32, codes, &scale, half_sums);
    const int group = c / kGroupColumns, n = h.group_size(group), place = c % kGroupColumns;
    const int64_t at = static_cast<int64_t>(group) * kGroupColumns * h.width;
    for (int quad = 0; quad < 8; ++quad)
        std::memcpy(h.codes + at + ((block * 8 + quad) * n + place) * 4, codes + 4 * quad, 4);
    h.scales[at / 32 + block * n + place] = scale;
    std::memcpy(h.half_sums + at / 16 + (block * n + place) * 2, half_sums, sizeof half_sums);
}

/// The matrices of one expert alone.
struct SlotMatrices {
    Matrix gate, up, down;
};

SlotMatrices matrices_in_slot(const ExpertSet& set, int expert, const std::byte* slot) {
    const ExpertSlotForm form(set);
    SlotMatrices m{set.gate, set.up, set.down};
    const uint64_t at[3] = {0, form.up, form.down};
    int i = 0;
    for (Matrix* matrix : {&m.gate, &m.up, &m.down}) {
        matrix->data = slot + at[i++];
        matrix->count = 1;
        if (matrix->scales) matrix->scales += expert;
    }
    return m;
}

float shared_weight(const SharedExpert& shared, int row) {
    const Rows& logit = shared.weight_logit;
    return logit ? sigmoid(logit.data[row * logit.stride]) : 1.0f;
}

}  // namespace

void Products::ExpertCall::make_hidden(const ProductKernels& kernels, const TileRange& range, const Tile* after,
                                       int thread) const {
    const Unit& unit = units[range.unit];
    float* gate = sums + static_cast<uint64_t>(thread) * sums_per_thread;
    float* up = gate + unit.count * kTileRows;
    for (int t = range.first; t < range.first + range.count; ++t) {
        const Tile gate_tile{unit.gate, unit.which, t * kTileRows};
        const Tile up_tile{unit.up, unit.which, t * kTileRows};
        const Tile next{unit.gate, unit.which, (t + 1) * kTileRows};
        const bool last = t + 1 == range.first + range.count;
        multiply_tile(kernels, gate_tile, unit.x, &up_tile, scratch[thread], gate);
        multiply_tile(kernels, up_tile, unit.x, last ? after : &next, scratch[thread], up);
        for (int c = 0; c < unit.count; ++c) {
            alignas(64) float h[kTileRows];
            kernels.gated(unit.gate_function, gate + c * kTileRows, up + c * kTileRows, h);
            store_hidden(quantise, unit.h, c, t, h);
        }
    }
}

void Products::ExpertCall::add_experts(const ProductKernels& kernels, const TileRange& range, const Tile* after,
                                       int thread) const {
    float* y = sums + static_cast<uint64_t>(thread) * sums_per_thread;
    for (int t = range.first; t < range.first + range.count; ++t) {
        for (int u = 0; u < unit_count; ++u) {
            const Unit& unit = units[u];
            const Tile tile{unit.down, unit.which, t * kTileRows};
            const bool wraps = u + 1 == unit_count;
            const Unit& following = units[wraps ? 0 : u + 1];
            const Tile next{following.down, following.which, (wraps ? t + 1 : t) * kTileRows};
            const bool last = wraps && t + 1 == range.first + range.count;
            multiply_tile(kernels, tile, unit.h, last ? after : &next, scratch[thread], y + unit.first * kTileRows);
        }
        if (outputs)
            hand_out(y, t);
        else
            add_up(kernels, y, t);
    }
}

/// A tile of every row's sum. y: [slots][32].
void Products::ExpertCall::add_up(const ProductKernels& kernels, const float* y, int tile) const {
    const int width = std::min(kTileRows, out.width - tile * kTileRows);
    for (int row = 0; row < rows; ++row) {
        alignas(64) float sum[kTileRows] = {};
        for (int rank = 0; rank < routing.used; ++rank) {
            const int pair = row * routing.used + rank;
            kernels.add_weighted(routing.weights[pair], y + slot_of[pair] * kTileRows, sum);
        }
        if (shared_first >= 0)
            kernels.add_weighted(shared_weight(shared, row), y + (shared_first + row) * kTileRows, sum);
        float* to = out.data + row * out.stride + tile * kTileRows;
        for (int i = 0; i < width; ++i) to[i] = add ? to[i] + sum[i] : sum[i];
    }
}

/// A tile of every vector.
void Products::ExpertCall::hand_out(const float* y, int tile) const {
    const int width = std::min(kTileRows, out.width - tile * kTileRows);
    const int pairs = shared_first >= 0 ? shared_first : slots;
    for (int slot = 0; slot < slots; ++slot) {
        float* vector = slot < pairs ? outputs->y + static_cast<int64_t>(outputs->vector_of[pair_of[slot]]) * out.width
                                     : outputs->shared_y + static_cast<int64_t>(slot - pairs) * out.width;
        std::copy_n(y + slot * kTileRows, width, vector + tile * kTileRows);
    }
}

void Products::experts(const ExpertSet& set, const Activations& x, const Routing& routing, const SharedExpert& shared,
                       Rows out, bool add) {
    run_experts(set, x, routing, shared, nullptr, out, add);
}

void Products::expert_outputs(const ExpertSet& set, const Activations& x, const Routing& routing,
                              const ExpertOutputs& outputs) {
    const SharedExpert& shared = outputs.shared ? *outputs.shared : SharedExpert{};
    run_experts(set, x, routing, shared, &outputs, {nullptr, routing.rows, set.down.rows, set.down.rows}, false);
}

void Products::sum_experts(const ExpertVectors& vectors, const Routing& routing, const SharedExpert& shared, Rows out,
                           bool add) {
    const auto tiles = static_cast<int>(ceil_div(out.width, kTileRows));
    pool_.run(out.rows, [&](int row, int) {
        for (int t = 0; t < tiles; ++t) {
            const int width = std::min(kTileRows, out.width - t * kTileRows);
            alignas(64) float sum[kTileRows] = {}, y[kTileRows] = {};
            const auto add_vector = [&](float weight, const float* vector) {
                std::copy_n(vector + t * kTileRows, width, y);
                kernels_.add_weighted(weight, y, sum);
            };
            for (int rank = 0; rank < routing.used; ++rank) {
                const int pair = row * routing.used + rank;
                if (vectors.of_pair[pair]) add_vector(routing.weights[pair], vectors.of_pair[pair]);
            }
            if (vectors.shared_y)
                add_vector(shared_weight(shared, row), vectors.shared_y + static_cast<int64_t>(row) * out.width);
            float* to = out.data + row * out.stride + t * kTileRows;
            for (int i = 0; i < width; ++i) to[i] = add ? to[i] + sum[i] : sum[i];
        }
    });
}

ExpertSlotForm::ExpertSlotForm(const ExpertSet& set) {
    const auto bytes_of = [](const Matrix& m) {
        return row_bytes(m.type, static_cast<uint64_t>(m.cols)) * static_cast<uint64_t>(m.rows);
    };
    const auto aligned = [](uint64_t n) { return (n + 63) & ~uint64_t{63}; };
    gate_bytes = bytes_of(set.gate);
    up_bytes = bytes_of(set.up);
    down_bytes = bytes_of(set.down);
    up = aligned(gate_bytes);
    down = aligned(up + up_bytes);
    bytes = aligned(down + down_bytes);
}

void ExpertSlotForm::fill(const ExpertSet& set, int expert, std::byte* slot) const {
    std::memcpy(slot, set.gate.data + set.gate.stride * expert, gate_bytes);
    std::memcpy(slot + up, set.up.data + set.up.stride * expert, up_bytes);
    std::memcpy(slot + down, set.down.data + set.down.stride * expert, down_bytes);
}

/// outputs null: the sums go to `out`; else vectors go there, and of `out` only the shape counts.
void Products::run_experts(const ExpertSet& set, const Activations& x, const Routing& routing,
                           const SharedExpert& shared, const ExpertOutputs* outputs, Rows out, bool add) {
    ExpertCall call{x, routing, shared, out, add};
    call.outputs = outputs;
    call.rows = out.rows;
    call.quantise = quantise_;
    if (call.rows == 0) return;
    const int all_pairs = call.rows * routing.used;
    const auto takes = [&](int pair) {
        return !outputs ||
               (outputs->vector_of[pair] >= 0 && (!outputs->slots || outputs->slots[routing.experts[pair]] != nullptr));
    };
    int pairs = all_pairs;
    if (outputs) {
        pairs = 0;
        for (int p = 0; p < all_pairs; ++p) pairs += takes(p) ? 1 : 0;
    }
    const bool has_shared = static_cast<bool>(shared.gate);
    call.slots = pairs + (has_shared ? call.rows : 0);
    if (call.slots == 0) return;
    const int experts = routing.used > 0 ? set.gate.count : 0;
    // A slot's h in whole blocks: float downs may have inputs that end inside of one.
    const auto inner = static_cast<int>(
        round_up(std::max(routing.used > 0 ? set.gate.rows : 0, has_shared ? shared.gate.rows : 0), kTileRows));
    const int width = x.values ? x.values.width : x.codes.width;
    const auto threads = static_cast<uint64_t>(pool_.threads());

    // Which rows use which expert, and how many tiles that makes.
    int32_t* counts = nullptr;
    int32_t* next_slot = nullptr;
    SlotMatrices* slot_matrices = nullptr;
    Columns packed_x{.width = width}, hidden{.width = inner};
    float* hidden_values = nullptr;
    TaskList first_stage, second_stage;
    TileRange* pack_tasks = nullptr;
    const auto reads_codes = [](const Matrix& m) { return type_info(m.type).quantised; };
    const bool routed_values = routing.used > 0 && !reads_codes(set.down);
    const bool shared_values = has_shared && !reads_codes(shared.down);
    const auto max_units = static_cast<uint64_t>(std::min(experts, pairs) + 1);
    const auto tiles_of = [](int n) { return static_cast<uint64_t>(ceil_div(n, kTileRows)); };
    call.sums_per_thread = static_cast<uint64_t>(std::max(2 * call.rows, call.slots)) * kTileRows;
    reserve([&](Arena& arena) {
        const auto slots = static_cast<uint64_t>(call.slots);
        call.scratch = take<TileScratch>(arena, threads);
        call.sums = take<float>(arena, threads * call.sums_per_thread);
        counts = take<int32_t>(arena, static_cast<uint64_t>(experts) + 1);
        next_slot = take<int32_t>(arena, static_cast<uint64_t>(experts) + 1);
        call.slot_of = take<int32_t>(arena, static_cast<uint64_t>(all_pairs));
        call.row_of = take<int32_t>(arena, static_cast<uint64_t>(pairs));
        call.pair_of = take<int32_t>(arena, static_cast<uint64_t>(pairs));
        if (outputs && outputs->slots) slot_matrices = take<SlotMatrices>(arena, max_units);
        call.units = take<ExpertCall::Unit>(arena, max_units);
        first_stage.ranges = take<TileRange>(arena, max_units * tiles_of(inner));
        second_stage.ranges = take<TileRange>(arena, tiles_of(out.width));
        take_columns(arena, slots, hidden);
        if (routed_values || shared_values) hidden_values = take<float>(arena, slots * static_cast<uint64_t>(inner));
        if (call.rows > 1) {
            take_columns(arena, slots, packed_x);
            pack_tasks = take<TileRange>(arena, slots);
        }
    });
    for (uint64_t thread = 0; thread < threads; ++thread) call.scratch[thread].asked_task = -1;

    const auto add_unit = [&](const Matrix& gate, const Matrix& up, const Matrix& down, Gate function, int which,
                              int first, int count, const int32_t* rows) {
        ExpertCall::Unit& unit = call.units[call.unit_count++];
        unit = {&gate, &up, &down, function, which, first, count, rows, {}, false, {}};
        unit.x = {.count = count, .width = width, .values = x.values.data, .stride = x.values.stride, .index = rows};
        if (reads_codes(gate) || reads_codes(up)) {
            unit.packed = count > 1;
            if (unit.packed) {
                const int64_t at = static_cast<int64_t>(first) * width;
                unit.x.codes = packed_x.codes + at;
                unit.x.scales = packed_x.scales + at / 32;
                unit.x.half_sums = packed_x.half_sums + at / 16;
            } else {
                const int row = rows ? rows[0] : 0;
                unit.x.codes = x.codes.row_values(row);
                unit.x.scales = x.codes.row_scales(row);
                unit.x.half_sums = x.codes.row_half_sums(row);
            }
        }
        const int64_t at = static_cast<int64_t>(first) * inner;
        unit.h = {.count = count, .width = gate.rows};
        unit.h.codes = hidden.codes + at;
        unit.h.scales = hidden.scales + at / 32;
        unit.h.half_sums = hidden.half_sums + at / 16;
        if (!reads_codes(down)) {
            unit.h.values = hidden_values + at;
            unit.h.stride = inner;
        }
    };
    std::fill_n(counts, experts, 0);
    for (int p = 0; p < all_pairs; ++p)
        if (takes(p)) ++counts[routing.experts[p]];
    for (int e = 0, start = 0; e < experts; start += counts[e++]) next_slot[e] = start;
    for (int p = 0; p < all_pairs; ++p) {
        if (!takes(p)) continue;
        const int slot = next_slot[routing.experts[p]]++;
        call.slot_of[p] = slot;
        call.row_of[slot] = p / routing.used;
        call.pair_of[slot] = p;
    }
    if (has_shared) {
        call.shared_first = pairs;
        add_unit(shared.gate, shared.up, shared.down, shared.gate_function, 0, pairs, call.rows, nullptr);
    }
    for (int e = 0, start = 0; e < experts; start += counts[e++]) {
        if (counts[e] == 0) continue;
        if (!slot_matrices) {
            add_unit(set.gate, set.up, set.down, set.gate_function, e, start, counts[e], call.row_of + start);
            continue;
        }
        SlotMatrices& m = slot_matrices[call.unit_count];
        m = matrices_in_slot(set, e, outputs->slots[e]);
        add_unit(m.gate, m.up, m.down, set.gate_function, 0, start, counts[e], call.row_of + start);
    }

    // Tasks.
    const auto size = [](const Matrix& m) { return row_bytes(m.type, static_cast<uint64_t>(m.cols)) * kTileRows; };
    int pack_count = 0;
    uint64_t down_bytes = 0;
    for (int u = 0; u < call.unit_count; ++u) {
        const ExpertCall::Unit& unit = call.units[u];
        first_stage.left += (size(*unit.gate) + size(*unit.up)) * tiles_of(unit.gate->rows);
        down_bytes += size(*unit.down);
        for (int g = 0; unit.packed && g < column_groups(unit.count); ++g) pack_tasks[pack_count++] = {u, g, 1};
    }
    for (int u = 0; u < call.unit_count; ++u) {
        const ExpertCall::Unit& unit = call.units[u];
        first_stage.add(u, static_cast<int>(tiles_of(unit.gate->rows)), size(*unit.gate) + size(*unit.up), unit.count,
                        pool_.threads());
    }
    second_stage.left = down_bytes * tiles_of(out.width);
    second_stage.add(0, static_cast<int>(tiles_of(out.width)), down_bytes, call.slots / call.unit_count,
                     pool_.threads());

    StageGate packed(pack_count), hidden_done(first_stage.count);
    const auto first_tile = [&](int task) {
        const bool first = task < first_stage.count;
        const TileRange& range = first ? first_stage.ranges[task] : second_stage.ranges[task - first_stage.count];
        const ExpertCall::Unit& unit = call.units[range.unit];
        return Tile{first ? unit.gate : unit.down, unit.which, range.first * kTileRows};
    };
    pool_.run_ahead(pack_count + first_stage.count + second_stage.count, [&](int task, int next, int thread) {
        if (task < pack_count) {
            const ExpertCall::Unit& unit = call.units[pack_tasks[task].unit];
            pack_group(x.codes, unit.rows, unit.x, pack_tasks[task].first);
            packed.arrive();
            return;
        }
        task -= pack_count;
        if (call.scratch[thread].asked_task != task) ask_for_tile(first_tile(task));
        const int following = next < 0 ? -1 : next - pack_count;
        const Tile after = following < 0 ? Tile{} : first_tile(following);
        const Tile* its = following < 0 ? nullptr : &after;
        call.scratch[thread].asked_task = following;
        if (task < first_stage.count) {
            packed.wait();
            call.make_hidden(kernels_, first_stage.ranges[task], its, thread);
            hidden_done.arrive();
            return;
        }
        hidden_done.wait();
        call.add_experts(kernels_, second_stage.ranges[task - first_stage.count], its, thread);
    });
}

void Products::feed_forward(const SharedExpert& block, const Activations& x, Rows out, bool add) {
    run_experts({}, x, {}, block, nullptr, out, add);
}

}  // namespace strata::cpu
