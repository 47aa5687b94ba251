// How long the CPU device's operations take that are not weight products, on the shapes of Qwen3.6-35B-A3B: 16 query
// heads and 2 kv heads of 256, 32 value heads and 16 key heads of 128, width 2,048, 256 experts.
//     ops_speed [scalar | avx2 | avx512] [threads] [part of an operation's name]
// With one thread the times are processor time, so that other programs on the machine do not count.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cpu/cpu_device.h"

namespace {

using namespace strata;

int threads = 1;
std::string wanted;  // part of the names of what is measured

double seconds() {
    timespec now{};
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// The best of several runs, in microseconds: others on the machine only ever slow a run down.
double measure(const std::function<void()>& work) {
    work();
    std::vector<double> times;
    for (double total = 0; times.size() < 5 || (total < 0.5 && times.size() < 2000);) {
        const double start = seconds();
        work();
        times.push_back(seconds() - start);
        total += times.back();
    }
    return *std::min_element(times.begin(), times.end()) * 1e6;
}

struct Memory {
    explicit Memory(CpuDevice& device)
        : base(device.allocate(size_t{1} << 30, "scratch").value()), arena(base, uint64_t{1} << 30) {}
    std::byte* base;
    Arena arena;
};

Rows random_rows(Arena& arena, int rows, int width) {
    static std::minstd_rand random(1);
    const Rows r = arena.rows(rows, width);
    for (int64_t i = 0; i < int64_t{rows} * width; ++i)
        r.data[i] = static_cast<float>(random()) * (4.0f / static_cast<float>(std::minstd_rand::max())) - 2.0f;
    return r;
}

std::string name_of(const std::string& operation, int rows) {
    return std::to_string(rows) + (rows == 1 ? " row, " : " rows, ") + operation;
}

bool is_wanted(const std::string& operation, int rows) {
    return name_of(operation, rows).find(wanted) != std::string::npos;
}

/// Measures and prints one operation; the best in microseconds, 0 where it is not wanted.
double line(const std::string& operation, int rows, const std::function<void()>& run, double work = 0,
            const char* unit = "") {
    if (!is_wanted(operation, rows)) return 0;
    const double us = measure(run);
    std::printf("%-44s %10.1f us %8.2f us/row", name_of(operation, rows).c_str(), us, us / rows);
    if (work > 0) std::printf("  %7.1f %s", work / us * 1e-3, unit);
    std::printf("\n");
    std::fflush(stdout);
    return us;
}

void rows_operations(CpuDevice& device, int rows) {
    Memory memory(device);
    const Rows x = random_rows(memory.arena, rows, 2048), weight = random_rows(memory.arena, 1, 2048);
    const Activations out = memory.arena.activations(rows, 2048);
    line("norm + codes", rows, [&] { device.norm(x, weight.data, 1e-6f, out); });
    const Rows logits = random_rows(memory.arena, rows, 256);
    std::vector<int32_t> experts(size_t(rows) * 8);
    std::vector<float> weights(size_t(rows) * 8);
    line("route 8 of 256", rows, [&] { device.route(logits, {.used = 8}, {rows, 8, experts.data(), weights.data()}); });
}

void attention(CpuDevice& device, int rows, int before, Type type) {
    const std::string name =
        "attend, " + std::string(type_info(type).name) + ", " + std::to_string(before) + " rows before";
    const bool heads_too = type == Type::f16 && before > 0 && is_wanted("heads: norm, rotary, cache", rows);
    if (!is_wanted(name, rows) && !heads_too) return;
    constexpr int kHeads = 16, kKvHeads = 2, kWidth = 256;
    StateLayout layout;
    for (const char* name : {"k", "v"})
        layout.add({.kind = PartSpec::Kind::rows, .name = name, .type = type, .width = kKvHeads * kWidth});
    State state = device.make_state(layout, before + rows).value();
    Memory memory(device);
    const Rows q = random_rows(memory.arena, rows, 2 * kHeads * kWidth),
               k = random_rows(memory.arena, rows, kKvHeads * kWidth),
               v = random_rows(memory.arena, rows, kKvHeads * kWidth), weight = random_rows(memory.arena, 1, kWidth);
    const Activations out = memory.arena.activations(rows, kHeads * kWidth);
    const HeadRows queries{q.data, rows, kHeads, kWidth, q.stride, 2 * kWidth};
    const HeadRows gates{q.data + kWidth, rows, kHeads, kWidth, q.stride, 2 * kWidth};
    RopeSpec rope;
    for (int i = 0; i < 32; ++i) {
        rope.frequency.push_back(1.0 / (i + 1));
        rope.axis.push_back(0);
    }
    const Rows turns = memory.arena.rows(rows, 64);
    const auto call_at = [&](int start, const std::function<void(const Call&)>& work) {
        const std::array<Span, 1> spans{{{&state, 0, rows, start}}};
        std::vector<std::array<int32_t, 3>> positions;
        for (int i = 0; i < rows; ++i) positions.push_back({start + i, start + i, start + i});
        Call call;
        call.rows = rows;
        call.spans = spans;
        call.positions = positions;
        device.begin(call);
        work(call);
    };
    const HeadSpec heads{.query_norm = weight.data, .key_norm = weight.data, .keys = 0, .values = 1};
    const Rows some = random_rows(memory.arena, 1, kKvHeads * kWidth + 512);
    for (int p = 0; p < before; ++p)  // as prepare_heads would, without calls
        for (const PartId part : {0, 1})
            cpu::ops_scalar().store(type, some.data + p % 512, kKvHeads * kWidth,
                                    state.part(part) + uint64_t(p) * layout.parts[0].row_bytes());
    call_at(before, [&](const Call& call) {
        device.rope_table(call, rope, turns);
        const auto prepare = [&] {
            device.prepare_heads(call, heads, turns, queries, as_heads(k, kKvHeads), as_heads(v, kKvHeads));
        };
        prepare();
        if (heads_too) line("heads: norm, rotary, cache", rows, prepare);
        const double seen = before + (rows + 1) / 2.0;
        const double us = line(
            name, rows,
            [&] {
                device.attend(call, {.keys = 0, .values = 1, .kv_heads = kKvHeads, .scale = 1.0f / 16}, queries, gates,
                              out);
            },
            2.0 * kHeads * kWidth * seen * rows, "GMAC/s");
        if (rows == 1 && us > 0)
            std::printf("%-44s %.1f GB/s of the cache\n", "",
                        2.0 * double(layout.parts[0].row_bytes()) * seen / us * 1e-3);
    });
}

void delta_net(CpuDevice& device, int rows, bool window) {
    const std::string name = window ? "delta net, window after a window" : "delta net";
    if (!is_wanted(name, rows)) return;
    constexpr int kKeyHeads = 16, kValueHeads = 32, kWidth = 128, kTaps = 4;
    constexpr int kChannels = (2 * kKeyHeads + kValueHeads) * kWidth;
    StateLayout layout;
    layout.add({.kind = PartSpec::Kind::block,
                .name = "s",
                .bytes = uint64_t{kValueHeads} * kWidth * kWidth * 4,
                .log_bytes = ((kKeyHeads + kValueHeads) * kWidth + 2 * kValueHeads) * 4});
    layout.add({.kind = PartSpec::Kind::block,
                .name = "conv",
                .bytes = (kTaps - 1) * kChannels * 4,
                .log_bytes = kChannels * 4});
    State state = device.make_state(layout, rows).value();
    Memory memory(device);
    const Rows u = random_rows(memory.arena, rows, kChannels),
               z = random_rows(memory.arena, rows, kValueHeads * kWidth),
               alpha = random_rows(memory.arena, rows, kValueHeads),
               beta = random_rows(memory.arena, rows, kValueHeads), conv = random_rows(memory.arena, kChannels, kTaps),
               decay = random_rows(memory.arena, 1, kValueHeads), dt = random_rows(memory.arena, 1, kValueHeads),
               norm = random_rows(memory.arena, 1, kWidth);
    for (int h = 0; h < kValueHeads; ++h) decay.data[h] = -std::abs(decay.data[h]);
    const Activations out = memory.arena.activations(rows, kValueHeads * kWidth);
    const std::array<Span, 1> spans{{{&state, 0, rows, 0, window ? rows : 0, window}}};
    Call call;
    call.rows = rows;
    call.spans = spans;
    device.begin(call);
    const DeltaNetSpec spec{.key_heads = kKeyHeads,
                            .value_heads = kValueHeads,
                            .width = kWidth,
                            .taps = kTaps,
                            .conv = conv.data,
                            .decay = decay.data,
                            .dt = dt.data,
                            .norm = norm.data,
                            .state = 0,
                            .history = 1};
    line(
        name, rows, [&] { device.delta_net(call, spec, u, z, alpha, beta, out); },
        2.0 * 2 * kValueHeads * kWidth * kWidth * rows, "GMAC/s (4 a state value)");
}

}  // namespace

int main(int count, char** arguments) {
    CpuOptions options;
    if (count > 1) options.simd = cpu::simd_by_name(arguments[1]);
    if (count > 2) threads = std::atoi(arguments[2]);
    if (count > 3) wanted = arguments[3];
    options.threads = threads;
    auto device = CpuDevice::create(options);
    if (!device.ok()) {
        std::fprintf(stderr, "%s\n", device.error().message.c_str());
        return 4;
    }
    std::printf("%s\n", device.value()->facts().description.c_str());
    for (const int rows : {1, 512}) {
        rows_operations(*device.value(), rows);
        delta_net(*device.value(), rows, false);
        if (rows == 1) delta_net(*device.value(), 4, true);
        for (const Type type : {Type::f16, Type::q8_0, Type::f32}) attention(*device.value(), rows, 4096 - rows, type);
        attention(*device.value(), rows, rows > 1 ? 0 : 255, Type::f16);
    }
    return 0;
}
