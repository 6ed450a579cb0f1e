// Resolving a problem: output sizes, padding, rounding, every refusal with its sentence; and the one-line text form.
#include "spec/problem.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/random_problem.h"

namespace poolgrad {
namespace {

Result<Problem> ResolveText(const std::string& text) {
  const auto raw = ParseProblem(text);
  if (!raw.ok()) return raw.status();
  return Resolve(*raw);
}

Axis Width(const std::string& text) {
  const auto problem = ResolveText(text);
  EXPECT_TRUE(problem.ok()) << text << ": " << problem.status().sentence();
  return problem.ok() ? problem->width() : Axis{};
}

TEST(Problem, RoundingOfTheOutputSize) {
  // One axis of 10, kernel 3, stride 2: (10 - 3) / 2 = 3.5.
  EXPECT_EQ(Width("max f32 ncw 1x1x10 k3 s2").out, 4);
  EXPECT_EQ(Width("max f32 ncw 1x1x10 k3 s2 floor").out, 4);
  EXPECT_EQ(Width("max f32 ncw 1x1x10 k3 s2 ceil").out, 5);
  EXPECT_EQ(Width("max f32 ncw 1x1x10 k3 s2 round").out, 5) << "a half rounds up";
  // (11 - 3) / 3 = 2.67 and (10 - 3) / 3 = 2.33.
  EXPECT_EQ(Width("max f32 ncw 1x1x11 k3 s3 round").out, 4);
  EXPECT_EQ(Width("max f32 ncw 1x1x10 k3 s3 round").out, 3);
  EXPECT_EQ(Width("max f32 ncw 1x1x10 k3 s3 ceil").out, 4);
}

TEST(Problem, TheTwoCeilsDifferInALastWindowThatStartsInTheHighPadding) {
  // 5 with padding 1 and 1, kernel 2, stride 2: ceil(5 / 2) + 1 = 4 windows, and the fourth starts at 5, in the
  // padding.
  EXPECT_EQ(Width("max f32 ncw 1x1x5 k2 s2 p1 ceil_keep").out, 4);
  EXPECT_EQ(Width("max f32 ncw 1x1x5 k2 s2 p1 ceil_drop").out, 3);
  EXPECT_EQ(Width("max f32 ncw 1x1x5 k2 s2 p1 ceil").out, 3);
  // Nothing to drop when the last window starts in the input.
  EXPECT_EQ(Width("max f32 ncw 1x1x6 k3 s2 p1 ceil_drop").out, 4);
  EXPECT_EQ(Width("max f32 ncw 1x1x6 k3 s2 p1 ceil_keep").out, 4);
}

TEST(Problem, SamePutsTheOddOneHighOrLow) {
  const Axis upper = Width("max f32 ncw 1x1x10 k4 s1 same");
  EXPECT_EQ(upper.out, 10);
  EXPECT_EQ(upper.pad_lo, 1);
  EXPECT_EQ(upper.pad_hi, 2);
  const Axis lower = Width("max f32 ncw 1x1x10 k4 s1 same_lower");
  EXPECT_EQ(lower.out, 10);
  EXPECT_EQ(lower.pad_lo, 2);
  EXPECT_EQ(lower.pad_hi, 1);
}

TEST(Problem, SameClampsItsTotalAtZero) {
  const Axis a = Width("max f32 ncw 1x1x10 k1 s3 same");  // ceil(10 / 3) = 4 windows need only 10
  EXPECT_EQ(a.out, 4);
  EXPECT_EQ(a.pad_lo, 0);
  EXPECT_EQ(a.pad_hi, 0);
}

TEST(Problem, SameAlwaysGivesCeilOfInOverStride) {
  for (int in = 1; in <= 20; ++in)
    for (int k = 1; k <= 6; ++k)
      for (int s = 1; s <= 5; ++s)
        for (const char* word : {"same", "same_lower"}) {
          const std::string text = "max f32 ncw 1x1x" + std::to_string(in) + " k" + std::to_string(k) + " s" +
                                   std::to_string(s) + " " + word;
          const Axis a = Width(text);
          ASSERT_EQ(a.out, (in + s - 1) / s) << text;
          ASSERT_LE(std::abs(a.pad_hi - a.pad_lo), 1) << text;
        }
}

TEST(Problem, EveryRefusalIsASentenceThatNamesTheArgument) {
  const auto refusal = [](auto&& change) {
    poolgrad_problem p = DefaultProblem();
    p.in[0] = p.in[1] = 8;
    p.kernel[0] = p.kernel[1] = 2;
    change(p);
    const auto resolved = Resolve(p);
    return resolved.ok() ? std::string("accepted") : resolved.status().sentence();
  };
  using P = poolgrad_problem;
  constexpr int64_t kHuge = INT64_MAX;
  const std::pair<std::string, std::string> cases[] = {
      {refusal([](P& p) { p.stride[1] = 0; }), "stride[1] is 0; every stride must be at least 1"},
      {refusal([](P& p) { p.stride[0] = -3; }), "stride[0] is -3; every stride must be at least 1"},
      {refusal([](P& p) { p.kernel[1] = 0; }), "kernel[1] is 0; every kernel size must be at least 1"},
      {refusal([](P& p) { p.dilation[0] = 0; }), "dilation[0] is 0; every dilation must be at least 1"},
      {refusal([](P& p) { p.rank = 4; }), "rank is 4; it must be 1, 2 or 3"},
      {refusal([](P& p) { p.batch = -1; }), "batch is -1; it must be at least 0"},
      {refusal([](P& p) { p.channels = -7; }), "channels is -7; it must be at least 0"},
      {refusal([](P& p) { p.in[0] = 0; }), "in[0] is 0; every spatial size must be at least 1"},
  };
  for (const auto& [got, expected] : cases) EXPECT_EQ(got, expected);

  // The wording of these may grow; what they must do is name the argument and its value.
  const std::pair<std::string, std::string> named[] = {
      {refusal([](P& p) { p.dilation[1] = kHuge; }), "dilation[1] is 9223372036854775807"},
      {refusal([](P& p) { p.kernel[0] = kHuge; }), "kernel[0] is 9223372036854775807"},
      {refusal([](P& p) { p.stride[0] = kHuge; }), "stride[0] is 9223372036854775807"},
      {refusal([](P& p) { p.pad_lo[0] = kHuge; }), "pad_lo[0] is 9223372036854775807"},
      {refusal([](P& p) { p.pad_hi[1] = kHuge; }), "pad_hi[1] is 9223372036854775807"},
      {refusal([](P& p) { p.pad_lo[0] = -1; }), "pad_lo[0] is -1"},
      {refusal([](P& p) { p.pad_lo[0] = INT64_MIN; }), "pad_lo[0] is -9223372036854775808"},
      {refusal([](P& p) { p.in[1] = kHuge; }), "in[1] is 9223372036854775807"},
      {refusal([](P& p) { p.batch = p.channels = int64_t{1} << 40; }), "input"},
      {refusal([](P& p) { p.batch = 0, p.in[0] = p.in[1] = int64_t{1} << 40; }), "input"},
      {refusal([](P& p) { p.kernel[0] = 9; }), "kernel[0] is 9"},
      {refusal([](P& p) { p.kernel[0] = int64_t{1} << 20, p.dilation[0] = int64_t{1} << 39; }), "dilation[0]"},
      {refusal([](P& p) { p.dtype = 7; }), "dtype is 7"},
      {refusal([](P& p) { p.dtype = -1; }), "dtype is -1"},
      {refusal([](P& p) { p.kind = 2; }), "kind is 2"},
      {refusal([](P& p) { p.layout = 9; }), "layout is 9"},
      {refusal([](P& p) { p.dialect = 6; }), "dialect is 6"},
      {refusal([](P& p) { p.padding = 4; }), "padding is 4"},
      {refusal([](P& p) { p.rounding = -1; }), "rounding is -1"},
      {refusal([](P& p) { p.ties = 5; }), "ties is 5"},
      {refusal([](P& p) { p.nan = 6; }), "nan is 6"},
      {refusal([](P& p) { p.device = 2; }), "device is 2"},
      {refusal([](P& p) { p.device_index = -1; }), "device_index is -1"},
      {refusal([](P& p) { p.count_padding = 3; }), "count_padding is 3"},
      {refusal([](P& p) { p.route_bits = 3; }), "route_bits is 3"},
      {refusal([](P& p) { p.kernel[0] = 3, p.route_bits = 2; }), "route_bits is 2"},
      {refusal([](P& p) { p.ties = POOLGRAD_TIES_ALL, p.route_bits = 8; }), "route_bits is 8"},
      {refusal([](P& p) { p.divisor = 3; }), "divisor is 3"},
      {refusal([](P& p) { p.kind = POOLGRAD_AVERAGE, p.divisor = -3; }), "divisor is -3"},
      {refusal([](P& p) { p.kind = POOLGRAD_AVERAGE, p.dtype = POOLGRAD_I8; }), "dtype is i8"},
      {refusal([](P& p) { p.padding = POOLGRAD_PAD_SAME, p.rounding = POOLGRAD_ROUND_CEIL; }), "rounding is ceil"},
      {refusal([](P& p) { p.reserved = 1; }), "reserved is 1"},
      {refusal([](P& p) { p.outputs[0] = 2, p.kernel[0] = 0, p.dilation[0] = 0; }),
       "dilation[0] is 0; windows by table"},
      {refusal([](P& p) { p.outputs[0] = 2, p.kernel[0] = 0, p.whole_in[0] = 16; }),
       "whole_in[0] is 16; windows by table lie inside a whole input"},
  };
  for (const auto& [got, part] : named)
    EXPECT_NE(got.find(part), std::string::npos) << "'" << got << "' lacks '" << part << "'";
}

TEST(Problem, OneTapHasNoDilation) {
  const auto raw = ParseProblem("max f32 nchw 1x1x9x9 k3x1 s1 d2x4294967296");
  ASSERT_TRUE(raw.ok());
  const auto resolved = Resolve(*raw);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->axis[1].dilation, 2);
  EXPECT_EQ(resolved->axis[2].dilation, 1);
}

TEST(Problem, RoutesOfIntegersFitAFloatPlan) {
  for (const char* window :
       {"k2", "k2 nan=ignore", "k2 tfjs", "k3 tfjs ceil p1", "k4 nan=ignore", "k2 tfjs ties=split"}) {
    const auto format = [&](const char* type) {
      return ResolveText(std::string("max ") + type + " nchw 1x2x16x16 " + window)->routes;
    };
    for (const char* type : {"f64", "f16", "bf16", "i8", "u8", "i32"}) {
      EXPECT_EQ(format(type).bits, format("f32").bits) << type << " " << window;
      EXPECT_EQ(format(type).bytes(), format("f32").bytes()) << type << " " << window;
      EXPECT_EQ(format(type).may_be_none, format("f32").may_be_none) << type << " " << window;
    }
  }
}

TEST(Problem, TheLargestNumbersThatAreAcceptedDoNotOverflow) {
  const Axis a = Width("max f32 ncw 1x1x1000000000000 k1000000 s1000000 p500000 d1000000");
  EXPECT_EQ(a.out, (1000000000000 + 1000000 - a.extent()) / 1000000 + 1);
  const auto padded = ResolveText("max f32 ncw 1x1x8 k2 s1099511627776 p1099511627776");
  ASSERT_TRUE(padded.ok()) << padded.status().sentence();
  EXPECT_TRUE(padded->routes.may_be_none);
}

TEST(ProblemText, SaysEverythingInOneLine) {
  const auto raw = ParseProblem(
      "avg bf16 ndhwc 2x3x4x5x6 k1x2x2 s1x2x1 p0:1x1x0:2 d1x1x2 ceil_keep torch no_count_padding divisor=7");
  ASSERT_TRUE(raw.ok()) << raw.status().sentence();
  EXPECT_EQ(raw->kind, POOLGRAD_AVERAGE);
  EXPECT_EQ(raw->dtype, POOLGRAD_BF16);
  EXPECT_EQ(raw->layout, POOLGRAD_CHANNELS_LAST);
  EXPECT_EQ(raw->rank, 3);
  EXPECT_EQ(raw->batch, 2);
  EXPECT_EQ(raw->channels, 6);
  EXPECT_EQ(std::vector<int64_t>(raw->in, raw->in + 3), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(std::vector<int64_t>(raw->stride, raw->stride + 3), (std::vector<int64_t>{1, 2, 1}));
  EXPECT_EQ(std::vector<int64_t>(raw->pad_lo, raw->pad_lo + 3), (std::vector<int64_t>{0, 1, 0}));
  EXPECT_EQ(std::vector<int64_t>(raw->pad_hi, raw->pad_hi + 3), (std::vector<int64_t>{1, 1, 2}));
  EXPECT_EQ(std::vector<int64_t>(raw->dilation, raw->dilation + 3), (std::vector<int64_t>{1, 1, 2}));
  EXPECT_EQ(raw->rounding, POOLGRAD_ROUND_CEIL_KEEP);
  EXPECT_EQ(raw->dialect, POOLGRAD_DIALECT_TORCH);
  EXPECT_EQ(raw->count_padding, 0);
  EXPECT_EQ(raw->divisor, 7);
}

TEST(ProblemText, ANulIsNoEnd) {
  using namespace std::string_view_literals;
  const auto parsed = ParseProblem("max f32 nchw 1x1x8x8 k2\0 bananas"sv);
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().sentence().find("'k2\\x00'"), std::string::npos) << parsed.status().sentence();
}

TEST(ProblemText, TheStrideDefaultsToTheKernel) {
  const auto raw = ParseProblem("max f32 nchw 1x1x8x8 k2x3");
  ASSERT_TRUE(raw.ok());
  EXPECT_EQ(raw->stride[0], 2);
  EXPECT_EQ(raw->stride[1], 3);
}

TEST(ProblemText, WordsOfTablesComeInAnyOrder) {
  for (const char* text : {"adaptive=0x4 starts=0,2x sizes=3,2x", "sizes=3,2x starts=0,2x adaptive=0x4",
                           "starts=0,2x adaptive=0x4 sizes=3,2x", "adaptive=0x4 sizes=3,2x starts=0,2x"}) {
    const auto raw = ParseProblem("max f32 nchw 1x1x8x8 " + std::string(text));
    ASSERT_TRUE(raw.ok()) << raw.status().sentence();
    EXPECT_EQ(FormatProblem(*raw), "max f32 nchw 1x1x8x8 adaptive=0x4 starts=0,2x sizes=3,2x");
  }
}

TEST(ProblemText, EveryDrawnProblemSurvivesTheRoundTrip) {
  oracle::XorShift random(7);
  for (int i = 0; i < 3000; ++i) {
    poolgrad_problem problem = oracle::DrawProblem(random);
    if (problem.padding !=
        POOLGRAD_PAD_EXPLICIT) {  // pads beside another padding kind say nothing, so the text omits them
      std::fill(problem.pad_lo, problem.pad_lo + 3, 0);
      std::fill(problem.pad_hi, problem.pad_hi + 3, 0);
    }
    const std::string text = FormatProblem(problem);
    const auto again = ParseProblem(text);
    ASSERT_TRUE(again.ok()) << text << ": " << again.status().sentence();
    ASSERT_EQ(FormatProblem(*again), text);
    for (int a = problem.rank; a < 3; ++a) {  // axes past the rank are not part of a problem
      for (int64_t* axes : {problem.stride, problem.dilation}) axes[a] = 1;
    }
    poolgrad_problem parsed = *again;
    for (int a = problem.rank; a < 3; ++a) {
      for (int64_t* axes : {parsed.stride, parsed.dilation}) axes[a] = 1;
    }
    for (int a = 0; a < 3; ++a) {  // lists are equal by what they hold, which their text says
      parsed.starts[a] = parsed.sizes[a] = problem.starts[a] = problem.sizes[a] = nullptr;
    }
    ASSERT_EQ(std::memcmp(&parsed, &problem, sizeof problem), 0) << text;
  }
}

TEST(ProblemText, WordsThatAreNotUnderstoodAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "too short"},
      {"max f32 nchw", "too short"},
      {"max f32 nchw 1x1x4x4 s2",
       "'max f32 nchw 1x1x4x4 s2' is too short; it has kind, type, layout, shape and windows, like"},
      {"median f32 nchw 1x1x8x8 k2", "'median'"},
      {"max f31 nchw 1x1x8x8 k2", "'f31'"},
      {"max f32 chwn 1x1x8x8 k2", "'chwn'"},
      {"max f32 nchw 1x1x8 k2", "'1x1x8'"},
      {"max f32 nchw 1x1x8xq k2", "'1x1x8xq'"},
      {"max f32 nchw 1x1x8x99999999999999999999 k2", "'1x1x8x99999999999999999999'"},
      {"max f32 nchw 1x1x8x8 k2x2x2", "'k2x2x2'"},
      {"max f32 nchw 1x1x8x8 k", "'k'"},
      {"max f32 nchw 1x1x8x8 k2 p1:2:3", "'p1:2:3'"},
      {"max f32 nchw 1x1x8x8 k2 ties=most", "'ties=most'"},
      {"max f32 nchw 1x1x8x8 k2 nan=", "'nan='"},
      {"max f32 nchw 1x1x8x8 k2 part=0/8:0:0", "'part=0/8:0:0'"},
      {"max f32 ncw 1x1x8 k2 part=0/8:0", "'part=0/8:0'"},
      {"max f32 nchw 1x1x8x8 k2 bits=x", "'bits=x'"},
      {"max f32 nchw 1x1x8x8 k2 cuda:-1", "'cuda:-1'"},
      {"max f32 nchw 1x1x8x8 k2 bananas", "'bananas'"},
      {"max f32 nchw 1x1x8x8 k2 stride=2",
       "'stride=2' is not understood; after kind, type, layout and shape come k3, s2,"},
      {"max f32 nchw 1x1x8x8 k2 dialect=torch",
       "'dialect=torch' is not understood; after kind, type, layout and shape"},
      {"max f32 nchw 1x1x8x8 k2 s-q", "'s-q' is not understood; its numbers must be integers"},
      {"max f32 nchw 1x1x8x8 k3 k2", "the words 'k3' and 'k2' both say the kernel; keep one of them"},
      {"max f32 nchw 1x1x8x8 k3 s1 s1", "both say the stride"},
      {"max f32 nchw 1x1x8x8 k3 p1 same", "the words 'p1' and 'same' both say the padding; keep one of them"},
      {"max f32 nchw 1x1x8x8 k3 valid p0", "both say the padding"},
      {"max f32 nchw 1x1x8x8 k3 same same_lower", "both say the padding"},
      {"max f32 nchw 1x1x8x8 k3 d2 d1", "both say the dilation"},
      {"max f32 nchw 1x1x8x8 k3 floor ceil", "both say the rounding"},
      {"max f32 nchw 1x1x8x8 k3 torch onnx", "both say the dialect"},
      {"max f32 nchw 1x1x8x8 k3 ties=last ties=last", "both say the ties"},
      {"max f32 nchw 1x1x8x8 k3 nan=ignore nan=first_place", "both say the NaN rule"},
      {"max f32 nchw 1x1x8x8 k3 bits=8 bits=16", "both say the route bits"},
      {"avg f32 nchw 1x1x8x8 k3 count_padding no_count_padding", "both say whether padding counts"},
      {"avg f32 nchw 1x1x8x8 k3 divisor=3 divisor=4", "both say the divisor"},
      {"max f32 nchw 1x1x8x8 k3 cuda cuda:1", "both say the device"},
      {"max f32 nchw 1x1x8x8 adaptive=4 starts=0,2x k0x2",
       "the words 'adaptive=4' and 'starts=0,2x' both say the windows of axis 0"},
      {"max f32 ncw 1x1x8 starts=0,2 sizes=3", "'sizes=3' is not understood; axis 0 has 2 starts and 1 sizes"},
      {"max f32 ncw 1x1x8 adaptive=2 sizes=3,2", "'sizes=3,2' is not understood; axis 0 has sizes and no starts="},
      {"max f32 nchw 1x1x8x8 k2\n", "'k2\\x0a'"},
      {"max f32 nchw 1x1x8x8 k2 \x1b[2J", "'\\x1b[2J'"},
  };
  for (const auto& [text, part] : cases) {
    const auto parsed = ParseProblem(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().sentence().find(part), std::string::npos) << parsed.status().sentence();
  }
}

}  // namespace
}  // namespace poolgrad
