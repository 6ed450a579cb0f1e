// What must hold whoever computes it: the adjoint identity, backward from routes = backward from x, indices that come
// back, shares that sum to dy, finite differences. Drawn problems, through the C ABI.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <sstream>
#include <vector>

#include "spec/problem.h"
#include "support/harness.h"
#include "support/random_problem.h"

namespace poolgrad::oracle {
namespace {

using Doubles = std::vector<double>;

struct Destroy {
  void operator()(poolgrad_plan* plan) const { poolgrad_plan_destroy(plan); }
};

// A drawn f64 problem with its plan and its routes over x.
struct Drawn {
  poolgrad_problem raw;
  Problem problem;
  std::unique_ptr<poolgrad_plan, Destroy> plan;
  Doubles x, y;
  std::vector<uint8_t> routes;

  Doubles Backward(const Doubles& dy) const {
    Doubles dx(x.size());
    EXPECT_EQ(poolgrad_backward(plan.get(), dy.data(), routes.data(), dx.data(), nullptr), POOLGRAD_OK)
        << poolgrad_last_error();
    return dx;
  }
  Doubles Gather(const Doubles& tx) const {
    Doubles ty(y.size());
    EXPECT_EQ(poolgrad_gather(plan.get(), tx.data(), routes.data(), ty.data(), nullptr), POOLGRAD_OK)
        << poolgrad_last_error();
    return ty;
  }
  Doubles Forward(const Doubles& input) const {
    Doubles output(y.size());
    EXPECT_EQ(poolgrad_forward(plan.get(), input.data(), output.data(), nullptr, nullptr), POOLGRAD_OK)
        << poolgrad_last_error();
    return output;
  }
};

// Calls check(drawn, random) for `count` max problems in f64. distinct: inputs are different integers.
template <class Check>
void ForEachDrawn(uint64_t seed, int count, bool distinct, Check&& check) {
  XorShift random(seed);
  for (int i = 0; i < count;) {
    Drawn drawn;
    drawn.raw = DrawProblem(random);
    drawn.raw.kind = POOLGRAD_MAX;
    drawn.raw.dtype = POOLGRAD_F64;
    drawn.raw.divisor = drawn.raw.bias = 0;
    const auto resolved = Resolve(drawn.raw);
    if (!resolved.ok()) continue;
    ++i;
    drawn.problem = *resolved;
    SCOPED_TRACE(FormatProblem(drawn.raw) + " of seed " + std::to_string(seed));
    poolgrad_plan* plan = nullptr;
    ASSERT_EQ(poolgrad_plan_create(&drawn.raw, nullptr, &plan), POOLGRAD_OK) << poolgrad_last_error();
    drawn.plan.reset(plan);
    drawn.x.resize(static_cast<size_t>(drawn.problem.x_elements()));
    for (size_t e = 0; e < drawn.x.size(); ++e) {
      drawn.x[e] =
          distinct ? static_cast<double>(e * 7919 % (drawn.x.size() | 1)) : static_cast<double>(random.Between(-2, 2));
    }
    drawn.y.resize(static_cast<size_t>(drawn.problem.y_elements()));
    drawn.routes.resize(static_cast<size_t>(drawn.problem.routes.bytes()) + 1);
    ASSERT_EQ(poolgrad_forward(plan, drawn.x.data(), drawn.y.data(), drawn.routes.data(), nullptr), POOLGRAD_OK)
        << poolgrad_last_error();
    check(drawn, random);
    if (testing::Test::HasFatalFailure()) return;
  }
}

Doubles Draws(XorShift& random, size_t n) {
  Doubles values(n);
  for (double& v : values) v = static_cast<double>(random.Between(-1000, 1000)) / 64;
  return values;
}

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(Identities, BackwardIsTheAdjointOfGather) {
  ForEachDrawn(21, 300, false, [](const Drawn& drawn, XorShift& random) {
    const Doubles v = Draws(random, drawn.x.size());
    const Doubles w = Draws(random, drawn.y.size());
    const double left = Dot(drawn.Gather(v), w);
    const double right = Dot(v, drawn.Backward(w));
    ASSERT_NEAR(left, right, 1e-9 * (1 + std::abs(left)));
  });
}

TEST(Identities, BackwardFromRoutesIsBackwardFromX) {
  ForEachDrawn(22, 300, false, [](const Drawn& drawn, XorShift& random) {
    const Doubles dy = Draws(random, drawn.y.size());
    Doubles dx(drawn.x.size());
    ASSERT_EQ(poolgrad_backward_x(drawn.plan.get(), dy.data(), drawn.x.data(), dx.data(), nullptr), POOLGRAD_OK);
    ASSERT_EQ(dx, drawn.Backward(dy));
  });
}

TEST(Identities, GatheringXGivesY) {
  ForEachDrawn(23, 300, false, [](const Drawn& drawn, XorShift&) {
    if (drawn.problem.ties == POOLGRAD_TIES_ALL) return;  // a sum over the set
    const Doubles ty = drawn.Gather(drawn.x);
    for (size_t o = 0; o < ty.size(); ++o) {
      if (std::isinf(drawn.y[o])) {
        ASSERT_EQ(ty[o], 0) << "no route";
      } else {
        ASSERT_NEAR(ty[o], drawn.y[o], 1e-12);
      }
    }
  });
}

TEST(Identities, IndicesComeBackInEveryNumbering) {
  ForEachDrawn(24, 300, false, [](const Drawn& drawn, XorShift&) {
    if (drawn.problem.routes.masks) return;
    for (int numbering = 0; numbering < 5; ++numbering) {
      const auto n = static_cast<poolgrad_numbering>(numbering);
      std::vector<int64_t> indices(drawn.y.size());
      ASSERT_EQ(poolgrad_routes_to_indices(drawn.plan.get(), drawn.routes.data(), n, indices.data(), nullptr),
                POOLGRAD_OK);
      std::vector<uint8_t> routes(drawn.routes.size(), 0);
      ASSERT_EQ(poolgrad_routes_from_indices(drawn.plan.get(), indices.data(), n, routes.data()), POOLGRAD_OK)
          << poolgrad_last_error();
      routes.back() = drawn.routes.back();
      ASSERT_EQ(routes, drawn.routes) << "numbering " << numbering;
      Doubles by_routes(drawn.x.size()), by_indices(drawn.x.size());
      ASSERT_EQ(poolgrad_unpool(drawn.plan.get(), drawn.y.data(), drawn.routes.data(), by_routes.data(), nullptr),
                POOLGRAD_OK);
      ASSERT_EQ(
          poolgrad_unpool_indices(drawn.plan.get(), drawn.y.data(), indices.data(), n, nullptr, by_indices.data()),
          POOLGRAD_OK)
          << poolgrad_last_error();
      ASSERT_EQ(by_routes, by_indices) << "numbering " << numbering;
    }
  });
}

TEST(Identities, WhatIsRoutedSumsToDy) {
  ForEachDrawn(25, 300, false, [](const Drawn& drawn, XorShift& random) {
    if (drawn.problem.ties == POOLGRAD_TIES_ALL) return;  // gives dy to each
    const Doubles dy = Draws(random, drawn.y.size());
    double routed = 0;
    const bool relu = drawn.problem.relu;
    for (size_t o = 0; o < dy.size(); ++o) {
      routed += std::isinf(drawn.y[o]) || (relu && drawn.y[o] == 0) ? 0 : dy[o];
    }
    double received = 0;
    for (const double v : drawn.Backward(dy)) received += v;
    ASSERT_NEAR(received, routed, 1e-9 * (1 + std::abs(routed)));
  });
}

// Planes of two windows, one below the other, as many as a window has taps: tap t wins those of plane t.
TEST(Identities, EveryTapHasItsPlace) {
  constexpr int64_t kWindows[][3] = {{1, 21, 21}, {1, 8, 181}, {1, 30, 45}, {3, 20, 7}, {1, 2, 1050}};
  for (const int64_t target : SimdTargets()) {
    UseSimdTarget(target);
    for (const auto& [d, h, w] : kWindows) {
      for (const bool last : {false, true}) {
        const int64_t taps = d * h * w, plane = d * (h + 1) * w;
        std::ostringstream text;
        text << "max f32 " << (last ? "ndhwc 1x" : "ncdhw 1x");
        if (!last) text << taps << "x";
        text << d << "x" << h + 1 << "x" << w;
        if (last) text << "x" << taps;
        text << " k" << d << "x" << h << "x" << w << " s1 bits=16";
        SCOPED_TRACE(text.str());
        poolgrad_plan* plan = nullptr;
        ASSERT_EQ(poolgrad_plan_create(&*ParseProblem(text.str()), nullptr, &plan), POOLGRAD_OK)
            << poolgrad_last_error();
        const std::unique_ptr<poolgrad_plan, Destroy> owned(plan);
        const auto size = [](int64_t n) { return static_cast<size_t>(n); };
        std::vector<uint16_t> routes(size(2 * taps));
        std::vector<float> dy(routes.size()), dx(size(plane * taps)), expected(dx.size());
        for (int64_t t = 0; t < taps; ++t) {
          for (int64_t o = 0; o < 2; ++o) {
            const int64_t output = last ? o * taps + t : t * 2 + o;
            const int64_t at = t / (h * w) * (h + 1) * w + t % (h * w) + o * w;
            routes[size(output)] = static_cast<uint16_t>(t);
            dy[size(output)] = expected[size(last ? at * taps + t : t * plane + at)] = static_cast<float>(o + 1);
          }
        }
        ASSERT_EQ(
            poolgrad_backward(plan, dy.data(), reinterpret_cast<const uint8_t*>(routes.data()), dx.data(), nullptr),
            POOLGRAD_OK);
        ASSERT_EQ(dx, expected);
      }
    }
    UseSimdTarget(0);
  }
}

TEST(Identities, FiniteDifferencesAgreeWhereNothingTies) {
  ForEachDrawn(26, 60, true, [](const Drawn& drawn, XorShift& random) {
    if (drawn.x.empty() || drawn.y.empty()) return;
    const Doubles w = Draws(random, drawn.y.size());
    const Doubles dx = drawn.Backward(w);
    constexpr double kStep = 0.25;  // below half the gap between inputs, so no winner changes: the difference is exact
    const auto weighted = [&](const Doubles& x) {
      const Doubles y = drawn.Forward(x);
      double sum = 0;
      for (size_t o = 0; o < y.size(); ++o) sum += std::isinf(y[o]) ? 0 : w[o] * y[o];
      return sum;
    };
    for (int probe = 0; probe < 8; ++probe) {
      const auto i = static_cast<size_t>(random.Between(0, static_cast<int64_t>(drawn.x.size()) - 1));
      if (drawn.problem.relu && drawn.x[i] == 0) continue;  // where relu has no derivative
      Doubles up = drawn.x;
      Doubles down = drawn.x;
      up[i] += kStep;
      down[i] -= kStep;
      ASSERT_NEAR((weighted(up) - weighted(down)) / (2 * kStep), dx[i], 1e-6) << "input " << i;
    }
  });
}

}  // namespace
}  // namespace poolgrad::oracle
