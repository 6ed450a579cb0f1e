// The five NaN rules and the four tie rules, on windows small enough to check by hand. Each window is written as its
// taps in order; the expected winner is derived from the rule's sentence in poolgrad.h, not from the code.
#include "spec/rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/harness.h"

namespace poolgrad {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kNone = -1;

struct Won {
  float y;
  std::vector<int> taps;
};

// Pools one window that holds `taps`, by the reference.
Won Pool(const std::vector<float>& taps, poolgrad_ties ties, poolgrad_nan nan) {
  poolgrad_problem raw = DefaultProblem();
  raw.rank = 1;
  raw.in[0] = raw.kernel[0] = static_cast<int64_t>(taps.size());
  raw.ties = ties;
  raw.nan = nan;
  const Problem p = *Resolve(raw);
  oracle::Data data;
  data.x.resize(taps.size() * sizeof(float));
  std::memcpy(data.x.data(), taps.data(), data.x.size());
  const oracle::Outcome outcome = oracle::RunReference(p, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes);
  Won won{};
  std::memcpy(&won.y, outcome.result.data(), sizeof won.y);
  const uint8_t* line = outcome.routes.data();
  for (int tap = 0; tap < static_cast<int>(taps.size()); ++tap) {
    const bool has = p.routes.masks ? LoadMaskBit(p.routes, line, 0, tap)
                                    : LoadCode(p.routes, line, 0) == static_cast<uint32_t>(tap);
    if (has) won.taps.push_back(tap);
  }
  return won;
}

struct NanCase {
  std::vector<float> window;
  int first_of_five[5];  // winner under propagate_first, propagate_last, first_place, greater_equal, ignore
};

TEST(Rules, EveryNanRuleOnEveryWindow) {
  const NanCase cases[] = {
      {{1, 2, 3}, {2, 2, 2, 2, 2}},
      {{3, 2, 1}, {0, 0, 0, 0, 0}},
      {{kNan, 1, 2}, {0, 0, 0, 2, 2}},
      {{1, kNan, 2}, {1, 1, 2, 2, 2}},
      {{2, kNan, 1}, {1, 1, 0, 2, 0}},
      {{1, 2, kNan}, {2, 2, 1, 2, 1}},
      {{kNan, 1, kNan}, {0, 2, 0, 2, 1}},
      {{kNan, kNan, kNan}, {0, 2, 0, 2, kNone}},
      {{1, kNan, kNan}, {1, 2, 0, 2, 0}},
      {{-kInf, -kInf, -kInf}, {0, 0, 0, 0, kNone}},
      {{-kInf, kNan, -kInf}, {1, 1, 0, 2, kNone}},
      {{kNan, -kInf, -kInf}, {0, 0, 0, 1, kNone}},
      {{kInf, kNan, kInf}, {1, 1, 0, 2, 0}},
      {{-0.0f, 0.0f, -0.0f}, {0, 0, 0, 0, 0}},
      {{kNan}, {0, 0, 0, 0, kNone}},
  };
  for (const NanCase& c : cases) {
    for (int rule = 0; rule < 5; ++rule) {
      const Won won = Pool(c.window, POOLGRAD_TIES_FIRST, static_cast<poolgrad_nan>(rule + 1));
      const int expected = c.first_of_five[rule];
      SCOPED_TRACE("window {" + std::to_string(c.window[0]) + ", ...} under " +
                   Name(static_cast<poolgrad_nan>(rule + 1)));
      if (expected == kNone) {
        EXPECT_TRUE(won.taps.empty());
        EXPECT_EQ(won.y, -kInf);
        continue;
      }
      ASSERT_EQ(won.taps, std::vector<int>{expected});
      const float value = c.window[static_cast<size_t>(expected)];
      EXPECT_EQ(std::memcmp(&won.y, &value, sizeof value), 0) << "y is the exact bits of the winner";
    }
  }
}

TEST(Rules, EveryTieRule) {
  const std::vector<float> window = {1, 5, 2, 5, 5, 0};
  const poolgrad_nan nan = POOLGRAD_NAN_PROPAGATE_FIRST;
  EXPECT_EQ(Pool(window, POOLGRAD_TIES_FIRST, nan).taps, (std::vector<int>{1}));
  EXPECT_EQ(Pool(window, POOLGRAD_TIES_LAST, nan).taps, (std::vector<int>{4}));
  EXPECT_EQ(Pool(window, POOLGRAD_TIES_SPLIT, nan).taps, (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(Pool(window, POOLGRAD_TIES_ALL, nan).taps, (std::vector<int>{1, 3, 4}));
}

TEST(Rules, ZerosOfBothSignsTieAndKeepTheirBits) {
  const std::vector<float> window = {-0.0f, 0.0f};
  const poolgrad_nan nan = POOLGRAD_NAN_PROPAGATE_FIRST;
  EXPECT_TRUE(std::signbit(Pool(window, POOLGRAD_TIES_FIRST, nan).y));
  EXPECT_FALSE(std::signbit(Pool(window, POOLGRAD_TIES_LAST, nan).y));
  EXPECT_EQ(Pool(window, POOLGRAD_TIES_ALL, nan).taps, (std::vector<int>{0, 1}));
  EXPECT_TRUE(std::signbit(Pool(window, POOLGRAD_TIES_ALL, nan).y)) << "y of a set is its first member";
}

TEST(Rules, ANanIsNeverPartOfATie) {
  for (const poolgrad_ties ties : {POOLGRAD_TIES_SPLIT, POOLGRAD_TIES_ALL}) {
    EXPECT_EQ(Pool({kNan, 1, kNan}, ties, POOLGRAD_NAN_PROPAGATE_FIRST).taps, (std::vector<int>{0}));
    EXPECT_EQ(Pool({kNan, 1, kNan}, ties, POOLGRAD_NAN_PROPAGATE_LAST).taps, (std::vector<int>{2}));
    EXPECT_EQ(Pool({kNan, 1, 1}, ties, POOLGRAD_NAN_IGNORE).taps, (std::vector<int>{1, 2}));
  }
}

TEST(Rules, IntegersCompareAsIntegers) {
  EXPECT_EQ(Compare<int32_t>(16777217, 16777216, POOLGRAD_NAN_IGNORE), Standing::kBeats) << "not as f32";
  EXPECT_EQ(Compare<uint8_t>(255, 1, POOLGRAD_NAN_PROPAGATE_FIRST), Standing::kBeats);
  EXPECT_EQ(Compare<int8_t>(-128, 0, POOLGRAD_NAN_PROPAGATE_FIRST), Standing::kLoses);
  EXPECT_EQ(Lowest<int8_t>(), -128);
  EXPECT_EQ(Lowest<uint8_t>(), 0);
}

}  // namespace
}  // namespace poolgrad
