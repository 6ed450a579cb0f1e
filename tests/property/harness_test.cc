// The harness itself: a byte beyond a buffer ends the program, on either side, and so does a problem that takes for
// ever.
#include "support/harness.h"

#include <gtest/gtest.h>

#include <csignal>

namespace poolgrad::oracle {
namespace {

TEST(Harness, AByteBeyondABufferIsNoticed) {
  for (const int64_t bytes : {1, 4096, 5000}) {
    Guarded high(bytes, 0, false, 0xAA), low(bytes, 0, true, 0xAA);
    volatile uint8_t* at = high.data();
    EXPECT_DEATH(at[bytes] = 1, "") << bytes;
    EXPECT_DEATH((void)at[bytes], "") << bytes;
    at = low.data();
    EXPECT_DEATH(at[-1] = 1, "") << bytes;
    EXPECT_TRUE(high.GuardsIntact() && low.GuardsIntact()) << bytes;
    if (bytes % 4096 == 0) continue;
    low.data()[bytes] = 1;
    high.data()[-1] = 1;
    EXPECT_FALSE(low.GuardsIntact() || high.GuardsIntact()) << bytes;
  }
}

TEST(Harness, AMappingIsPoisonedAnewWhenItIsUsedAgain) {
  for (int i = 0; i < 100; ++i) {
    Guarded memory(100, 0, i % 2 == 0, 0xAB);
    for (int64_t b = 0; b < 100; ++b) ASSERT_EQ(memory.data()[b], 0xAB);
    std::fill_n(memory.data(), 100, uint8_t{7});
  }
}

TEST(Harness, AProblemThatTakesForEverIsNamed) {
  EXPECT_EXIT(
      {
        const TimeLimit limit("problem 'max f32 ncw 1x1x3 k2' with data seed 5", 1);
        for (volatile int forever = 1; forever;) {
        }
      },
      testing::KilledBySignal(SIGALRM), "took too long: problem 'max f32 ncw 1x1x3 k2' with data seed 5");
}

}  // namespace
}  // namespace poolgrad::oracle
