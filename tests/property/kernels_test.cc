// Which kernel a problem gets, and that every kernel was tested at all.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/harness.h"
#include "support/random_problem.h"

namespace poolgrad::oracle {
namespace {

struct Line {
  std::string name;
  poolgrad_problem problem;
};

std::vector<Line> Cases() {
  std::vector<Line> lines;
  for (const char* family : {"peers", "shapes"}) {
    std::ifstream file(std::filesystem::path(POOLGRAD_CASES) / (std::string(family) + ".txt"));
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      const size_t colon = line.find(": ");
      lines.push_back({line.substr(0, colon), *ParseProblem(line.substr(colon + 2))});
    }
  }
  return lines;
}

// Calls visit(line of text, problem, op) for every case in both layouts, several types and all operations.
template <class Visit>
void ForEachCell(const Visit& visit) {
  for (const Line& line : Cases()) {
    for (const int32_t layout : {POOLGRAD_CHANNELS_FIRST, POOLGRAD_CHANNELS_LAST}) {
      for (const poolgrad_dtype dtype : {POOLGRAD_F32, POOLGRAD_BF16, POOLGRAD_F64, POOLGRAD_I8}) {
        poolgrad_problem raw = line.problem;
        raw.layout = layout;
        raw.dtype = dtype;
        const Problem problem = *Resolve(raw);
        for (int op = 0; op < POOLGRAD_OP_BIAS_GRADIENT; ++op) {  // which has one kernel
          if (IsInteger(dtype) && (op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X)) continue;
          visit(line.name + (layout ? " last " : " first ") + Name(dtype), problem, static_cast<poolgrad_op>(op));
        }
      }
    }
  }
}

std::string ChoicesOf(int64_t simd) {
  std::ostringstream text;
  std::string last;
  ForEachCell([&](const std::string& cell, const Problem& p, poolgrad_op op) {
    if (cell != last) text << (last.empty() ? "" : "\n") << cell << ":";
    last = cell;
    const char* chosen = "reference";
    for (const Algorithm& algorithm : SimdAlgorithms(op)) {
      if (algorithm.make(p, op, {simd, 2}).refusal) continue;
      chosen = algorithm.name;
      break;
    }
    text << " " << Name(op) << "=" << chosen;
  });
  text << "\n";
  return text.str();
}

// A change of what problems get is seen in a review: UPDATE_GOLDEN=1 writes the tables anew.
TEST(Kernels, EachCaseGetsTheKernelThatTheTableSays) {
  if (SimdAlgorithms(POOLGRAD_OP_FORWARD).empty()) GTEST_SKIP() << "this build has no vector kernels";
  int compared = 0;
  for (const int64_t target : SimdTargets()) {
    const std::string path =
        std::string(POOLGRAD_CASES) + "/../tests/property/golden/choices_" + SimdTargetName(target) + ".txt";
    const std::string choices = ChoicesOf(target);
    if (std::getenv("UPDATE_GOLDEN")) std::ofstream(path) << choices;
    std::ifstream file(path);
    if (!file) {
      std::printf("no table for %s: UPDATE_GOLDEN=1 writes one\n", SimdTargetName(target));
      continue;
    }
    std::ostringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(choices, golden.str()) << path;
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "there is no table for this processor";
}

// Every kernel and type that takes some case must have run on drawn problems.
TEST(Kernels, EveryKernelOfEveryTypeRanOnDrawnProblems) {
  if (SimdAlgorithms(POOLGRAD_OP_FORWARD).empty()) GTEST_SKIP() << "this build has no vector kernels";
  std::set<std::string> missing;
  ForEachCell([&](const std::string&, const Problem& p, poolgrad_op op) {
    for (const Algorithm& algorithm : SimdAlgorithms(op)) {
      if (!algorithm.make(p, op, {SimdTargets().front(), 2}).refusal)
        missing.insert(std::string(algorithm.name) + " " + Name(p.dtype));
    }
  });
  for (const char* dtype : {"f32", "f64", "f16", "bf16"}) {
    missing.insert(std::string("bias_sums ") + dtype);
    missing.insert(std::string("fwd_cl_cut ") + dtype);
  }
  for (const std::string kind : {"max ", "avg "}) {  // and those that take windows by table, on such ones
    for (const std::string layout : {" nchw", " nhwc"}) {
      for (const char* dtype : {"f32", "f64", "f16", "bf16", "i8"}) {
        const auto problem = Resolve(*ParseProblem(kind + dtype + layout + " 2x18x11x13 adaptive=4x5"));
        for (int op = 0; problem.ok() && op < POOLGRAD_OP_COUNT; ++op) {
          const bool backward = op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X;
          if (IsInteger(problem->dtype) && backward) continue;
          if (problem->kind == POOLGRAD_AVERAGE && op != POOLGRAD_OP_FORWARD && op != POOLGRAD_OP_BACKWARD) continue;
          for (const Algorithm& algorithm : SimdAlgorithms(static_cast<poolgrad_op>(op))) {
            const bool takes =
                !algorithm.make(*problem, static_cast<poolgrad_op>(op), {SimdTargets().front(), 2}).refusal;
            if (takes) missing.insert(std::string(algorithm.name) + " " + dtype + " by table");
          }
        }
      }
    }
  }
  ASSERT_GT(missing.size(), 40u);
  ForgetRuns();
  // Hardly ever drawn: large windows over many channels of halves, long signals, windows as large as the plane.
  for (const char* line :
       {"max bf16 nhwc 1x7x8x33 k13x9 s2x1 p6x4", "max f64 nwc 1x4100x3 k3 s2 p1", "max bf16 nwc 1x16400x3 k3 s2 p1",
        "max bf16 nchw 3x5x7x9 k7x9", "max f32 nchw 3x5x7x9 k7x9"}) {
    ASSERT_EQ(CheckProblem(*ParseProblem(line), 1, {{2}, false}).failure, "");
  }
  for (uint64_t seed = 1; seed < 6000 && !missing.empty(); ++seed) {
    XorShift draw(seed);
    const poolgrad_problem problem = DrawProblem(draw);
    const Checked checked = CheckProblem(problem, seed, {{2}, false});
    ASSERT_EQ(checked.failure, "");
    for (const auto& [kernel, runs] : Runs()) missing.erase(kernel);
  }
  std::string never;
  for (const std::string& kernel : missing) never += kernel + "; ";
  EXPECT_EQ(never, "") << "never ran on a drawn problem";
}

// Whole planes are drawn rarely, and as many as there are lanes hardly ever.
TEST(Kernels, PlanesThatAreOneWindowAreAveraged) {
  if (SimdAlgorithms(POOLGRAD_OP_FORWARD).empty()) GTEST_SKIP() << "this build has no vector kernels";
  ForgetRuns();
  const std::vector<std::string> windows = {
      " nchw 2x37x5x3 adaptive=1x1",
      " nchw 1x16x7x7 k7",
      " nchw 3x11x2x4 adaptive=1x1 divisor=3",
      " nchw 1x40x1x2 adaptive=1x1",
      " ncw 5x7x9 k9",
      " ncdhw 2x9x3x4x5 k3x4x5",
      " nhwc 33x4x6x1 adaptive=1x1",
      " nchw 1x17x3x3 k3 s1 p0:2",
      " nchw 4x16x9x3 k9x3 d1x1 no_count_padding",
      " nchw 1x18x60x61 adaptive=1x1",
  };
  for (const std::string dtype : {"f32", "f64", "f16", "bf16"}) {
    bool takes = false;
    for (size_t i = 0; i < windows.size(); ++i) {
      const auto problem = ParseProblem("avg " + dtype + windows[i]);
      ASSERT_TRUE(problem.ok()) << windows[i];
      for (const uint64_t seed : {1, 2, 3}) ASSERT_EQ(CheckProblem(*problem, i + 100 * seed, {{2}, false}).failure, "");
      for (const Algorithm& algorithm : SimdAlgorithms(POOLGRAD_OP_FORWARD)) {
        const bool is = algorithm.name == std::string("fwd_cf_average_planes");
        takes = takes ||
                (is && !algorithm.make(*Resolve(*problem), POOLGRAD_OP_FORWARD, {SimdTargets().front(), 2}).refusal);
      }
    }
    EXPECT_EQ(Runs().count("fwd_cf_average_planes " + dtype), takes ? 1u : 0u);
    EXPECT_TRUE(takes || dtype != "f32");  // which every instruction set has
  }
}

}  // namespace
}  // namespace poolgrad::oracle
