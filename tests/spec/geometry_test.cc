// Window arithmetic against counting: every small axis there is, each answer found again by walking all outputs and
// taps.
#include "spec/geometry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace poolgrad {
namespace {

int64_t Landing(const Axis& a, int64_t o, int64_t tap) { return o * a.stride - a.pad_lo + tap * a.dilation; }

std::string Text(const Axis& a) {
  return "in " + std::to_string(a.in) + " out " + std::to_string(a.out) + " kernel " + std::to_string(a.kernel) +
         " stride " + std::to_string(a.stride) + " dilation " + std::to_string(a.dilation) + " pad_lo " +
         std::to_string(a.pad_lo) + " pad_hi " + std::to_string(a.pad_hi);
}

// Calls check for every axis with small numbers, crops (negative padding) included.
template <class Check>
void ForEachSmallAxis(Check&& check) {
  for (int64_t in = 0; in <= 6; ++in)
    for (int64_t kernel = 1; kernel <= 4; ++kernel)
      for (int64_t stride = 1; stride <= 4; ++stride)
        for (int64_t dilation = 1; dilation <= 3; ++dilation)
          for (int64_t pad_lo = -1; pad_lo <= 5; ++pad_lo)
            for (int64_t pad_hi = -1; pad_hi <= 5; pad_hi += 2)
              for (int64_t out = 0; out <= 5; ++out) check(Axis{in, out, kernel, stride, dilation, pad_lo, pad_hi});
}

// The taps of output o that land in [lo, hi), as a range: they are always consecutive.
Range CountedTaps(const Axis& a, int64_t o, int64_t lo, int64_t hi) {
  Range range{a.kernel, a.kernel};
  bool found = false;
  for (int64_t tap = 0; tap < a.kernel; ++tap) {
    const int64_t at = Landing(a, o, tap);
    if (at < lo || at >= hi) continue;
    if (!found) range.begin = tap;
    range.end = tap + 1;
    found = true;
  }
  return range;
}

void ExpectSameRange(const Range& got, const Range& counted) {
  ASSERT_EQ(got.size(), counted.size());
  if (counted.size() > 0) {
    ASSERT_EQ(got.begin, counted.begin);
  }
}

TEST(Geometry, TapsAreThoseThatLandInside) {
  ForEachSmallAxis([](const Axis& a) {
    SCOPED_TRACE(Text(a));
    for (int64_t o = 0; o < a.out; ++o) {
      ExpectSameRange(a.valid_taps(o), CountedTaps(a, o, 0, a.in));
      ExpectSameRange(a.padded_taps(o), CountedTaps(a, o, -a.pad_lo, a.in + a.pad_hi));
      ASSERT_GE(a.valid_taps(o).begin, 0);
      ASSERT_LE(a.valid_taps(o).end, a.kernel);
    }
  });
}

TEST(Geometry, TheInverseFindsEveryWindowOverAnInput) {
  ForEachSmallAxis([](const Axis& a) {
    SCOPED_TRACE(Text(a));
    for (int64_t i = 0; i < a.in; ++i) {
      const Range covering = a.covering(i);
      for (int64_t o = 0; o < a.out; ++o) {
        int64_t counted = -1;
        for (int64_t tap = 0; tap < a.kernel; ++tap) {
          if (Landing(a, o, tap) == i) counted = tap;
        }
        ASSERT_EQ(a.tap_at(o, i), counted) << "output " << o << " input " << i;
        const bool reaches = Landing(a, o, 0) <= i && i <= Landing(a, o, a.kernel - 1);
        ASSERT_EQ(covering.begin <= o && o < covering.end, reaches) << "output " << o << " input " << i;
      }
    }
  });
}

TEST(Geometry, InteriorIsWhereNothingIsClipped) {
  ForEachSmallAxis([](const Axis& a) {
    SCOPED_TRACE(Text(a));
    const Range interior = a.interior();
    ASSERT_GE(interior.begin, 0);
    ASSERT_LE(interior.end, a.out);
    for (int64_t o = 0; o < a.out; ++o) {
      const bool whole = CountedTaps(a, o, 0, a.in).size() == a.kernel;
      ASSERT_EQ(interior.begin <= o && o < interior.end, whole) << "output " << o;
    }
  });
}

TEST(Geometry, EmptyWindowsAreFound) {
  ForEachSmallAxis([](const Axis& a) {
    SCOPED_TRACE(Text(a));
    bool empty = false;
    for (int64_t o = 0; o < a.out; ++o) empty = empty || CountedTaps(a, o, 0, a.in).size() == 0;
    ASSERT_EQ(a.has_empty_window(), empty);
  });
}

TEST(Geometry, DisjointMeansAtMostOneWriter) {
  ForEachSmallAxis([](const Axis& a) {
    SCOPED_TRACE(Text(a));
    if (!a.disjoint()) return;
    for (int64_t i = 0; i < a.in; ++i) ASSERT_LE(a.covering(i).size(), 1) << "input " << i;
  });
}

TEST(Geometry, DivisionRoundsTowardsTheNamedSide) {
  for (int64_t a = -9; a <= 9; ++a) {
    for (int64_t b = 1; b <= 4; ++b) {
      EXPECT_LE(FloorDiv(a, b) * b, a);
      EXPECT_GT((FloorDiv(a, b) + 1) * b, a);
      EXPECT_GE(CeilDiv(a, b) * b, a);
      EXPECT_LT((CeilDiv(a, b) - 1) * b, a);
    }
  }
}

}  // namespace
}  // namespace poolgrad
