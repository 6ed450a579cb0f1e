// The harness itself: a byte beyond a buffer ends the program, on either side, and so does a problem that takes for
// ever.
#include "support/harness.h"

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <string>

#include "support/random_problem.h"

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
  const char* const what = "problem 'max f32 ncw 1x1x3 k2' with data seed 5";
  const std::string sentence = std::string("took too long: ") + what;
  EXPECT_EXIT(
      {
        const TimeLimit limit(what, 1);
        for (volatile int forever = 1; forever;) {
        }
      },
      testing::KilledBySignal(SIGPROF), sentence);
}

// What the library can do is drawn, each of it in at least one problem of two hundred.
TEST(Harness, TheDrawingHasEverything) {
  std::map<std::string, int> drawn;
  XorShift random(3);
  constexpr int kProblems = 8000;
  for (int i = 0; i < kProblems; ++i) {
    const poolgrad_problem raw = DrawProblem(random);
    const auto problem = Resolve(raw);
    if (!problem.ok()) continue;
    const std::string kind = std::string(Name(problem->kind)) + " ";
    ++drawn[kind + Name(problem->dtype)];
    ++drawn["dialect " + std::to_string(raw.dialect)];
    bool deep = false, thin = false, adaptive = false, listed = false, part = false;
    for (int a = 0; a < raw.rank; ++a) {
      const Axis& axis = problem->axis[3 - raw.rank + a];
      thin = thin || axis.in < axis.extent();
      deep = deep || axis.in >= 300;
      adaptive = adaptive || (raw.outputs[a] != 0 && !raw.starts[a]);
      listed = listed || raw.starts[a];
      part = part || raw.whole_in[a] != 0;
    }
    drawn["deep and thin"] += deep && thin;
    drawn[kind + "adaptive"] += adaptive;
    drawn[kind + "listed"] += listed;
    drawn[kind + "part"] += part;
    if (problem->kind == POOLGRAD_AVERAGE) continue;
    drawn["relu"] += problem->relu;
    drawn["bias"] += problem->bias;
    ++drawn["ties " + std::to_string(problem->ties)];
    ++drawn["nan " + std::to_string(problem->nan)];
  }
  EXPECT_EQ(drawn.size(), 7u + 4 + 6 + 1 + 6 + 1 + 1 + 4 + 5);
  for (const auto& [what, times] : drawn) EXPECT_GE(times, kProblems / 200) << what;
}

}  // namespace
}  // namespace poolgrad::oracle
