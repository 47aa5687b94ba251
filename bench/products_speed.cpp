// How fast the CPU device multiplies weights, beside what the machine reads: GB/s of weights for one column, from cache
// and from memory, on one thread and on all; GMAC/s for prompts.
//     products_speed [scalar | avx2 | avx512] [threads] [type or "memory"]
// The machine's rate is a plain read of 256 MiB without prefetches, the best of what was tried. "cache": a matrix of
// 256 KiB a thread again and again; "memory": 256 MiB of one matrix; both of 2,048 inputs. "512 columns" and "16
// columns": a matrix of 512 x 2,048 times so many tokens, as a prompt's dense matrices and its experts have them. The
// best of several runs: others on the machine only ever slow a run down.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "cpu/cpu_device.h"
#include "synth/fill.h"

namespace {

using namespace strata;

constexpr uint64_t kMemory = uint64_t{256} << 20;
constexpr int kWidth = 2048;

int timed_threads = 1;

/// With one thread processor time, so that other programs on the machine count less.
double seconds() {
    timespec now{};
    clock_gettime(timed_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double best_of(double least, const std::function<void()>& work) {
    work();
    double best = 1e9, total = 0;
    for (int i = 0; i < 3 || total < least; ++i) {
        const double start = seconds();
        work();
        const double took = seconds() - start;
        best = std::min(best, took);
        total += took;
    }
    return best;
}

/// Weights of one type, as often as they fit.
void fill(std::byte* to, uint64_t bytes, Type type) {
    const uint64_t rows = std::max<uint64_t>(1, (uint64_t{4} << 20) / row_bytes(type, kWidth));
    const gguf::TensorSpec tensor{.name = "weights", .type = type, .dims = {kWidth, rows}};
    const synth::Filler filler(tensor, {.spread = 0.02f}, 1);
    std::vector<std::byte> some(filler.bytes());
    for (uint64_t i = 0; i < filler.pieces(); ++i) {
        const uint64_t at = i * filler.piece_bytes();
        filler.make(i, std::span(some).subspan(at, std::min(filler.piece_bytes(), some.size() - at)));
    }
    for (uint64_t at = 0; at < bytes; at += some.size())
        std::memcpy(to + at, some.data(), std::min<uint64_t>(some.size(), bytes - at));
}

/// GB/s of a plain read on the pool's threads.
double read_rate(cpu::ThreadPool& pool, const std::byte* memory) {
    constexpr uint64_t kPiece = 1 << 20;
    std::vector<uint64_t> sums(static_cast<size_t>(pool.threads()) * 16);
    const double took = best_of(0.5, [&] {
        pool.run(static_cast<int>(kMemory / kPiece), [&](int task, int thread) {
            const auto* words = reinterpret_cast<const uint64_t*>(memory + static_cast<uint64_t>(task) * kPiece);
            uint64_t lanes[16] = {};
            for (uint64_t i = 0; i < kPiece / 8; i += 16)
                for (uint64_t l = 0; l < 16; ++l) lanes[l] |= words[i + l];
            for (const uint64_t lane : lanes) sums[static_cast<size_t>(thread) * 16] |= lane;
        });
    });
    if (sums[0] == 1) std::printf("\n");
    return static_cast<double>(kMemory) / took * 1e-9;
}

struct Speeds {
    double cache, memory, many, few;
};

Speeds measure(CpuDevice& device, int threads, Type type, std::byte* memory, Arena& arena) {
    const uint64_t row = row_bytes(type, kWidth);
    const auto time = [&](uint64_t bytes, int columns, double least) {
        const auto rows = static_cast<int>(bytes / row / 32 * 32);
        const Matrix matrix{type, rows, kWidth, 1, 0, memory, nullptr};
        Arena::Scope scope(arena);
        const Activations x = arena.activations(columns, kWidth);
        std::minstd_rand random(1);
        for (int64_t i = 0; i < int64_t{columns} * x.values.stride; ++i)
            x.values.data[i] = static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) - 0.5f;
        device.quantise(x);
        const Product product{matrix, arena.rows(columns, rows)};
        const double took = best_of(least, [&] { device.matmul(x, {&product, 1}); });
        return std::pair{static_cast<double>(row) * rows / took * 1e-9,
                         static_cast<double>(rows) * kWidth * columns / took * 1e-9};
    };
    Speeds s{};
    s.cache = time(static_cast<uint64_t>(threads) << 18, 1, 0.1).first;
    s.memory = time(kMemory, 1, 0.6).first;
    s.many = time(512 * row, 512, 0.1).second;
    s.few = time(512 * row, 16, 0.1).second;
    return s;
}

}  // namespace

int main(int argc, char** argv) {
    const auto simd = argc > 1 ? cpu::simd_by_name(argv[1]) : std::nullopt;
    if (argc > 1 && !simd) {
        std::fprintf(stderr, "usage: products_speed [scalar | avx2 | avx512] [threads] [type | memory]\n");
        return 2;
    }
    const std::string wanted = argc > 3 ? argv[3] : "";
    const int all = argc > 2 ? std::max(1, std::atoi(argv[2])) : 0;
    auto* memory =
        static_cast<std::byte*>(mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(static_cast<void*>(memory), 1, kMemory);
    std::vector<int> counts{1};
    {
        const auto device = CpuDevice::create({.threads = all, .simd = simd});
        if (!device) {
            std::fprintf(stderr, "products_speed: %s\n", device.error().message.c_str());
            return 1;
        }
        if ((*device)->facts().threads > 1) counts.push_back((*device)->facts().threads);
    }
    for (const int threads : counts) {
        timed_threads = threads;
        cpu::ThreadPool pool(threads);
        std::printf("%d thread%s: memory %.1f GB/s\n", threads, threads > 1 ? "s" : "", read_rate(pool, memory));
    }
    if (wanted == "memory") return 0;

    std::printf("%-8s", "type");
    for (const int threads : counts)
        std::printf("  |%2d thread%s  cache   memory GB/s   512 columns  16 columns GMAC/s", threads,
                    threads > 1 ? "s:" : ": ");
    std::printf("\n");
    for (uint32_t code = 0; code < cpu::kTypes; ++code) {
        const TypeInfo* info = find_type(code);
        if (!info || !info->quantised || (!wanted.empty() && wanted != info->name)) continue;
        fill(memory, kMemory, info->type);
        std::printf("%-8s", std::string(info->name).c_str());
        for (const int threads : counts) {
            timed_threads = threads;
            const auto device = CpuDevice::create({.threads = threads, .simd = simd}).value();
            std::byte* scratch = device->allocate(uint64_t{1} << 30, "scratch").value();
            Arena arena(scratch, uint64_t{1} << 30);
            const Speeds s = measure(*device, threads, info->type, memory, arena);
            std::printf("  | %17.1f %8.1f %18.0f %11.0f       ", s.cache, s.memory, s.many, s.few);
            std::fflush(stdout);
            device->release(scratch);
        }
        std::printf("\n");
    }
}
