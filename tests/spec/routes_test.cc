// The public route format (docs/routes.md), byte for byte.
#include "spec/routes.h"

#include <gtest/gtest.h>

#include <vector>

#include "spec/problem.h"

namespace poolgrad {
namespace {

RouteFormat FormatOf(const std::string& text) {
  const auto raw = ParseProblem(text);
  EXPECT_TRUE(raw.ok()) << raw.status().sentence();
  const auto problem = Resolve(*raw);
  EXPECT_TRUE(problem.ok()) << problem.status().sentence();
  return problem->routes;
}

TEST(Routes, CodesOfEveryWidthComeBackFromTheirBytes) {
  for (const int32_t bits : {2, 4, 8, 16, 32}) {
    RouteFormat f;
    f.bits = bits;
    for (int64_t n = 1; n <= 9; ++n) {
      std::vector<uint8_t> line(static_cast<size_t>((n * bits + 7) / 8), 0xEE);
      std::vector<uint32_t> codes;
      for (int64_t i = 0; i < n; ++i) codes.push_back((0x9E3779B9u * static_cast<uint32_t>(i + 1)) & f.none());
      for (int64_t i = 0; i < n; ++i) StoreCode(f, line.data(), i, codes[static_cast<size_t>(i)]);
      for (int64_t i = 0; i < n; ++i)
        EXPECT_EQ(LoadCode(f, line.data(), i), codes[static_cast<size_t>(i)]) << bits << " bits";
      if (n * bits % 8 != 0) {
        EXPECT_EQ(line.back() >> (n * bits % 8), 0) << "the rest of a line's last byte is zero";
      }
    }
  }
}

TEST(Routes, LowBitsComeFirstAndWideCodesAreLittleEndian) {
  RouteFormat f;
  uint8_t bytes[4] = {};
  f.bits = 2;
  for (int i = 0; i < 4; ++i) StoreCode(f, bytes, i, static_cast<uint32_t>(3 - i));
  EXPECT_EQ(bytes[0], 0b00'01'10'11);
  f.bits = 4;
  StoreCode(f, bytes, 0, 0xA);
  StoreCode(f, bytes, 1, 0x5);
  EXPECT_EQ(bytes[0], 0x5A);
  f.bits = 32;
  StoreCode(f, bytes, 0, 0x11223344);
  EXPECT_EQ(bytes[0], 0x44);
  EXPECT_EQ(bytes[3], 0x11);
}

TEST(Routes, TheSmallestWidthThatFitsIsChosen) {
  EXPECT_EQ(FormatOf("max f32 nchw 1x1x8x8 k2").bits, 2);
  EXPECT_EQ(FormatOf("max f32 nchw 1x1x8x8 k1x3").bits, 2);
  EXPECT_EQ(FormatOf("max f32 nchw 1x1x8x8 k3").bits, 4);
  EXPECT_EQ(FormatOf("max f32 nchw 1x1x8x8 k4").bits, 4);
  EXPECT_EQ(FormatOf("max f32 nchw 1x1x8x8 k5").bits, 8);
  EXPECT_EQ(FormatOf("max f32 nchw 1x1x16x16 k16").bits, 8);
  EXPECT_EQ(FormatOf("max f32 nchw 1x1x17x17 k17").bits, 16);
  EXPECT_EQ(FormatOf("max f32 nchw 1x1x257x256 k257x256").bits, 32);
}

TEST(Routes, NoRouteTakesACodeOnlyWhereItCanHappen) {
  const RouteFormat full = FormatOf("max f32 nchw 1x1x8x8 k2");
  EXPECT_FALSE(full.may_be_none);
  const RouteFormat ignoring = FormatOf("max f32 nchw 1x1x8x8 k2 nan=ignore");
  EXPECT_TRUE(ignoring.may_be_none);
  EXPECT_EQ(ignoring.bits, 4);
  EXPECT_EQ(ignoring.none(), 15u);
  EXPECT_TRUE(FormatOf("max i32 nchw 1x1x8x8 k2 nan=ignore").may_be_none) << "the format does not depend on the type";
  EXPECT_TRUE(FormatOf("max f32 nchw 1x1x8x8 k2 p2").may_be_none) << "the corner window sees padding only";
  EXPECT_FALSE(FormatOf("max f32 nchw 1x1x8x8 k2 p1").may_be_none);
}

TEST(Routes, APartsCodesAreThoseOfTheWhole) {
  // Windows that lie outside the part alone take no code, but whatever else leaves the whole's without a winner does.
  EXPECT_EQ(FormatOf("max f32 ncw 1x1x2 k4 s2 p4:2 part=6/8:2:2").bits, 2);
  EXPECT_EQ(FormatOf("max f32 ncw 1x1x8 k4 part=0/8:0:0").bits, 2);
  EXPECT_EQ(FormatOf("max f32 ncw 1x1x8 k4 part=0/8:0:0 relu").bits, 4);
  EXPECT_EQ(FormatOf("max f32 ncw 1x1x8 k4 part=0/8:0:0 nan=ignore").bits, 4);
  EXPECT_EQ(FormatOf("max f32 ncw 1x1x4 k4 s1 p6:0 part=0/8:6:6").bits, 4) << "the first window sees padding only";
  EXPECT_EQ(FormatOf("max f32 ncw 1x1x4 k4 s1 p0:6 part=4/8:6:6").bits, 4) << "so does the last";
}

TEST(Routes, LinesBeginAtBytes) {
  const RouteFormat first = FormatOf("max f32 nchw 2x3x8x10 k2");  // y is 2x3x4x5: lines of 5 outputs along the width
  EXPECT_EQ(first.line, 5);
  EXPECT_EQ(first.lines, 2 * 3 * 4);
  EXPECT_EQ(first.line_bytes, 2);
  EXPECT_EQ(first.bytes(), 48);
  const RouteFormat last = FormatOf("max f32 nhwc 2x8x10x3 k2");  // lines of 3 channels
  EXPECT_EQ(last.line, 3);
  EXPECT_EQ(last.lines, 2 * 4 * 5);
  EXPECT_EQ(last.bytes(), 40);
}

TEST(Routes, MasksKeepOneBitPerTap) {
  const RouteFormat f = FormatOf("max f32 nchw 1x1x9x9 k3 ties=split");
  EXPECT_TRUE(f.masks);
  EXPECT_EQ(f.bits, 16);
  EXPECT_EQ(f.mask_bytes(), 2);
  const uint8_t line[] = {0x00, 0x00, 0x01, 0x01};
  EXPECT_TRUE(LoadMaskBit(f, line, 1, 0));
  EXPECT_TRUE(LoadMaskBit(f, line, 1, 8));
  EXPECT_FALSE(LoadMaskBit(f, line, 1, 1));
  EXPECT_FALSE(LoadMaskBit(f, line, 0, 0));
}

}  // namespace
}  // namespace poolgrad
