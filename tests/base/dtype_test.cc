// The half types' conversions: exact upwards, rounded once to nearest even downwards, for every bit pattern there is.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace poolgrad {
namespace {

template <class Half>
bool SameOrBothNan(Half a, Half b) {
  return a.bits == b.bits || (std::isnan(ToF32(a)) && std::isnan(ToF32(b)));
}

TEST(Dtype, HalvesSurviveTheRoundTripThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 f16{static_cast<uint16_t>(bits)};
    const BF16 bf16{static_cast<uint16_t>(bits)};
    ASSERT_TRUE(SameOrBothNan(ToF16(ToF32(f16)), f16)) << bits;
    ASSERT_TRUE(SameOrBothNan(ToBF16(ToF32(bf16)), bf16)) << bits;
  }
}

TEST(Dtype, F16MeansWhatTheStandardSays) {
  EXPECT_EQ(ToF32(F16{0x3C00}), 1.0f);
  EXPECT_EQ(ToF32(F16{0xC000}), -2.0f);
  EXPECT_EQ(ToF32(F16{0x7BFF}), 65504.0f);
  EXPECT_EQ(ToF32(F16{0x0001}), 0x1p-24f);
  EXPECT_EQ(ToF32(F16{0x0400}), 0x1p-14f);
  EXPECT_TRUE(std::isinf(ToF32(F16{0xFC00})));
  EXPECT_TRUE(std::signbit(ToF32(F16{0x8000})));
  EXPECT_TRUE(std::isnan(ToF32(F16{0x7C01})));
}

// Between two neighbouring halves lies a midpoint that f32 holds exactly: below it rounds down, above it up, on it to
// even.
template <class Half, class ToHalf>
void RoundsToNearestEven(uint16_t last_finite, ToHalf to_half) {
  for (uint32_t bits = 0; bits < last_finite; ++bits) {
    const Half low{static_cast<uint16_t>(bits)};
    const Half high{static_cast<uint16_t>(bits + 1)};
    const float middle = static_cast<float>((static_cast<double>(ToF32(low)) + static_cast<double>(ToF32(high))) / 2);
    const uint16_t even = bits % 2 == 0 ? low.bits : high.bits;
    ASSERT_EQ(to_half(middle).bits, even) << bits;
    ASSERT_EQ(to_half(std::nextafter(middle, 0.0f)).bits, low.bits) << bits;
    ASSERT_EQ(to_half(std::nextafter(middle, INFINITY)).bits, high.bits) << bits;
    ASSERT_EQ(to_half(-middle).bits, even | 0x8000) << bits;
  }
}

TEST(Dtype, NarrowingRoundsToNearestEven) {
  RoundsToNearestEven<F16>(0x7BFF, ToF16);
  RoundsToNearestEven<BF16>(0x7F7F, ToBF16);
}

TEST(Dtype, NarrowingOverflowsToInfinityAtTheMidpoint) {
  EXPECT_EQ(ToF16(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(ToF16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(ToF16(-1e30f).bits, 0xFC00);
  EXPECT_EQ(ToBF16(3.4e38f).bits, 0x7F80);
}

}  // namespace
}  // namespace poolgrad
