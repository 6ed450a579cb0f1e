// Each dialect agrees with its framework, matter by matter: ties, NaN, all -inf, signed zeros, padding, SAME, rounding,
// windows with no valid tap, index numbering, windows longer than the input, empty batches, unpooling, and what an
// average counts. The expected values were measured on the frameworks (or read in their source) and are written out
// here.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/pool.h"

namespace poolgrad::oracle {
namespace {

// What differs between dialects for windows of three taps; see the NaN rules in poolgrad.h.
struct Expected {
  const char* dialect;
  int64_t tie_2d;      // winner of {5, 5, 5} along the width of a plane
  int64_t tie_3d;      // the same in a volume
  int64_t nan_first;   // {NaN, 1, 2}
  int64_t nan_middle;  // {2, NaN, 1}
  int64_t nan_twice;   // {NaN, 1, NaN}
  int64_t nan_only;    // {NaN, NaN, NaN}
  int64_t lowest_2d;   // {-inf, -inf, -inf}
};

constexpr Expected kExpected[] = {
    {"", 0, 0, 0, 1, 0, 0, 0},       {"torch", 0, 0, 0, 1, 2, 2, 0}, {"tensorflow", 0, 0, 0, 0, 0, 0, 0},
    {"tfjs", 0, 2, 2, 0, 1, -1, -1}, {"jax", 0, 0, 0, 1, 0, 0, 0},   {"onnx", 0, 0, 0, 1, 0, 0, 0},
};

TEST(Dialect, Ties) {
  for (const Expected& e : kExpected) {
    EXPECT_EQ(Pool(std::string("max f32 nchw 1x1x1x3 k1x3 ") + e.dialect, {5, 5, 5}).winners, Indices{e.tie_2d})
        << e.dialect;
    EXPECT_EQ(Pool(std::string("max f32 ncdhw 1x1x1x1x3 k1x1x3 ") + e.dialect, {5, 5, 5}).winners, Indices{e.tie_3d})
        << e.dialect;
    EXPECT_EQ(Pool(std::string("max f32 ncw 1x1x3 k3 ") + e.dialect, {5, 5, 5}).winners, Indices{e.tie_2d})
        << e.dialect;
  }
}

TEST(Dialect, Nan) {
  for (const Expected& e : kExpected) {
    const std::pair<Floats, int64_t> cases[] = {{{kNan, 1, 2}, e.nan_first},
                                                {{2, kNan, 1}, e.nan_middle},
                                                {{kNan, 1, kNan}, e.nan_twice},
                                                {{kNan, kNan, kNan}, e.nan_only}};
    for (const auto& [x, winner] : cases) {
      const Pooled pooled = Pool(std::string("max f32 nchw 1x1x1x3 k1x3 ") + e.dialect, x);
      EXPECT_EQ(pooled.winners, Indices{winner}) << e.dialect;
      const float y = pooled.y[0];
      const float expected = winner < 0 ? -kInf : x[static_cast<size_t>(winner)];
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(y) : y == expected) << e.dialect << " y is " << y;
    }
  }
}

TEST(Dialect, AllMinusInfinity) {
  for (const Expected& e : kExpected) {
    const Pooled pooled = Pool(std::string("max f32 nchw 1x1x1x3 k1x3 ") + e.dialect, {-kInf, -kInf, -kInf});
    EXPECT_EQ(pooled.winners, Indices{e.lowest_2d}) << e.dialect;
    EXPECT_EQ(pooled.y[0], -kInf) << e.dialect;
    const Floats dx = Gradient(std::string("max f32 nchw 1x1x1x3 k1x3 ") + e.dialect, {-kInf, -kInf, -kInf}, {4});
    Floats expected(3, 0.0f);
    if (e.lowest_2d >= 0) expected[static_cast<size_t>(e.lowest_2d)] = 4;
    EXPECT_EQ(dx, expected) << e.dialect;
  }
}

TEST(Dialect, TheFirstValidTapWinsBehindPadding) {
  // The first tap of window 0 is padding; the first valid one is input 0.
  for (const Expected& e : kExpected) {
    const Pooled pooled = Pool(std::string("max f32 ncw 1x1x3 k3 s1 p1 ") + e.dialect, {-kInf, -kInf, 1});
    EXPECT_EQ(pooled.winners[0], e.lowest_2d) << e.dialect;
  }
}

TEST(Dialect, SignedZerosAreEqual) {
  for (const Expected& e : kExpected) {
    const Pooled pooled = Pool(std::string("max f32 nchw 1x1x1x2 k1x2 ") + e.dialect, {-0.0f, 0.0f});
    EXPECT_EQ(pooled.winners, Indices{0}) << e.dialect;
    EXPECT_TRUE(std::signbit(pooled.y[0])) << e.dialect;
  }
}

TEST(Dialect, PaddingIsNeverACandidate) {
  for (const Expected& e : kExpected) {
    const Pooled pooled = Pool(std::string("max f32 ncw 1x1x4 k2 s2 p1 ") + e.dialect, {-5, -6, -7, -8});
    EXPECT_EQ(pooled.y, (Floats{-5, -6, -8})) << e.dialect << ": zeros of padding would win";
    EXPECT_EQ(pooled.winners, (Indices{0, 1, 3})) << e.dialect;
  }
}

TEST(Dialect, PaddingLimits) {
  const auto out = [](const std::string& rest) { return OutOf("max f32 ncw 1x1x8 " + rest); };
  EXPECT_EQ(out("k4 s1 p3"), "11");
  EXPECT_EQ(out("k4 s1 p9"), "23");
  EXPECT_EQ(out("k4 s1 p2 torch"), "9");
  EXPECT_EQ(out("k4 s1 p3 torch"), "pad_lo[0] is 3; the torch dialect allows at most half of the window, 2");
  EXPECT_EQ(out("k4 s1 p3 tensorflow"), "11");
  EXPECT_EQ(out("k4 s1 p4 tensorflow"), "pad_lo[0] is 4; the tensorflow dialect wants less than the window, 4");
  EXPECT_EQ(out("k4 s1 p3 tfjs"), "11");
  EXPECT_EQ(out("k4 s1 p0:5 onnx"), "10");
  EXPECT_EQ(out("k4 s1 p-2:-1 jax"), "2");
  for (const char* dialect : {"", "torch", "tensorflow", "tfjs", "onnx"}) {
    EXPECT_EQ(out(std::string("k4 s1 p-1 ") + dialect).find("pad_lo[0] is -1;"), 0u) << dialect;
  }
}

TEST(Dialect, JaxCropsWithNegativePadding) {
  const Pooled pooled = Pool("max f32 ncw 1x1x6 k2 s1 p-1:-2 jax", {9, 1, 2, 3, 9, 9});
  EXPECT_EQ(pooled.y, (Floats{2, 3})) << "9s lie in the cropped ends";
  EXPECT_EQ(pooled.winners, (Indices{2, 3}));
  EXPECT_EQ(Gradient("max f32 ncw 1x1x6 k2 s1 p-1:-2 jax", {9, 1, 2, 3, 9, 9}, {5, 7}), (Floats{0, 0, 5, 7, 0, 0}));
}

TEST(Dialect, JaxCropsAndRoundsDownOnly) {
  // With ceil the second window would reach the cropped 4: XLA, which knows no ceil, never looks there.
  EXPECT_EQ(OutOf("max f32 ncw 1x1x4 k2 s2 p0:-1 jax"), "1");
  for (const char* rounding : {"ceil", "ceil_drop", "ceil_keep", "round"}) {
    EXPECT_EQ(OutOf(std::string("max f32 ncw 1x1x4 k2 s2 p0:-1 jax ") + rounding)
                  .find("pad_hi[0] is -1; it crops, and with rounding "),
              0u)
        << rounding;
    EXPECT_EQ(
        OutOf(std::string("avg f32 ncw 1x1x4 k2 s3 p0:-1 count_padding jax ") + rounding).find("pad_hi[0] is -1;"), 0u)
        << rounding;
  }
  EXPECT_EQ(OutOf("max f32 ncw 1x1x5 k2 s2 p-1:0 ceil jax"), "2") << "the low end is never looked at";
  EXPECT_EQ(OutOf("max f32 ncw 1x1x5 k2 s2 p0:1 ceil jax"), "3");
}

TEST(Dialect, XlasMaximumPassesNanOnAndItsGradientComparesOtherwise) {
  EXPECT_TRUE(std::isnan(Pool("max f32 ncw 1x1x3 k3 jax", {2, kNan, 1}).y[0])) << "reduce_window's value";
  EXPECT_EQ(Gradient("max f32 ncw 1x1x3 k3 jax", {2, kNan, 1}, {7}), (Floats{0, 7, 0})) << "to the NaN that y is";
  EXPECT_EQ(Gradient("max f32 ncw 1x1x3 k3 jax nan=greater_equal", {2, kNan, 1}, {7}), (Floats{0, 0, 7}))
      << "select_and_scatter, whose ge no NaN passes";
}

TEST(Dialect, OnnxAutoPadWithCeilMode) {
  // VALID, 8 elements, kernel 3, stride 2: the operator's text says ceil((8 - 3 + 1) / 2) = 3; its shape inference and
  // its runtimes give ceil((8 - 3) / 2) + 1 = 4, as for explicit padding, and so do we.
  EXPECT_EQ(OutOf("max f32 ncw 1x1x8 k3 s2 valid onnx"), "3");
  EXPECT_EQ(OutOf("max f32 ncw 1x1x8 k3 s2 valid ceil onnx"), "4");
  EXPECT_EQ(OutOf("max f32 ncw 1x1x8 k3 s2 p0 ceil onnx"), "4");
  EXPECT_EQ(Pool("max f32 ncw 1x1x8 k3 s2 valid ceil onnx", Iota(8)).y, (Floats{3, 5, 7, 8}));
  // SAME fixes the output size, ceil(in / stride); ceil_mode beside it changes nothing.
  for (const char* same : {"same", "same_lower"}) {
    for (int in = 1; in <= 12; ++in)
      for (int k = 1; k <= 4; ++k)
        for (int s = 1; s <= 4; ++s) {
          const std::string text = "max f32 ncw 1x1x" + std::to_string(in) + " k" + std::to_string(k) + " s" +
                                   std::to_string(s) + " " + same;
          EXPECT_EQ(OutOf(text + " ceil onnx"), std::to_string((in + s - 1) / s)) << text;
          EXPECT_EQ(Pool(text + " ceil onnx", Iota(in)).y, Pool(text + " onnx", Iota(in)).y) << text;
        }
  }
  EXPECT_EQ(OutOf("max f32 ncw 1x1x8 k3 s2 same ceil").find("rounding is ceil_drop;"), 0u)
      << "elsewhere they contradict each other";
  EXPECT_EQ(OutOf("max f32 ncw 1x1x8 k3 s2 same ceil_keep onnx").find("rounding is ceil_keep;"), 0u);
}

TEST(Dialect, Same) {
  for (const char* dialect : {"", "tensorflow", "tfjs", "jax", "onnx"}) {
    const Plan plan(std::string("max f32 ncw 1x1x5 k2 s2 same ") + dialect);
    EXPECT_EQ(plan.info().out[0], 3) << dialect;
    EXPECT_EQ(plan.info().pad_lo[0], 0) << dialect;
    EXPECT_EQ(plan.info().pad_hi[0], 1) << dialect;
    EXPECT_EQ(plan.forward(Floats{1, 2, 3, 4, 5}), (Floats{2, 4, 5})) << dialect;
    const Plan clamped(std::string("max f32 ncw 1x1x5 k1 s3 same ") + dialect);
    EXPECT_EQ(clamped.info().pad_lo[0] + clamped.info().pad_hi[0], 0) << dialect << ": the total is clamped at 0";
  }
  const Plan lower("max f32 ncw 1x1x5 k2 s2 same_lower onnx");
  EXPECT_EQ(lower.info().pad_lo[0], 1);
  EXPECT_EQ(lower.forward(Floats{1, 2, 3, 4, 5}), (Floats{1, 3, 5}));
}

TEST(Dialect, Rounding) {
  // 5, kernel 2, stride 2, padding 1: (5 + 2 - 2) / 2 = 2.5, and a fourth window would start in the high padding.
  const std::string rest = "max f32 ncw 1x1x5 k2 s2 p1 ";
  for (const Expected& e : kExpected) EXPECT_EQ(OutOf(rest + e.dialect), "3") << e.dialect << ": floor by default";
  EXPECT_EQ(OutOf(rest + "ceil"), "3");
  EXPECT_EQ(OutOf(rest + "ceil torch"), "3") << "dropped";
  EXPECT_EQ(OutOf(rest + "ceil onnx"), "3") << "as torch, since opset 22's fix";
  EXPECT_EQ(OutOf(rest + "ceil tfjs"), "4") << "kept";
  EXPECT_EQ(OutOf(rest + "round tfjs"), "4") << "Math.round(2.5) is 3";
  EXPECT_EQ(OutOf("max f32 ncw 1x1x6 k3 s2 ceil torch"), "3") << "a window that starts in the input stays";
}

TEST(Dialect, TheKeptWindowInPaddingHasNoRoute) {
  const Pooled pooled = Pool("max f32 ncw 1x1x5 k2 s2 p1 ceil tfjs", {1, 2, 3, 4, 5});
  EXPECT_EQ(pooled.y, (Floats{1, 3, 5, -kInf}));
  EXPECT_EQ(pooled.winners, (Indices{0, 2, 4, -1}));
}

TEST(Dialect, AWindowWithNoValidTapGivesLowestAndNoGradient) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "max f32 ncw 1x1x2 k2 s2 p2"},     {"torch", "max f32 ncw 1x1x1 k2 s1 p1 d2"},
      {"tfjs", "max f32 ncw 1x1x2 k2 s2 p2"}, {"jax", "max f32 ncw 1x1x2 k2 s2 p2"},
      {"onnx", "max f32 ncw 1x1x2 k2 s2 p2"},
  };
  for (const auto& [dialect, problem] : cases) {
    const Plan plan(std::string(problem) + " " + dialect);
    ASSERT_EQ(plan.info().may_have_no_route, 1) << dialect;
    const Floats x(static_cast<size_t>(plan.info().x_elements), 3.0f);
    const auto [y, routes] = plan.forward_routes(x);
    EXPECT_EQ(y[0], -kInf) << dialect;
    EXPECT_EQ(plan.indices(routes, Numbering::torch)[0], -1) << dialect;
    Floats dy(y.size(), 0.0f);
    dy[0] = 7;
    EXPECT_EQ(plan.backward(dy, routes), Floats(x.size(), 0.0f)) << dialect;
    EXPECT_EQ(plan.gather(x, routes)[0], 0) << dialect;
  }
}

TEST(Dialect, IndexNumbering) {
  // Two batches, two channels, 2x3 planes; the winner of every plane is its last element but one: h = 1, w = 1.
  const std::map<Numbering, Indices> expected = {
      {Numbering::torch, {4, 4, 4, 4}},
      {Numbering::tensorflow, {8, 9, 8, 9}},
      {Numbering::tensorflow_batch, {8, 9, 20, 21}},
      {Numbering::onnx, {4, 10, 16, 22}},
      {Numbering::onnx_column, {3, 9, 15, 21}},
  };
  for (const char* layout : {"nchw 2x2x2x3", "nhwc 2x2x3x2"}) {
    const Plan plan(std::string("max f32 ") + layout + " k2x3");
    Floats x(24, 0.0f);
    const bool last = layout[1] == 'h';
    for (size_t n = 0; n < 2; ++n)
      for (size_t c = 0; c < 2; ++c) x[last ? ((n * 2 + 1) * 3 + 1) * 2 + c : ((n * 2 + c) * 2 + 1) * 3 + 1] = 1.0f;
    const auto [y, routes] = plan.forward_routes(x);
    for (const auto& [numbering, indices] : expected) {
      EXPECT_EQ(plan.indices(routes, numbering), indices) << layout << " numbering " << static_cast<int>(numbering);
      EXPECT_EQ(plan.routes_from(indices, numbering), routes) << layout << " numbering " << static_cast<int>(numbering);
    }
  }
}

TEST(Dialect, AWindowLongerThanThePaddedInput) {
  for (const char* dialect : {"", "torch", "tensorflow", "onnx"}) {
    EXPECT_EQ(OutOf(std::string("max f32 ncw 1x1x3 k4 s1 ") + dialect),
              "kernel[0] is 4; with dilation 1 the window spans 4, longer than the padded input, 3")
        << dialect;
  }
  EXPECT_EQ(OutOf("max f32 ncw 1x1x3 k4 s1 jax"), "0") << "empty";
  EXPECT_EQ(OutOf("max f32 ncw 1x1x3 k9 s1 jax"), "0") << "empty";
  EXPECT_EQ(OutOf("max f32 ncw 1x1x3 k4 s1 tfjs"), "0") << "empty";
  EXPECT_NE(OutOf("max f32 ncw 1x1x3 k9 s1 tfjs").find("longer than the padded input"), std::string::npos) << "throws";
  EXPECT_EQ(OutOf("max f32 nchw 1x1x1x4 k2x1 s3 ceil tfjs"), "1x2") << "its formula, ceil(-1 / 3) + 1";
  for (const char* rounding : {"floor", "ceil", "round"})
    EXPECT_EQ(OutOf("max f32 ncdhw 1x1x1x4x4 k2x1x1 s3 tfjs " + std::string(rounding)), "0x2x2") << "volumes are empty";
  const Plan empty("max f32 ncw 1x2x3 k4 s1 jax");
  EXPECT_EQ(empty.backward(Floats{}, empty.make_routes()), Floats(6, 0.0f))
      << "no window, no gradient; dx is still written";
}

TEST(Dialect, BatchZeroAndChannelsZeroGiveEmptyResults) {
  for (const Expected& e : kExpected) {
    for (const char* shape : {"nchw 0x3x4x4", "nchw 2x0x4x4", "nhwc 0x4x4x3", "nhwc 2x4x4x0"}) {
      const Plan plan(std::string("max f32 ") + shape + " k2 " + e.dialect);
      const auto [y, routes] = plan.forward_routes(Floats{});
      EXPECT_TRUE(y.empty()) << shape << " " << e.dialect;
      EXPECT_TRUE(plan.backward(Floats{}, routes).empty()) << shape << " " << e.dialect;
      EXPECT_TRUE(plan.backward_x(Floats{}, Floats{}).empty()) << shape << " " << e.dialect;
      EXPECT_TRUE(plan.indices(routes, Numbering::onnx).empty()) << shape << " " << e.dialect;
    }
  }
}

TEST(Dialect, UnpoolToAGivenShape) {
  // torch and ours: the indices are numbered in the shape that is asked for (here 2x5, a longer row than the window
  // implies).
  const Plan plan("max f32 nchw 1x1x2x5 k2 s2");
  EXPECT_EQ(plan.unpool_indices(Floats{6, 8}, Indices{5, 9}, Numbering::torch), (Floats{0, 0, 0, 0, 0, 6, 0, 0, 0, 8}));
  // onnx: numbered in the shape implied by the window, 2x4, and then zero-extended: index 5 is row 1, column 1.
  EXPECT_EQ(plan.unpool_indices(Floats{6, 8}, Indices{5, 7}, Numbering::onnx, Indices{2, 4}),
            (Floats{0, 0, 0, 0, 0, 0, 6, 0, 8, 0}));
}

TEST(Dialect, WhatAnAverageCounts) {
  // The first window is one tap of padding and 4; the second 8 and 2.
  const auto average = [](const std::string& rest) {
    return Plan("avg f32 ncw 1x1x3 k2 s2 p1:0 " + rest).forward(Floats{4, 8, 2});
  };
  EXPECT_EQ(average(""), (Floats{4, 5})) << "default: padding does not count";
  EXPECT_EQ(average("torch"), (Floats{2, 5})) << "torch counts padding";
  EXPECT_EQ(average("tensorflow"), (Floats{4, 5}));
  EXPECT_EQ(average("tfjs"), (Floats{4, 5}));
  EXPECT_EQ(average("onnx"), (Floats{4, 5}));
  EXPECT_EQ(average("jax"), (Floats{2, 5})) << "Flax's avg_pool counts padding unless count_include_pad=False";
  EXPECT_EQ(average("jax no_count_padding"), (Floats{4, 5}));
  EXPECT_EQ(average("onnx count_padding"), (Floats{2, 5})) << "an attribute there";
  EXPECT_EQ(average("torch no_count_padding"), (Floats{4, 5}));
  EXPECT_EQ(average("torch divisor=4"), (Floats{1, 2.5}));
  const auto gradient = [](const std::string& rest) {
    return Plan("avg f32 ncw 1x1x3 k2 s2 p1:0 " + rest).backward(Floats{6, 10});
  };
  EXPECT_EQ(gradient(""), (Floats{6, 5, 5}));
  EXPECT_EQ(gradient("torch"), (Floats{3, 5, 5}));
  EXPECT_EQ(gradient("tfjs"), (Floats{3, 5, 5})) << "tfjs divides its gradient by the whole window";
}

TEST(Dialect, TorchCountsPaddingOnlyAsFarAsThePaddingGoes) {
  // ceil adds a last window that hangs over the padded end: 18, one tap of padding, and one beyond it that counts for
  // nobody.
  const Plan plan("avg f32 ncw 1x1x6 k3 s3 p1 ceil torch");
  ASSERT_EQ(plan.info().out[0], 3);
  EXPECT_EQ(plan.forward(Floats{3, 6, 9, 12, 15, 18}), (Floats{3, 12, 9}));
}

}  // namespace
}  // namespace poolgrad::oracle
