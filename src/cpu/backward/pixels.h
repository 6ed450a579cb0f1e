// How the channels-last backward kernel of backward_pixels-inl.h cuts up its work.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/scratch.h"
#include "spec/kernel.h"

namespace poolgrad {

inline constexpr int64_t kPixelBlock = 16;     // channels per step
inline constexpr int64_t kMostPixelWidth = 5;  // taps along the width that are unrolled
inline constexpr int64_t kMostPixelTaps = 9;   // beyond, accumulating by winner (scatter) visits less

// A unit is a band of rows of dx in one image and one depth group. Where the depth windows are disjoint a group is one
// output depth with all the input planes it covers, so that dy and the routes are read once; the planes that no window
// covers are a last group of their own.
struct PixelTiles {
  bool tiles_exactly;  // every covered column and row has exactly one writer and there are no gaps: assign, never add
  int64_t band;        // rows of dx per unit
  int64_t bands;
  int64_t groups;     // output depths, and one for uncovered planes
  int64_t slots = 0;  // rows of sums kept in f32 for the halves, per plane of a group
  int64_t row;        // elements of a row of dx
};

inline PixelTiles LayOutPixels(const Problem& p) {
  const auto tiles = [](const Axis& a) {
    return a.stride == a.kernel && a.dilation == 1 && a.pad_lo == 0 && a.out * a.stride >= a.in - a.stride + 1;
  };
  PixelTiles t;
  t.tiles_exactly = tiles(p.height()) && tiles(p.width());
  t.row = p.width().in * p.channels;
  const int64_t planes = p.depth().kernel;
  const int64_t row_bytes = std::max<int64_t>(1, t.row * planes * SizeOf(p.dtype));
  // Bands near a quarter megabyte; whole strides, so that disjoint windows are not cut.
  const int64_t stride = p.height().stride;
  t.band = std::clamp(CeilDiv((int64_t{256} << 10) / row_bytes + 1, stride), CeilDiv(4 * p.height().extent(), stride),
                      std::max(CeilDiv(4 * p.height().extent(), stride), CeilDiv(p.height().in, stride))) *
           stride;
  t.bands = CeilDiv(p.height().in, t.band);
  t.groups = p.depth().out + 1;
  if (SizeOf(p.dtype) == 2 && !t.tiles_exactly) t.slots = p.height().extent();
  return t;
}

// The algorithm's row in the list of backward.cc.
const char* RefusePixels(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host);
Kernel MakePixels(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host);

}  // namespace poolgrad
