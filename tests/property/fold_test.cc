// Folding changes a problem's words, never its work: the reference gives the same bytes for both, routes included.
#include "spec/fold.h"

#include <gtest/gtest.h>

#include <string>

#include "support/harness.h"
#include "support/random_problem.h"

namespace poolgrad::oracle {
namespace {

std::string Says(const std::string& text, poolgrad_op op) {
  const std::optional<Problem> folded = Folded(*Resolve(*ParseProblem(text)), op);
  if (!folded) return "as it is";
  const Problem& q = *folded;
  std::string says = q.channels_last() ? "last " : "first ";
  says += std::to_string(q.batch) + "x" + std::to_string(q.channels);
  for (int i = 3 - q.rank; i < 3; ++i) {
    says += (i == 3 - q.rank ? " " : "x") + std::to_string(q.axis[i].in) + "k" + std::to_string(q.axis[i].kernel);
  }
  return says;
}

TEST(Fold, MergesWhatPoolsNothing) {
  const auto forward = [](const char* text) { return Says(text, POOLGRAD_OP_FORWARD); };
  EXPECT_EQ(forward("max f32 ncdhw 2x3x4x5x6 k1x2x2 s1x2x2"), "first 2x12 5k2x6k2");
  EXPECT_EQ(forward("max f32 ndhwc 2x4x5x6x3 k1x2x2 s1x2x2"), "last 8x3 5k2x6k2");
  EXPECT_EQ(forward("max f32 nchw 2x3x5x6 k1x2 s1x2"), "first 2x15 6k2");
  EXPECT_EQ(forward("max f32 nchw 2x3x5x6 k2x1 s2x1"), "as it is");
  EXPECT_EQ(forward("max f32 nhwc 2x5x6x3 k2x1 s2x1"), "last 2x18 5k2");
  EXPECT_EQ(forward("max f32 ncdhw 2x3x4x5x6 k2x1x1 s1"), "first 2x3 4k2x30k1");
  EXPECT_EQ(forward("max f32 nhwc 2x5x6x1 k2 s2"), "first 2x1 5k2x6k2");
  EXPECT_EQ(forward("max f32 nchw 2x3x5x64 k2x1 s2x1"), "last 6x64 5k2") << "long rows are channels";
  EXPECT_EQ(forward("max f32 nchw 2x3x5x64 k3x1 s2x1"), "last 6x64 5k3x1k1")
      << "down, where windows overlap at a stride";
  EXPECT_EQ(forward("max f32 ncdhw 2x3x4x5x64 k2x2x1 s2x2x1"), "last 6x64 4k2x5k2");
}

TEST(Fold, LeavesWhatWouldChangeTheWork) {
  const auto routed = [](const char* text) { return Says(text, POOLGRAD_OP_BACKWARD); };
  EXPECT_EQ(routed("max f32 nchw 2x3x5x6 k2 s2"), "as it is");
  EXPECT_EQ(routed("max f32 nchw 2x3x5x6 k1 s1"), "as it is");
  EXPECT_EQ(routed("max f32 nchw 2x3x5x6 k2x1 s2x1 p0x0 relu bias"), "as it is");
  EXPECT_EQ(routed("max f32 ncdhw 2x3x4x5x6 k2x1x2 s2x1x2"), "as it is") << "an axis between two others";
  EXPECT_EQ(routed("max f32 nhwc 2x5x6x3 k2x1 s2x1"), "as it is") << "three codes of 2 bits do not fill a byte";
  EXPECT_EQ(routed("max f32 nhwc 2x5x6x4 k2x1 s2x1"), "last 2x24 5k2");
  EXPECT_EQ(routed("max f32 nhwc 2x5x6x3 k2x1 s2x1 bits=8"), "last 2x18 5k2");
  EXPECT_EQ(routed("max f32 nhwc 2x5x6x3 k2x1 s2"), "as it is") << "it leaves columns out";
}

TEST(Fold, GivesTheSameBytes) {
  XorShift draw(1);
  int folded = 0;
  for (int round = 0; round < 4000; ++round) {
    const poolgrad_problem raw = DrawProblem(draw);
    const Result<Problem> p = Resolve(raw);
    if (!p.ok() || p->x_elements() > 20000) continue;
    Data data;
    const auto seed = static_cast<uint64_t>(round);
    data.x = RandomValues(seed, p->dtype, p->x_elements());
    data.tx = RandomGradients(seed + 1, p->dtype, p->x_elements());
    data.dy = RandomGradients(seed + 2, p->dtype, p->y_elements());
    data.bias = RandomGradients(seed + 3, p->dtype, p->channels);
    data.routes = RunReference(*p, POOLGRAD_OP_FORWARD_ROUTES, data, data.routes).routes;
    data.routes.resize(static_cast<size_t>(p->routes.bytes()));
    for (int i = 0; i < POOLGRAD_OP_BIAS_GRADIENT; ++i) {
      const auto op = static_cast<poolgrad_op>(i);
      if (p->kind == POOLGRAD_AVERAGE && op != POOLGRAD_OP_FORWARD && op != POOLGRAD_OP_BACKWARD) continue;
      if (IsInteger(p->dtype) && (op == POOLGRAD_OP_BACKWARD || op == POOLGRAD_OP_BACKWARD_X)) continue;
      const auto fold = [&](const Problem& whole) -> std::optional<Problem> {
        if (round % 4 != 0) return Folded(whole, op);
        Problem q = whole;
        return FoldChannel(&q) ? std::optional(q) : std::nullopt;
      };
      const std::optional<Problem> other = fold(*p);
      if (!other) continue;
      const Problem& q = *other;
      ++folded;
      EXPECT_FALSE(fold(q)) << FormatProblem(raw);
      const Outcome expected = RunReference(*p, op, data, data.routes), got = RunReference(q, op, data, data.routes);
      ASSERT_EQ(expected.routes, got.routes) << FormatProblem(raw) << " " << Name(op);
      ASSERT_EQ(expected.result.size(), got.result.size());
      EXPECT_EQ(Difference(p->dtype, expected.result.data(), got.result.data(), static_cast<int64_t>(got.result.size()),
                           MakesSums(*p, op)),
                "")
          << FormatProblem(raw) << " " << Name(op);
    }
  }
  EXPECT_GT(folded, 1000);
}

}  // namespace
}  // namespace poolgrad::oracle
