#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "synth/synth.h"

namespace strata::synth {
namespace {

/// What the threads share: the next piece to make, how much is done, the first error.
struct Work {
    std::atomic<uint64_t> next = 0;
    std::atomic<uint64_t> done = 0;
    std::atomic<bool> stop = false;
    std::mutex mutex;
    std::condition_variable finished;
    int running = 0;
    std::optional<Error> error;
};

}  // namespace

Result<void> write(const Plan& plan, const std::filesystem::path& path, bool force, const Progress& progress,
                   int threads) {
    STRATA_TRY_ASSIGN(gguf::Layout layout, gguf::lay_out(plan.contents, path));
    STRATA_TRY_ASSIGN(gguf::Output output, gguf::Output::create(std::move(layout), {.force = force}));

    // Pieces are numbered through all tensors in file order, so the disk sees nearly sequential writes.
    std::vector<Filler> fillers;
    std::vector<uint64_t> first_piece;
    uint64_t pieces = 0, total = 0;
    for (size_t i = 0; i < plan.fills.size(); ++i) {
        fillers.emplace_back(plan.contents.tensors[i], plan.fills[i], plan.options.seed);
        first_piece.push_back(pieces);
        pieces += fillers.back().pieces();
        total += fillers.back().bytes();
    }

    // Asked once before anything is written, so that who wants to stop need not be faster than the disk.
    const Error stopped{ErrorKind::failed, path.string() + ": stopped; the partial file was removed", "cancelled"};
    if (progress && !progress(0, total)) return stopped;

    Work work;
    const auto run = [&] {
        std::vector<std::byte> buffer;
        std::optional<Error> error;
        while (!work.stop) {
            const uint64_t piece = work.next++;
            if (piece >= pieces) break;
            const auto tensor = static_cast<size_t>(std::upper_bound(first_piece.begin(), first_piece.end(), piece) -
                                                    first_piece.begin() - 1);
            const Filler& filler = fillers[tensor];
            const uint64_t at = (piece - first_piece[tensor]) * filler.piece_bytes();
            buffer.resize(std::min(filler.piece_bytes(), filler.bytes() - at));
            filler.make(piece - first_piece[tensor], buffer);
            const auto written = output.write(tensor, at, buffer);
            if (!written.ok()) {
                error = written.error();
                break;
            }
            work.done += buffer.size();
        }
        const std::lock_guard lock(work.mutex);
        if (error) {
            work.stop = true;
            if (!work.error) work.error = std::move(error);
        }
        --work.running;
        work.finished.notify_all();
    };

    const int count = threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    work.running = count;
    std::vector<std::thread> pool;
    for (int i = 0; i < count; ++i) pool.emplace_back(run);
    bool cancelled = false;
    {
        std::unique_lock lock(work.mutex);
        while (!work.finished.wait_for(lock, std::chrono::milliseconds(200), [&] { return work.running == 0; })) {
            if (!progress || work.stop) continue;
            lock.unlock();
            if (!progress(work.done, total)) work.stop = cancelled = true;
            lock.lock();
        }
    }
    for (std::thread& thread : pool) thread.join();
    if (work.error) return *std::move(work.error);
    if (cancelled || (progress && !progress(total, total))) return stopped;
    return output.finish();
}

}  // namespace strata::synth
