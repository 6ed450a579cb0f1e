// What a forward plan may cost: scratch stays below a multiple of the data and a constant, whatever the geometry, and
// making a kernel takes no longer for a large tensor than for a small one.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/harness.h"

namespace poolgrad {
namespace {

constexpr int64_t kTimes = 24;
constexpr int64_t kConstant = 8 << 20;

const char* const kProblems[] = {
    "max f32 ncw 1x1x6 k2 s16777216",
    "max f32 ncw 1x1x6 k2 s268435456",
    "max u8 ncw 1x1x1000000 k3 s1",
    "max i8 ncw 1x1x100000 k200 s7",
    "max f64 ncw 1x1x100000 k301 s1",
    "max f32 nchw 1x1x9x9 k2 s16777216x1",
    "max f32 nchw 1x1x9x9 k2 s1x16777216",
    "max f32 nchw 1x1x2000x9 k2 d1900x1",
    "max bf16 nchw 1x1x9x5000 k2 d1x4900",
    "max f32 nhwc 1x9x9x3 k2 s16777216",
    "max f16 nhwc 1x64x64x512 k31 s1 p15",
    "max f64 ncdhw 1x1x3x40x40 k3x31x31 s1 p1x15x15",
    "max f32 ndhwc 1x3x4x5x16 k2 s1048576",
    "avg f32 ncw 1x1x6 k2 s16777216",
    "max f32 ncw 1x1x35184372088832 k2",
    "max f32 ncw 1x1x35184372088832 k1001 s1000",
    "max i8 nchw 1x1x4194304x4194304 k3 s1 p1",
    "avg f32 ncw 1x1x35184372088832 k2",
};

TEST(ForwardCost, ScratchIsBoundedByTheData) {
  for (const char* text : kProblems) {
    const auto raw = ParseProblem(text);
    ASSERT_TRUE(raw.ok()) << text << ": " << raw.status().sentence();
    const auto p = Resolve(*raw);
    ASSERT_TRUE(p.ok()) << text << ": " << p.status().sentence();
    for (const poolgrad_op op : {POOLGRAD_OP_FORWARD, POOLGRAD_OP_FORWARD_ROUTES}) {
      for (const int64_t target : oracle::SimdTargets()) {
        for (const Algorithm& algorithm : oracle::SimdAlgorithms(op)) {
          const Made made = algorithm.make(*p, op, {target, 4});
          if (made.refusal) continue;
          EXPECT_LE(made.kernel.scratch_bytes, kTimes * (p->x_bytes() + p->y_bytes()) + kConstant)
              << text << " by " << algorithm.name;
        }
      }
    }
  }
}

TEST(ForwardCost, MakingAKernelDoesNotWalkTheTensor) {
  const auto begin = std::chrono::steady_clock::now();
  int made_count = 0;
  for (const char* text :
       {"max f32 ncw 1x1x35184372088832 k2", "max f32 ncw 1x1x35184372088832 k1073741824",
        "max i8 nchw 1x1x4194304x4194304 k20971 s1 p10485", "max f32 nhwc 1x4194304x65536x64 k5 s3"}) {
    const auto p = Resolve(*ParseProblem(text));
    ASSERT_TRUE(p.ok()) << text << ": " << p.status().sentence();
    for (const poolgrad_op op : {POOLGRAD_OP_FORWARD, POOLGRAD_OP_FORWARD_ROUTES}) {
      for (const int64_t target : oracle::SimdTargets()) {
        for (const Algorithm& algorithm : oracle::SimdAlgorithms(op))
          made_count += !algorithm.make(*p, op, {target, 4}).refusal;
      }
    }
  }
  EXPECT_GT(made_count, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace poolgrad
