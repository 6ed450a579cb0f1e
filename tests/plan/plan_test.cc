// The plan: which algorithm it takes and why, and how it may be forced. Environment variables are read when a plan is
// made.
#include "plan/plan.h"

#include <gtest/gtest.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "reference/reference.h"
#include "support/harness.h"

namespace poolgrad {
namespace {

// Sets an environment variable for one scope.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

const std::string kStem = "max f32 nchw 2x8x16x16 k3 s2 p1";

Plan PlanOf(const std::string& text, const char* algorithm = nullptr) {
  Plan plan;
  const Status made = plan.Make(*ParseProblem(text), algorithm);
  EXPECT_TRUE(made.ok()) << made.sentence();
  return plan;
}

Host BestHost() { return {oracle::SimdTargets().front(), poolgrad_default_threads()}; }

TEST(Plan, TakesTheFirstAlgorithmThatDoesNotRefuse) {
  for (const char* text :
       {"max f32 nchw 2x8x16x16 k3 s2 p1", "max f32 nhwc 2x16x16x8 k2", "max f16 ncw 1x2x99 k5 s1 d3",
        "max i8 ndhwc 1x4x4x4x3 k2 ties=split", "avg f64 nchw 1x2x8x8 k2"}) {
    const Plan plan = PlanOf(text);
    for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
      const auto op = static_cast<poolgrad_op>(i);
      if (!plan.can(op).ok()) {
        EXPECT_EQ(plan.algorithm(op), nullptr);
        continue;
      }
      std::string expected = "reference";
      for (const Algorithm& algorithm : oracle::SimdAlgorithms(op)) {
        if (!algorithm.make(plan.problem(), op, BestHost()).refusal) {
          expected = algorithm.name;
          break;
        }
      }
      EXPECT_EQ(plan.algorithm(op), expected) << text << " " << Name(op);
    }
  }
}

TEST(Plan, EmptyProblemsAreLeftToTheReference) {
  for (const char* text :
       {"max f32 nchw 0x8x16x16 k2", "max f32 nhwc 2x16x16x0 k3 s1", "max f32 ncw 1x1x3 k4 s1 jax"}) {
    const Plan plan = PlanOf(text);
    for (int i = 0; i < POOLGRAD_OP_BIAS_GRADIENT; ++i)
      EXPECT_STREQ(plan.algorithm(static_cast<poolgrad_op>(i)), "reference") << text;
  }
}

TEST(Plan, NamesOfAlgorithmsAreDistinct) {
  for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
    std::set<std::string> names = {"reference"};
    for (const Algorithm& algorithm : oracle::SimdAlgorithms(static_cast<poolgrad_op>(i))) {
      EXPECT_TRUE(names.insert(algorithm.name).second) << algorithm.name;
    }
  }
}

TEST(Plan, VectorKernelsTakeWhatNetworksUse) {
  if (oracle::SimdAlgorithms(POOLGRAD_OP_FORWARD).empty()) GTEST_SKIP() << "this build has no vector kernels";
  for (const char* text :
       {"max f32 nchw 8x64x112x112 k3 s2 p1", "max f32 nhwc 8x112x112x64 k3 s2 p1", "max f32 nchw 8x64x224x224 k2",
        "max f16 nhwc 8x56x56x64 k2", "max bf16 nchw 8x64x56x56 k3 s1 p1", "max i8 nhwc 8x56x56x64 k3 s2 p1",
        "max f64 nchw 1x8x32x32 k5 s1 p2"}) {
    const Plan plan = PlanOf(text);
    EXPECT_STRNE(plan.algorithm(POOLGRAD_OP_FORWARD_ROUTES), "reference") << text;
    if (!IsInteger(plan.problem().dtype)) {
      EXPECT_STRNE(plan.algorithm(POOLGRAD_OP_BACKWARD), "reference") << text;
    }
  }
}

TEST(Plan, AnAlgorithmCanBeForcedByOptionOrEnvironment) {
  EXPECT_STREQ(PlanOf(kStem, "reference").algorithm(POOLGRAD_OP_FORWARD), "reference");
  {
    const Environment forced("POOLGRAD_ALGORITHM", "reference");
    EXPECT_STREQ(PlanOf(kStem).algorithm(POOLGRAD_OP_BACKWARD), "reference");
  }
  for (int i = 0; i < POOLGRAD_OP_COUNT; ++i) {
    const auto op = static_cast<poolgrad_op>(i);
    for (const Algorithm& algorithm : oracle::SimdAlgorithms(op)) {
      const Problem problem = *Resolve(*ParseProblem(kStem));
      if (algorithm.make(problem, op, BestHost()).refusal) continue;
      EXPECT_STREQ(PlanOf(kStem, algorithm.name).algorithm(op), algorithm.name);
      const Environment forced("POOLGRAD_ALGORITHM", algorithm.name);
      EXPECT_STREQ(PlanOf(kStem).algorithm(op), algorithm.name);
      EXPECT_STREQ(PlanOf(kStem, "reference").algorithm(op), "reference") << "the option outranks the environment";
    }
  }
}

TEST(Plan, AnUnknownAlgorithmIsAnError) {
  const Status made = Plan().Make(*ParseProblem(kStem), "quicksort");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.sentence(), "algorithm is 'quicksort'; no operation of this problem has an algorithm of that name");
  const Environment forced("POOLGRAD_ALGORITHM", "bogo\x1b");
  const Status from_outside = Plan().Make(*ParseProblem(kStem), nullptr);
  EXPECT_EQ(
      from_outside.sentence(),
      "the environment variable POOLGRAD_ALGORITHM is 'bogo\\x1b'; no operation of this problem has an algorithm of "
      "that name");
}

TEST(Plan, EverySimdTargetCanBeForcedByTheEnvironment) {
  for (const int64_t target : oracle::SimdTargets()) {
    const Environment forced("POOLGRAD_SIMD", oracle::SimdTargetName(target));
    EXPECT_STREQ(poolgrad_simd_target(), oracle::SimdTargetName(target));
  }
}

TEST(Plan, AnUnknownSimdTargetIsAnError) {
  if (oracle::SimdAlgorithms(POOLGRAD_OP_FORWARD).empty()) GTEST_SKIP() << "this build has no vector kernels";
  const Environment forced("POOLGRAD_SIMD", "avx2");
  const Status made = Plan().Make(*ParseProblem(kStem), nullptr);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.sentence().find("POOLGRAD_SIMD is 'avx2'"), std::string::npos) << made.sentence();
}

// What a plan chose, it keeps: made for one instruction set, it runs with it (and its scratch) whatever is asked for
// later.
TEST(Plan, APlanKeepsItsSimdTarget) {
  for (const char* text :
       {"max f32 nchw 1x3x40x40 k3 s2 p1", "max bf16 nhwc 2x24x24x24 k3 s1 p1", "max f32 ncw 2x3x999 k5 s2"}) {
    for (const int64_t made_for : oracle::SimdTargets()) {
      oracle::UseSimdTarget(made_for);
      const Plan plan = PlanOf(text);
      const Problem& p = plan.problem();
      const int64_t scratch_bytes = static_cast<int64_t>(plan.scratch_bytes(POOLGRAD_OP_BACKWARD_X, 1));
      std::vector<uint8_t> x(static_cast<size_t>(p.x_bytes()), 0x3d), dy(static_cast<size_t>(p.y_bytes()), 0x3e);
      std::vector<uint8_t> first;
      for (const int64_t run_under : oracle::SimdTargets()) {
        oracle::UseSimdTarget(run_under);
        oracle::Guarded dx(p.x_bytes(), 0, false, 0xA5);
        Args args;
        args.source = dy.data();
        args.x = x.data();
        args.result = dx.data();
        poolgrad_exec exec{};
        exec.threads = 1;
        std::vector<std::byte> aligned(static_cast<size_t>(scratch_bytes) + 128);
        exec.scratch = aligned.data() + (64 - reinterpret_cast<uintptr_t>(aligned.data()) % 64) % 64;
        exec.scratch_bytes = static_cast<uint64_t>(scratch_bytes);
        std::memset(static_cast<std::byte*>(exec.scratch) + scratch_bytes, 0x5A, 64);
        ASSERT_TRUE(plan.Run(POOLGRAD_OP_BACKWARD_X, args, exec).ok());
        for (int i = 0; i < 64; ++i) {
          ASSERT_EQ(static_cast<std::byte*>(exec.scratch)[scratch_bytes + i], std::byte{0x5A}) << text;
        }
        ASSERT_TRUE(dx.GuardsIntact());
        if (first.empty()) first.assign(dx.data(), dx.data() + dx.size());
        EXPECT_EQ(std::memcmp(first.data(), dx.data(), first.size()), 0) << text;
      }
    }
    oracle::UseSimdTarget(0);
  }
}

TEST(Plan, TheDefaultNumberOfThreadsCanBeSetByTheEnvironment) {
  {
    const Environment forced("POOLGRAD_THREADS", "7");
    EXPECT_EQ(poolgrad_default_threads(), 7);
  }
  const Environment nonsense("POOLGRAD_THREADS", "many");
  EXPECT_GE(poolgrad_default_threads(), 1);
}

#ifdef __linux__
TEST(Plan, TheDefaultNumberOfThreadsIsThatOfTheProcessorsWeMayUse) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  // It is asked for once, so a process that may use one only has to be a new one.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
          if (CPU_ISSET(i, &mine)) CPU_SET(i, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) std::exit(9);
        std::exit(poolgrad_default_threads());
      },
      testing::ExitedWithCode(1), "");
  EXPECT_EQ(poolgrad_default_threads(), std::min(CPU_COUNT(&mine), 4096));
}
#endif

TEST(Plan, ExplainSaysWhyTheFasterOnesRefused) {
  const std::string text = PlanOf("max f32 nchw 2x8x16x16 k3 s2 p1 d3").Explain();
  EXPECT_NE(text.find("max f32 nchw 2x8x16x16 k3 s2 p1x1 d3"), std::string::npos) << text;
  EXPECT_NE(text.find("dilation 3"), std::string::npos) << text;
  EXPECT_NE(text.find("backward"), std::string::npos) << text;
  const Problem problem = *Resolve(*ParseProblem("max f32 nchw 2x8x16x16 k3 s2 p1 d3"));
  for (const Algorithm& algorithm : oracle::SimdAlgorithms(POOLGRAD_OP_FORWARD)) {
    const char* reason = algorithm.make(problem, POOLGRAD_OP_FORWARD, BestHost()).refusal;
    if (!reason) break;
    EXPECT_NE(text.find(std::string(algorithm.name) + ": " + reason), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace poolgrad
