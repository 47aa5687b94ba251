#include "cpu/thread_pool.h"

#include <atomic>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace strata::cpu {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
    for (const int threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        ASSERT_EQ(pool.threads(), threads);
        for (const int tasks : {0, 1, 2, 3, 7, 64, 1000}) {
            std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
            std::atomic<bool> named_wrongly = false;
            pool.run(tasks, [&](int task, int thread) {
                runs[static_cast<size_t>(task)].fetch_add(1);
                if (thread < 0 || thread >= threads) named_wrongly = true;
            });
            for (const auto& count : runs) EXPECT_EQ(count, 1);
            EXPECT_FALSE(named_wrongly);
        }
    }
}

TEST(ThreadPool, MoreTasksThanABatchHoldsRunInOrderOfBatches) {
    ThreadPool pool(2);
    constexpr int kTasks = 2'500'000;
    std::vector<uint8_t> runs(kTasks);
    pool.run(kTasks, [&](int task, int) { ++runs[static_cast<size_t>(task)]; });
    EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), 0), kTasks);
}

// Plain memory: what the caller wrote is seen by tasks, what tasks wrote is seen by the caller (the thread sanitizer's
// part).
TEST(ThreadPool, HandsMemoryOverBetweenBatches) {
    ThreadPool pool(4);
    std::vector<int> values(64, 0);
    int round = 0;
    for (round = 1; round <= 2000; ++round)
        pool.run(64, [&](int task, int) { values[static_cast<size_t>(task)] += round; });
    const int expected = 2000 * 2001 / 2;
    for (const int value : values) EXPECT_EQ(value, expected);
}

TEST(ThreadPool, OneThreadNeverWorksOnTwoTasksAtOnce) {
    ThreadPool pool(6);
    std::vector<std::atomic<int>> active(6);
    std::atomic<bool> twice = false;
    for (int round = 0; round < 200; ++round)
        pool.run(50, [&](int, int thread) {
            auto& its = active[static_cast<size_t>(thread)];
            if (its.fetch_add(1) != 0) twice = true;
            its.fetch_sub(1);
        });
    EXPECT_FALSE(twice);
}

TEST(ThreadPool, ManyMoreThreadsThanCpusFinish) {
    ThreadPool pool(40);
    std::atomic<int> sum = 0;
    for (int round = 0; round < 300; ++round) pool.run(round % 50, [&](int task, int) { sum += task; });
    int expected = 0;
    for (int round = 0; round < 300; ++round) expected += (round % 50) * (round % 50 - 1) / 2;
    EXPECT_EQ(sum, expected);
}

TEST(ThreadPool, LaterTasksMayWaitForEarlierOnes) {
    for (const int threads : {1, 2, 5, 30}) {
        ThreadPool pool(threads);
        for (int round = 0; round < 100; ++round) {
            std::vector<int> first(20);
            StageGate gate(20);
            std::atomic<int> wrong = 0;
            pool.run(40, [&](int task, int) {
                if (task < 20) {
                    first[static_cast<size_t>(task)] = task + round;
                    gate.arrive();
                    return;
                }
                gate.wait();
                for (int i = 0; i < 20; ++i) wrong += first[static_cast<size_t>(i)] != i + round;
            });
            ASSERT_EQ(wrong, 0);
        }
    }
}

TEST(ThreadPool, WorkThatLooksAheadIsToldItsThreadsNextTask) {
    for (const int threads : {1, 2, 5, 30}) {
        ThreadPool pool(threads);
        for (int round = 0; round < 100; ++round) {
            constexpr int kTasks = 40;
            std::vector<std::atomic<int>> runs(kTasks);
            std::vector<int> expected(static_cast<size_t>(threads), -2);  // of each thread, -2: any
            StageGate gate(kTasks / 2);
            std::atomic<int> wrong = 0;
            pool.run_ahead(kTasks, [&](int task, int next, int thread) {
                int& its = expected[static_cast<size_t>(thread)];
                wrong += its != -2 && its != task;
                wrong += next >= 0 && next <= task;
                its = next;
                runs[static_cast<size_t>(task)].fetch_add(1);
                if (task < kTasks / 2)
                    gate.arrive();
                else
                    gate.wait();
            });
            for (const auto& count : runs) ASSERT_EQ(count, 1);
            for (const int last : expected) wrong += last >= 0;
            ASSERT_EQ(wrong, 0);
        }
    }
}

TEST(ThreadPool, StartsAndEndsWithoutWork) {
    for (int i = 0; i < 50; ++i) ThreadPool pool(1 + i % 5);
}

}  // namespace
}  // namespace strata::cpu
