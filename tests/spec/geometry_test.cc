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
      ExpectSameRange(a.counted_taps(o, true), CountedTaps(a, o, -a.pad_lo, a.in + a.pad_hi));
      ExpectSameRange(a.counted_taps(o, false), CountedTaps(a, o, 0, a.in));
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

TEST(Geometry, AThinAxisHasTheSameTaps) {
  ForEachSmallAxis([](const Axis& a) {
    SCOPED_TRACE(Text(a));
    const ThinAxis thin(a);
    for (int64_t o = 0; o < a.out; ++o) {
      ExpectSameRange(thin.axis.valid_taps(o), a.valid_taps(o));
      for (int64_t tap = 0; tap < a.kernel; ++tap) {
        ASSERT_EQ(thin.first + thin.apart * Landing(thin.axis, o, tap), Landing(a, o, tap));
      }
    }
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

// Every small table: starts never fall, windows lie inside.
template <class Check>
void ForEachSmallTable(Check&& check) {
  uint64_t state = 88172645463325252u;
  const auto between = [&](int64_t low, int64_t high) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return low + static_cast<int64_t>(state % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 3000; ++round) {
    const int64_t in = between(1, 12);
    std::vector<int64_t> starts, sizes;
    for (int64_t o = 0, n = between(1, 6), start = 0; o < n; ++o) {
      start = between(start, std::min(in - 1, start + 3));
      starts.push_back(start);
      sizes.push_back(between(1, in - start));
    }
    check(in, starts, sizes);
  }
}

TEST(Geometry, ATableAnswersAsItsListsSay) {
  ForEachSmallTable([](int64_t in, const std::vector<int64_t>& starts, const std::vector<int64_t>& sizes) {
    const Axis a = Axis::ByTable(in, starts, sizes);
    const auto out = static_cast<int64_t>(starts.size());
    ASSERT_EQ(a.out, out);
    for (int64_t o = 0; o < out; ++o) {
      const auto at = static_cast<size_t>(o);
      ASSERT_EQ(a.start(o), starts[at]);
      ASSERT_EQ(a.size(o), sizes[at]);
      ASSERT_EQ(a.valid_taps(o).begin, 0);
      ASSERT_EQ(a.valid_taps(o).end, sizes[at]);
      for (int64_t i = 0; i < in; ++i) {
        const bool inside = i >= starts[at] && i < starts[at] + sizes[at];
        ASSERT_EQ(a.tap_at(o, i), inside ? i - starts[at] : -1);
        if (inside) {
          ASSERT_LE(a.covering(i).begin, o);
          ASSERT_GT(a.covering(i).end, o);
        }
      }
    }
    ASSERT_FALSE(a.has_empty_window());
    bool disjoint = true;
    for (int64_t o = 0; o + 1 < out; ++o) {
      disjoint = disjoint &&
                 starts[static_cast<size_t>(o)] + sizes[static_cast<size_t>(o)] <= starts[static_cast<size_t>(o + 1)];
    }
    ASSERT_EQ(a.disjoint(), disjoint);
  });
}

TEST(Geometry, ARegularTableIsARegularAxis) {
  const Axis a = Axis::ByTable(12, {0, 3, 6, 9}, {3, 3, 3, 3});
  EXPECT_FALSE(a.table);
  EXPECT_EQ(a.kernel, 3);
  EXPECT_EQ(a.stride, 3);
  EXPECT_EQ(a.out, 4);
  EXPECT_TRUE(Axis::ByTable(12, {0, 3, 6, 9}, {3, 3, 3, 2}).table);
  EXPECT_TRUE(Axis::ByTable(12, {0, 3, 6, 8}, {3, 3, 3, 3}).table);
  EXPECT_TRUE(Axis::ByTable(3, {1, 1}, {2, 2}).table) << "two windows at one place have no stride";
}

// A part answers as the whole does, moved: taps keep their numbers, what lies outside is padding.
void ExpectPart(const Axis& a, Range outputs, Range inputs) {
  const Axis part = a.Part(outputs, inputs);
  for (int64_t o = outputs.begin; o < outputs.end; ++o) {
    ASSERT_EQ(part.start(o - outputs.begin), a.start(o) - inputs.begin);
    for (int64_t i = inputs.begin; i < inputs.end; ++i) {
      ASSERT_EQ(part.tap_at(o - outputs.begin, i - inputs.begin), a.tap_at(o, i));
      if (a.tap_at(o, i) >= 0) {
        ASSERT_LE(part.covering(i - inputs.begin).begin, o - outputs.begin);
        ASSERT_GT(part.covering(i - inputs.begin).end, o - outputs.begin);
        ASSERT_LE(part.valid_taps(o - outputs.begin).begin, a.tap_at(o, i));
        ASSERT_GT(part.valid_taps(o - outputs.begin).end, a.tap_at(o, i));
      }
    }
  }
}

TEST(Geometry, APartAnswersAsTheWholeDoes) {
  ForEachSmallAxis([](const Axis& a) {
    if (a.in < 2 || a.out < 2 || (a.in + a.out + a.kernel) % 5 != 0) return;
    SCOPED_TRACE(Text(a));
    ExpectPart(a, {0, a.out - 1}, {0, a.in - 1});
    ExpectPart(a, {1, a.out}, {1, a.in});
  });
  ForEachSmallTable([](int64_t in, const std::vector<int64_t>& starts, const std::vector<int64_t>& sizes) {
    if (in < 2 || starts.size() < 2) return;
    const Axis a = Axis::ByTable(in, starts, sizes);
    ExpectPart(a, {0, a.out - 1}, {0, in - 1});
    ExpectPart(a, {1, a.out}, {1, in});
  });
}

}  // namespace
}  // namespace poolgrad
