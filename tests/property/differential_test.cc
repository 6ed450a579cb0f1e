// Property: whatever problem is drawn, every algorithm on every SIMD target, however it is split, and the plan on 1, 2
// and 5 threads, give the reference's bits. RapidCheck shrinks a failing problem; the failure prints its one-line form
// and the seed of its data, and `differential "PROBLEM" DATA_SEED` runs it again.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/harness.h"
#include "support/random_problem.h"

namespace poolgrad::oracle {
namespace {

const bool kCrashesAreReported = (ReportCrashes(), true);

class RapidDraw final : public Draw {
 public:
  // Not rc::gen::inRange, whose range depends on the size parameter: every value must be possible in every run.
  int64_t Between(int64_t lo, int64_t hi) override {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(lo, hi + 1));
  }
};

RC_GTEST_PROP(Differential, EveryAlgorithmGivesTheReferencesBits, ()) {
  RapidDraw draw;
  const poolgrad_problem problem = DrawProblem(draw);
  const auto seed = static_cast<uint64_t>(draw.Between(0, 1 << 30));
  const Checked checked = CheckProblem(problem, seed);
  RC_PRE(!checked.refused);
  if (!checked.failure.empty()) RC_FAIL(checked.failure);
}

// The cases that vector code gets wrong first: every tail length, in both layouts, with specials everywhere.
TEST(Differential, EveryTailLength) {
  for (const char* dtype : {"f32", "f64", "f16", "bf16", "i8", "u8", "i32"}) {
    for (const char* window :
         {"k2 s2", "k3 s1 p1", "k3 s2 p1", "k2 s1 ties=last nan=propagate_last", "k2 s2 ties=split"}) {
      for (int length = 1; length <= 68; length += length < 36 ? 1 : 4) {
        for (const std::string& shape :
             {"nchw 1x2x3x" + std::to_string(2 * length + 1), "nhwc 1x3x3x" + std::to_string(length)}) {
          const std::string text = std::string("max ") + dtype + " " + shape + " " + window;
          const Checked checked = CheckProblem(*ParseProblem(text), static_cast<uint64_t>(length), QuickEffort());
          ASSERT_FALSE(checked.refused) << text;
          ASSERT_EQ(checked.failure, "");
        }
      }
    }
  }
}

// Each NaN rule with each tie rule, in each type that has NaN, in both layouts.
TEST(Differential, EveryPairOfRules) {
  for (int ties = 1; ties <= 4; ++ties)
    for (int nan = 1; nan <= 5; ++nan)
      for (const char* dtype : {"f32", "f64", "f16", "bf16", "i32"})
        for (const char* shape :
             {"nchw 1x2x9x37 k3 s1 p1", "nhwc 1x7x7x21 k3 s2 p1", "nchw 1x2x8x34 k2 s2", "nhwc 2x4x4x18 k2"}) {
          poolgrad_problem raw = *ParseProblem(std::string("max ") + dtype + " " + shape);
          raw.ties = ties;
          raw.nan = nan;
          for (uint64_t seed = 0; seed < 3; ++seed) {
            const Checked checked =
                CheckProblem(raw, seed * 1000 + static_cast<uint64_t>(ties * 10 + nan), QuickEffort());
            ASSERT_FALSE(checked.refused);
            ASSERT_EQ(checked.failure, "");
          }
        }
}

// The cases file's layers, scaled to what the reference can do here, and large enough that a plan really splits the
// work.
TEST(Differential, ProblemsThatThePlanSplits) {
  for (const char* text :
       {"max f32 nchw 2x12x64x64 k3 s2 p1", "max f32 nhwc 2x64x64x12 k3 s2 p1", "max f32 nchw 2x12x64x64 k2 s2",
        "max f32 nhwc 1x64x64x24 k2 s2 ceil", "max f16 nchw 2x16x64x96 k3 s1 p1", "max i8 nhwc 4x64x64x48 k2 s2",
        "avg f32 nchw 2x12x64x64 k3 s2 p1", "max f32 ncdhw 1x4x16x32x64 k2 s2", "max f32 nchw 32x512x7x7 k7 s7"}) {
    const Checked checked = CheckProblem(*ParseProblem(text), 5);
    ASSERT_FALSE(checked.refused) << text;
    ASSERT_EQ(checked.failure, "");
  }
}

}  // namespace
}  // namespace poolgrad::oracle
