// How accumulation by winner is cut: the scalar half of backward_scatter-inl.h, shared by all SIMD targets.
//
// Input rows are numbered through depth and height, so that one number says where a row lies. A unit is a band of input
// rows, of a few planes (channels first) or of a block of channels (channels last): it visits every output whose window
// reaches the band and leaves out what lands outside it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/scratch.h"
#include "spec/problem.h"

namespace poolgrad {

inline constexpr int64_t kMostScatterTaps = 255;   // a code that names no tap still fits a byte
inline constexpr int64_t kScatterTogether = 4;     // planes walked in step where neighbours share winners for long
inline constexpr int64_t kLongRuns = 6;            // windows along a row that one input can win
inline constexpr int64_t kScatterReach = 1 << 30;  // elements between the taps of one window
inline constexpr int64_t kScatterUnits = 32;       // wanted, so that threads find work
inline constexpr int64_t kHotBytes = 48 << 10;     // of dx under one window, channels last: kept in L1
inline constexpr int64_t kVettedOutputs = 512;     // at once, if rows are short
inline constexpr int64_t kZeroedBytes = 144 << 10;  // at a time, if rows are short: what stays in L2 beside dy
inline constexpr int64_t kZeroedSums = 12 << 10;    // the same for rows of sums
inline constexpr int64_t kSumBytes = 32 << 10;     // of rows of sums for the halves, if a window needs no more
inline constexpr int64_t kMostSumBytes = 1 << 20;
inline constexpr int64_t kAskedAhead = 1024;  // outputs, channels last: the adds leave no room to wait for dy
inline constexpr int64_t kFewChannels = 8;  // fewer than this: a row is one run, not a run per position

struct ScatterTiles {
  bool last;         // channels innermost, and more than one
  bool few;          // of those, too few for a run per position
  bool staged;       // sums are made in rows of scratch and rounded once
  int64_t channels;  // elements per position of x and y
  int64_t block;     // of those, taken together
  int64_t blocks;
  int64_t images;    // batch, or batch times channels
  int64_t together;  // images walked in step
  int64_t groups;    // of images
  bool cut_depth;    // bands are of input slices, else of input rows
  int64_t band;      // rows per unit, a multiple of the slice where those are cut
  int64_t bands;
  int64_t rows;      // of an image: depth times height
  int64_t position;  // elements from position to position of the rows that are added to
  int64_t row;       // and from row to row
  int64_t at_once;   // output rows vetted at once, channels first
  int64_t ahead;     // rows zeroed at a time, at least
  int64_t kept;      // staged: rows of sums

  int64_t units() const { return groups * blocks * bands; }
};

inline ScatterTiles LayOutScatter(const Problem& p) {
  ScatterTiles t{};
  const Axis& d = p.depth();
  const Axis& h = p.height();
  const Axis& w = p.width();
  t.last = p.channels_last() && p.channels > 1;
  t.few = t.last && p.channels < kFewChannels;
  t.staged = SizeOf(p.dtype) == 2;
  t.channels = t.last ? p.channels : 1;
  t.images = t.last ? p.batch : p.batch * p.channels;
  t.rows = d.in * h.in;
  const int64_t lane = t.staged ? 4 : SizeOf(p.dtype);

  t.block = t.channels;
  if (t.last && !t.few) {  // whole lines of channels, few enough that a window's worth of them stays in cache
    const int64_t fits = std::max<int64_t>(32, kHotBytes / (p.taps() * lane) / 32 * 32);
    const int64_t spread = std::max<int64_t>(64, t.channels * t.images / kScatterUnits / 64 * 64);
    t.block = std::min(t.channels, std::min(fits, p.taps() > 16 ? spread : fits));
  }
  t.blocks = CeilDiv(t.channels, t.block);
  t.together = !t.last && w.kernel / w.stride >= kLongRuns && w.dilation == 1 && p.routes.bits == 8
                   ? std::min(kScatterTogether, t.images)
                   : 1;
  t.groups = CeilDiv(t.images, t.together);

  t.cut_depth = d.in > 1;
  const Axis& cut = t.cut_depth ? d : h;
  const int64_t slice = t.cut_depth ? h.in : 1;
  const int64_t wanted = CeilDiv(kScatterUnits, std::max<int64_t>(1, t.groups * t.blocks));
  const int64_t bands = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, cut.in / (8 * cut.extent())));
  t.band = CeilDiv(cut.in, bands) * slice;
  t.bands = CeilDiv(t.rows, t.band);

  t.position = t.staged ? t.block : t.channels;
  t.row = w.in * t.position;
  t.at_once = t.last ? 1 : std::clamp<int64_t>(kVettedOutputs / w.out, 1, h.out);
  t.ahead = (t.staged ? kZeroedSums : kZeroedBytes) / (t.row * lane * t.together);
  if (!t.staged && t.ahead > 1) t.ahead |= 1;  // at stride 2 an even number of rows takes up to a tenth longer
  if (t.staged) {
    const int64_t reach = (std::min(d.extent(), d.in) - 1) * h.in + std::min(h.extent(), h.in);
    const int64_t least = reach + t.at_once * h.stride + t.ahead;
    t.kept = std::min(t.rows, std::max(least, kSumBytes / (t.row * lane)));
  }
  return t;
}

// Where a tap lies in its window.
struct ScatterTap {
  uint8_t depth, height, width;
};

// The scratch of one task. Taken from null it only counts.
template <class V>
struct ScatterScratch {
  explicit ScatterScratch(const Problem& p, const ScatterTiles& t, std::byte* memory) {
    ScratchTaker taker(memory);
    const int64_t run = t.few || !t.last ? t.at_once * p.width().out * t.channels : t.block;
    sums = taker.Take<V>(t.together * t.kept * t.row);
    values = taker.Take<V>(t.together * (run + 64));
    codes = taker.Take<uint8_t>(t.together * (run + 64));
    offsets = taker.Take<uint32_t>(256);
    pairs = taker.Take<uint64_t>(256);
    bases = taker.Take<uint32_t>(t.few ? run : 0);
    columns = taker.Take<int32_t>(run);
    taps = taker.Take<ScatterTap>(p.taps());
    lane_lo = taker.Take<uint16_t>(run + 64);
    lane_span = taker.Take<uint16_t>(run + 64);
    even = taker.Take<uint8_t>(run / 2 + t.at_once + 64);
    odd = taker.Take<uint8_t>(run / 2 + t.at_once + 64);
    bytes = taker.used();
  }
  V* sums;            // staged: rows of sums
  V* values;          // dy of a run, widened
  uint8_t* codes;     // of a run, a byte each
  uint32_t* offsets;  // by tap: elements from its window's start
  uint64_t* pairs;    // by two packed codes: the offsets of both
  uint32_t* bases;    // few channels: by element of an output row, its window's start
  int32_t* columns;   // by element of a run: the column its window starts at
  ScatterTap* taps;
  uint16_t* lane_lo;  // by element of a run: the first tap column inside the input, and how many more there are
  uint16_t* lane_span;
  uint8_t* even;  // by pair of elements of a run: the tap columns inside the input, as bits
  uint8_t* odd;
  int64_t bytes;
};

}  // namespace poolgrad
