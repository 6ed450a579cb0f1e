// Property: whatever problem is drawn, every algorithm on every SIMD target, however it is split, and the plan on 1, 2
// and 5 threads, give the reference's bits. RapidCheck shrinks a failing problem; the failure prints its one-line form
// and the seed of its data, and `differential "PROBLEM" DATA_SEED` runs it again.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <string>
#include <vector>

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

// Kernels that take floats for integers because none is negative must notice the one that is, wherever it lies; and
// zeros must beat padding.
TEST(Differential, OneValueThatIsNoPositiveNumber) {
  struct Type {
    const char* name;
    int64_t size;
    uint32_t sign, infinity, one;
  };
  for (const Type& type : {Type{"f32", 4, 0x80000000u, 0x7F800000u, 0x3F800000u},
                           Type{"bf16", 2, 0x8000u, 0x7F80u, 0x3F80u}, Type{"f16", 2, 0x8000u, 0x7C00u, 0x3C00u}}) {
    for (const char* shape :
         {"nchw 1x2x8x36 k2 s2", "nchw 1x2x9x35 k3 s2 p1", "nchw 1x2x9x35 k3 s2 ties=last", "nchw 1x2x6x35 k3 s1 p1",
          "nchw 1x1x6x64 k4 s4 p0 ceil", "nchw 1x1x9x36 k3 s3", "nchw 2x9x3x3 k3", "nchw 1x1x12x24 k7 s1 p3",
          "nhwc 1x6x6x19 k2 s2", "nhwc 1x7x7x33 k3 s2 p1", "nhwc 1x6x6x9 k3 s1 p1", "nhwc 2x3x3x40 k3",
          "nhwc 1x9x9x17 k5 s1 p2"}) {
      const poolgrad_problem raw = *ParseProblem(std::string("max ") + type.name + " " + shape);
      const Problem problem = *Resolve(raw);
      const int64_t elements = problem.x_elements();
      for (const uint32_t odd_one : {type.sign, type.sign | type.one, type.infinity | 1u,
                                     type.sign | type.infinity | 1u, type.sign | type.infinity, type.infinity}) {
        for (const int64_t at : {int64_t{0}, elements / 2 + 1, elements - 1}) {
          std::vector<uint8_t> x(static_cast<size_t>(elements * type.size));
          for (int64_t i = 0; i < elements; ++i) {
            const uint32_t value = i == at ? odd_one : i * 7 % 5 < 4 ? 0 : type.one;
            std::memcpy(x.data() + i * type.size, &value, static_cast<size_t>(type.size));
          }
          const Checked checked = CheckProblemOnBytes(raw, problem, x, QuickEffort());
          ASSERT_EQ(checked.failure, "") << shape << ": " << std::hex << odd_one << " at " << std::dec << at;
        }
      }
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
