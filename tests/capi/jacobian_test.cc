// S itself: the Jacobian as CSR agrees with backward and gather, which are products with it; and what integers do with
// sets.
#include <gtest/gtest.h>

#include "support/pool.h"

namespace poolgrad::oracle {
namespace {

using Doubles = std::vector<double>;

Doubles TimesTransposed(const Csr& s, const Doubles& dy, size_t columns) {
  Doubles dx(columns, 0.0);
  for (size_t row = 0; row + 1 < s.row_start.size(); ++row) {
    for (auto e = static_cast<size_t>(s.row_start[row]); e < static_cast<size_t>(s.row_start[row + 1]); ++e) {
      dx[static_cast<size_t>(s.columns[e])] += s.values[e] * dy[row];
    }
  }
  return dx;
}

TEST(Jacobian, OfTheWorkedExample) {
  const Plan plan("max f64 nchw 1x1x3x3 k2 s1");
  const auto [y, routes] = plan.forward_routes(Doubles{1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Csr s = plan.jacobian(routes);
  EXPECT_EQ(s.row_start, (Indices{0, 1, 2, 3, 4}));
  EXPECT_EQ(s.columns, (Indices{4, 5, 7, 8}));
  EXPECT_EQ(s.values, (Doubles{1, 1, 1, 1}));
}

TEST(Jacobian, TimesAVectorIsBackward) {
  for (const char* text :
       {"max f64 nchw 2x2x4x5 k3 s1 p1", "max f64 nhwc 1x5x4x3 k2 s1 ties=split", "max f64 ncw 1x2x9 k3 s2 ties=all",
        "avg f64 nchw 1x2x5x5 k3 s2 p1", "avg f64 nhwc 1x5x5x2 k2 s1 p1 count_padding", "max f64 ncw 1x1x4 k2 s2 p2"}) {
    const Plan plan{std::string(text)};
    Doubles x(static_cast<size_t>(plan.info().x_elements));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7 % 5);  // ties
    const auto [y, routes] = plan.forward_routes(x);
    Doubles dy(y.size());
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<double>(i + 1);
    const Doubles dx = plan.backward(dy, routes);
    const Doubles product = TimesTransposed(plan.jacobian(routes), dy, x.size());
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], product[i], 1e-12) << text << " input " << i;
  }
}

// Of routes from elsewhere, too: masks that name taps in padding, or taps that there are none of.
TEST(Jacobian, TimesAVectorIsBackwardAndGatherOfAnyRoutes) {
  for (const char* text : {"max f64 ncw 1x2x9 k3 s1 p1 ties=split", "max f64 ncw 1x2x9 k3 s1 p1 ties=all",
                           "max f64 nhwc 1x4x4x3 k3 s1 p1 ties=split", "max f64 nchw 1x2x6x5 k3 s2 p1",
                           "max f64 nchw 1x1x7x5 adaptive=3x2 ties=split"}) {
    const Plan plan{std::string(text)};
    Routes routes = plan.make_routes();
    uint32_t state = 1;
    for (std::byte& byte : routes) byte = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24);
    Doubles dy(static_cast<size_t>(plan.info().y_elements)), tx(static_cast<size_t>(plan.info().x_elements));
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<double>(i + 1);
    for (size_t i = 0; i < tx.size(); ++i) tx[i] = static_cast<double>(i * i % 7);
    const Csr s = plan.jacobian(routes);
    const Doubles dx = plan.backward(dy, routes), product = TimesTransposed(s, dy, tx.size());
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], product[i], 1e-12) << text << " input " << i;
    const Doubles ty = plan.gather(tx, routes);
    for (size_t o = 0; o < ty.size(); ++o) {
      double sum = 0;
      for (int64_t e = s.row_start[o]; e < s.row_start[o + 1]; ++e)
        sum += s.values[static_cast<size_t>(e)] * tx[static_cast<size_t>(s.columns[static_cast<size_t>(e)])];
      EXPECT_NEAR(ty[o], sum, 1e-12) << text << " output " << o;
    }
  }
}

// A code may name a tap that only the largest window of a table has.
TEST(Jacobian, ColumnsAreTheIndicesOfAnyRoutes) {
  for (const char* text : {"max f64 ncw 1x1x8 adaptive=3", "max f64 nwc 1x8x1 starts=0,2,5 sizes=3,4,1",
                           "max f64 nchw 1x1x7x6 k3 s2 p1 d2x1 bits=8", "max f64 nhwc 1x7x5x1 adaptive=3x2 bits=8",
                           "max f64 ncdhw 1x1x5x6x7 k0x2x0 s1x2x1 d1x3x1 p0x2x0 adaptive=2x0x3 bits=8"}) {
    const Plan plan{std::string(text)};
    Routes routes = plan.make_routes();
    for (int value = 0; value < 256; ++value) {
      std::fill(routes.begin(), routes.end(), static_cast<std::byte>(value));
      const Csr s = plan.jacobian(routes);
      const Indices indices = plan.indices(routes, Numbering::torch);
      for (size_t o = 0; o < indices.size(); ++o) {
        const auto begin = static_cast<size_t>(s.row_start[o]);
        const int64_t column = s.row_start[o + 1] > s.row_start[o] ? s.columns[begin] : -1;
        ASSERT_EQ(indices[o], column) << text << " output " << o << ", bytes of routes " << value;
      }
    }
  }
}

TEST(Jacobian, AWindowWithoutRouteIsAnEmptyRow) {
  const Plan plan("max f64 ncw 1x1x2 k1 s1 p1");
  const auto [y, routes] = plan.forward_routes(Doubles{5, 6});
  EXPECT_EQ(plan.jacobian(routes).row_start, (Indices{0, 0, 1, 2, 2}));
}

TEST(Sets, IntegersDivideByCountsThatTheirTypeCannotHold) {
  for (const size_t taps : {200, 256}) {  // as int8_t: -56, and 0
    const Plan plan("max i8 ncw 1x1x" + std::to_string(taps) + " k" + std::to_string(taps) + " ties=split");
    const auto [y, routes] = plan.forward_routes(std::vector<int8_t>(taps, 3));
    EXPECT_EQ(y, (std::vector<int8_t>{3}));
    std::vector<int8_t> tx(taps, 0);
    tx[0] = 100;
    EXPECT_EQ(plan.gather(tx, routes), (std::vector<int8_t>{0})) << "100 / " << taps;
  }
}

TEST(Unpool, KeepsTheLastOutputWhereWindowsShareAWinner) {
  const Plan plan("max f32 ncw 1x1x3 k2 s1");
  const auto [y, routes] = plan.forward_routes(Floats{0, 9, 0});
  EXPECT_EQ(plan.unpool(Floats{4, 7}, routes), (Floats{0, 7, 0}));
}

}  // namespace
}  // namespace poolgrad::oracle
