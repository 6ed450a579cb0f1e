// What a plan may cost: scratch stays below a multiple of the data and a constant, whatever the geometry, and making a
// kernel takes no longer for a large tensor than for a small one.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "plan/plan.h"
#include "support/harness.h"
#include "support/random_problem.h"

namespace poolgrad {
namespace {

// As docs/guides/memory.md says it.
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
    // Windows far larger than the input; more channels than a block has.
    "max f64 nchw 1x1x1000x18 k1000x65553 s4 p0x32776",
    "max f32 nchw 1x1x4000x18 k4000x9001 s4 p0x4500",
    "max i8 ndhwc 1x6x14x12x4 k6 s6 p7x4831838208x7 d3x1610612736x3",
    "max bf16 ndhwc 1x16x3x5x1 k32776x8x8 s1 p16388x4x4 ties=all",
    "max f16 ndhwc 1x8x56x56x1000 k3 s1 p1",
    "max f16 nhwc 1x400x400x1000000 k3 s1 p1",
    // Several tasks to a thread, with rows far longer than the input.
    "max f64 nhwc 4x81x17x16 k3x2000 s1 same d1x2 nan=ignore",
    "max f32 ndhwc 1x8x9x3x4 k3x2000x2000 s3x100x2 p100x9000x1000 nan=ignore",
};

// Every kernel for every operation that the problem has; how many there were.
template <class Visit>
int ForEachKernel(const Problem& p, const Visit& visit) {
  int kernels = 0;
  for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
    const auto op = static_cast<poolgrad_op>(i);
    const bool gradient = op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X;
    if (gradient && IsInteger(p.dtype)) continue;
    if (p.kind == POOLGRAD_AVERAGE && op != POOLGRAD_OP_FORWARD && op != POOLGRAD_OP_BACKWARD) continue;
    for (const int64_t target : oracle::SimdTargets()) {
      for (const Algorithm& algorithm : oracle::SimdAlgorithms(op)) {
        const Made made = algorithm.make(p, op, {target, 4});
        if (made.refusal) continue;
        visit(op, algorithm, made.kernel);
        ++kernels;
      }
    }
  }
  return kernels;
}

void ExpectModestScratch(const poolgrad_problem& raw, const Problem& p) {
  ForEachKernel(p, [&](poolgrad_op op, const Algorithm& algorithm, const Kernel& kernel) {
    const bool keeps_routes = op == POOLGRAD_OP_FORWARD_ROUTES || op == POOLGRAD_OP_BACKWARD_X;
    const int64_t data = kTimes * (p.x_bytes() + p.y_bytes()) + (keeps_routes ? 2 * p.routes.bytes() : 0);
    EXPECT_LE(kernel.scratch_bytes, data + kConstant)
        << FormatProblem(raw) << ": " << Name(op) << " by " << algorithm.name;
  });
  Plan plan;
  ASSERT_TRUE(plan.Make(raw, nullptr).ok());
  for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
    const auto op = static_cast<poolgrad_op>(i);
    for (const int64_t threads : {1, 2, 16}) {
      const int64_t data = kTimes * (p.x_bytes() + p.y_bytes()) + 2 * p.routes.bytes();
      EXPECT_LE(static_cast<int64_t>(plan.scratch_bytes(op, static_cast<int>(threads))), threads * (data + kConstant))
          << FormatProblem(raw) << ": " << Name(op) << " on " << threads << " threads";
    }
  }
}

TEST(Cost, ScratchIsBoundedByTheData) {
  for (const char* text : kProblems) {
    const auto raw = ParseProblem(text);
    ASSERT_TRUE(raw.ok()) << text << ": " << raw.status().sentence();
    const auto p = Resolve(*raw);
    ASSERT_TRUE(p.ok()) << text << ": " << p.status().sentence();
    ExpectModestScratch(*raw, *p);
  }
}

// Drawn problems with one number out of all proportion.
TEST(Cost, ScratchIsBoundedWhateverIsHuge) {
  oracle::XorShift random(19);
  for (int i = 0; i < 4000; ++i) {
    poolgrad_problem raw = oracle::DrawProblem(random);
    const auto axis = random.Between(0, raw.rank - 1);
    if (raw.outputs[axis] != 0 || raw.whole_in[axis] != 0) continue;
    const int64_t factor = int64_t{1} << random.Between(0, 30);
    int64_t* const huge[] = {&raw.stride[axis], &raw.dilation[axis], &raw.kernel[axis], &raw.in[axis], &raw.channels};
    const int64_t which = random.Between(0, 4);
    *huge[which] *= which < 2 ? factor : 1 + (factor >> 12);
    if (which == 1 || which == 2) raw.pad_lo[axis] = raw.pad_hi[axis] = raw.kernel[axis] * raw.dilation[axis] / 2;
    const auto p = Resolve(raw);
    if (p.ok() && p->x_elements() > 0 && p->y_elements() > 0) ExpectModestScratch(raw, *p);
  }
}

TEST(Cost, MakingAKernelDoesNotWalkTheTensor) {
  const auto begin = std::chrono::steady_clock::now();
  int kernels = 0;
  for (const char* text :
       {"max f32 ncw 1x1x35184372088832 k2", "max f32 ncw 1x1x35184372088832 k1073741824",
        "max f32 ncw 1x1x17592186044416 k1 s1048576", "max u8 ncw 1x1x1152921504606846976 k1 s1099511627776",
        "max f32 nhwc 1x2x1099511627776x16 k2x2147483647 s1", "max f32 nchw 1x1x35184372088832x2 k2147483647x1 s1",
        "max i8 nchw 1x1x4194304x4194304 k20971 s1 p10485", "max f32 nhwc 1x4194304x65536x64 k5 s3",
        "max f16 nhwc 1x65536x4194304x64 k5 s3", "max bf16 nhwc 1x400x400x1073741825 k3 s1 p1",
        "max f16 ncw 1x1x35184372088832 k3 s2 p1", "avg f32 nchw 1x1x4194304x4194304 k3 s1 p1",
        "avg f16 nhwc 1x4194304x65536x64 k3 s2 p1"}) {
    const auto p = Resolve(*ParseProblem(text));
    ASSERT_TRUE(p.ok()) << text << ": " << p.status().sentence();
    kernels += ForEachKernel(*p, [](poolgrad_op, const Algorithm&, const Kernel&) {});
  }
  EXPECT_GT(kernels, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace poolgrad
