// The team of threads: every task once, the caller sees what workers wrote, whatever the counts and the pauses between
// calls.
#include "base/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace poolgrad {
namespace {

void CountUp(void* counts, int64_t i) { ++(*static_cast<std::vector<int>*>(counts))[static_cast<size_t>(i)]; }

Workers& workers = *new Workers;

TEST(Workers, DoEveryTaskOnce) {
  for (int round = 0; round < 2000; ++round) {
    const int threads = 1 + round % 7;
    std::vector<int> counts(static_cast<size_t>(round % 61));
    workers.Run(threads, static_cast<int64_t>(counts.size()), CountUp, &counts);
    EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << "round " << round;
    // Long enough, now and then, that they fall asleep, and about as long as they stay awake.
    if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round % 100 ? 20 : 1000));
  }
}

TEST(Workers, TakePartFromOtherThreads) {
  struct Meeting {
    std::atomic<int> there{0};
  } meeting;
  // Every task waits for all the others, so each needs a thread of its own.
  workers.Run(
      4, 4,
      [](void* context, int64_t) {
        auto& there = static_cast<Meeting*>(context)->there;
        ++there;
        while (there < 4) std::this_thread::yield();
      },
      &meeting);
  EXPECT_EQ(meeting.there, 4);
}

TEST(Workers, ServeSeveralCallersInTurn) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < 300; ++round) {
        std::vector<int> counts(static_cast<size_t>(5 + c));
        workers.Run(2 + c % 3, static_cast<int64_t>(counts.size()), CountUp, &counts);
        if (counts != std::vector<int>(counts.size(), 1)) ++wrong;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace poolgrad
