// What the machine reads of a model file where only reading counts: the floor of a written token.
//     token_read MODEL.gguf [threads]
// Reads the weights that a token needs, in their order in the file: of tensors of experts, random ones, others for
// every token; not the embedding. A plain loop without prefetches over the same mapping that the engine has, in pieces
// that threads claim. Prints GB/s of all tensors, of the dense ones and of experts alone,
// over 60 tokens and of the fastest one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "cpu/thread_pool.h"
#include "gguf/file.h"

namespace {

using namespace strata;
using Piece = std::span<const std::byte>;

uint64_t read_piece(Piece piece) {
    const auto* words = reinterpret_cast<const uint64_t*>(piece.data());
    uint64_t lanes[16] = {};
    for (size_t i = 0; i + 16 <= piece.size() / 8; i += 16)
        for (size_t l = 0; l < 16; ++l) lanes[l] |= words[i + l];
    uint64_t all = 0;
    for (const uint64_t lane : lanes) all |= lane;
    return all;
}

struct Weights {
    Piece bytes;
    uint64_t experts;  // 1: dense
};

/// The pieces of one token. Which: 0 all, 1 dense, 2 experts.
std::vector<Piece> pieces_of_token(const std::vector<Weights>& weights, uint64_t used, int which,
                                   std::minstd_rand& random) {
    constexpr size_t kPiece = size_t{256} << 10;
    std::vector<Piece> pieces;
    const auto add = [&](Piece range) {
        for (size_t at = 0; at < range.size(); at += kPiece)
            pieces.push_back(range.subspan(at, std::min(kPiece, range.size() - at)));
    };
    for (const Weights& w : weights) {
        if (w.experts == 1 && which != 2) add(w.bytes);
        if (w.experts == 1 || which == 1) continue;
        const size_t one = w.bytes.size() / w.experts;
        for (uint64_t i = 0; i < used; ++i) add(w.bytes.subspan(random() % w.experts * one, one));
    }
    return pieces;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: token_read MODEL.gguf [threads]\n");
        return 2;
    }
    const auto file = gguf::File::open(argv[1]);
    if (!file) {
        std::fprintf(stderr, "token_read: %s\n", file.error().message.c_str());
        return 1;
    }
    cpu::ThreadPool pool(argc > 2 ? std::max(1, std::atoi(argv[2])) : 1);
    std::vector<Weights> weights;
    for (const gguf::TensorInfo& tensor : file->tensors()) {
        const std::string_view name = tensor.name;
        if (name.starts_with("token_embd")) continue;
        weights.push_back({{tensor.data, tensor.bytes}, name.find("_exps.") == name.npos ? 1 : tensor.dims[2]});
        gguf::prefer_large_pages(weights.back().bytes);
        gguf::touch(weights.back().bytes);
    }
    const auto architecture = file->get_string("general.architecture");
    const auto used = architecture ? file->get_int(std::string(*architecture) + ".expert_used_count", 0, 1024)
                                   : Result<int64_t>(int64_t{0});
    std::minstd_rand random(1);
    for (const int which : {0, 1, 2}) {
        double best = 0, total_bytes = 0, total_time = 0;
        uint64_t seen = 0;
        for (int token = 0; token < 60; ++token) {
            const std::vector<Piece> pieces =
                pieces_of_token(weights, used ? static_cast<uint64_t>(*used) : 0, which, random);
            std::vector<uint64_t> sums(static_cast<size_t>(pool.threads()) * 8);
            uint64_t bytes = 0;
            for (const Piece& piece : pieces) bytes += piece.size();
            const auto start = std::chrono::steady_clock::now();
            pool.run(static_cast<int>(pieces.size()), [&](int task, int thread) {
                sums[static_cast<size_t>(thread) * 8] |= read_piece(pieces[static_cast<size_t>(task)]);
            });
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            for (const uint64_t sum : sums) seen |= sum;
            best = std::max(best, static_cast<double>(bytes) / took.count());
            total_bytes += static_cast<double>(bytes);
            total_time += took.count();
        }
        constexpr const char* kNames[] = {"a token", "dense weights", "experts"};
        std::printf("%-14s %.1f GB/s, the fastest %.1f%s\n", kNames[which], total_bytes / total_time * 1e-9,
                    best * 1e-9, seen == 0 ? " (all zero)" : "");
    }
}
