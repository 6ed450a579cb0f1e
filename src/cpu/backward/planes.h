// How accumulation by winner over channels-first planes is cut: the scalar half of backward_planes-inl.h.
//
// A unit is a band of input rows of a plane. It visits every output row whose windows reach the band, some rows at a
// time (a block), and leaves out what lands outside it. Whole planes of large windows are walked four at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/scratch.h"
#include "spec/kernel.h"

namespace poolgrad {

inline constexpr int64_t kPlaneTaps = 255;   // a code that names no tap still fits a byte
inline constexpr int64_t kPlaneBlock = 512;  // outputs per block, if rows are short
inline constexpr int64_t kPlaneStagedBlock = 1024;
inline constexpr int64_t kPlaneReach = 1 << 16;     // elements under the windows of a block: offsets have 16 bits
inline constexpr int64_t kPlaneUnits = 32;          // wanted, so that threads find work
inline constexpr int64_t kPlanesTogether = 4;       // planes walked in step where neighbours share winners for long
inline constexpr int64_t kPlaneLongRuns = 6;        // windows along a row that one input can win
inline constexpr int64_t kPacedOutputs = 8;         // outputs of a plane between two steps of zeroing
inline constexpr int64_t kPlanePacedRow = 1024;     // new bytes of dx per output row that are zeroed as adds go
inline constexpr int64_t kPlanePace = 192;          // and per kPacedOutputs
inline constexpr int64_t kPlaneHotSums = 24 << 10;  // bytes of sums that are kept where a block needs less
inline constexpr int64_t kPlaneSumBytes = 1 << 20;

// tap * multiplier >> shift is the tap's row of its window.
struct TapDivision {
  int64_t multiplier;  // 0: there is none that 16 bits hold
  int shift;
};

// In 16-bit lanes, exact for every tap. For any other byte the row lies past the window's last, and its first tap is
// still a byte, so that no wrong code passes for a right one.
inline TapDivision FindDivision(const Axis& h, const Axis& w) {
  for (int shift = 15; shift >= 0; --shift) {
    const int64_t multiplier = CeilDiv(int64_t{1} << shift, w.kernel);
    bool exact = multiplier <= 256;
    for (int64_t tap = 0; exact && tap < 256; ++tap) {
      const int64_t row = tap * multiplier >> shift;
      exact = tap < h.kernel * w.kernel ? row == tap / w.kernel : row >= h.kernel && row * w.kernel < 256;
    }
    if (exact) return {multiplier, shift};
  }
  return {0, 0};
}

struct PlaneTiles {
  bool staged;           // sums are made in rows of scratch and rounded once
  bool nibbles;          // codes are looked up as they are packed, else they are bytes
  bool listed;           // taps are looked up, else computed
  bool short_offsets;    // listed: a tap lies less than 256 elements behind its window's start
  TapDivision division;  // not listed
  int64_t together;      // planes walked in step
  int64_t offset_step;   // offsets from plane to plane
  int64_t at_once;       // output rows per block; 0 when not even one has offsets of 16 bits
  int64_t band;          // input rows per unit
  int64_t bands;         // of a plane
  int64_t kept;          // staged: rows of sums
  int64_t groups;        // of 16 outputs per output row
  int64_t pace;          // not staged: bytes of dx that kPacedOutputs bring, rounded up
  bool paced;  // and they are zeroed as adds go: else lines would leave the cache again, and a block is zeroed at once
};

inline PlaneTiles LayOutPlanes(const Problem& p) {
  const Axis& h = p.height();
  const Axis& w = p.width();
  PlaneTiles t{};
  t.staged = SizeOf(p.dtype) == 2;
  t.together = w.dilation == 1 && w.kernel / w.stride >= kPlaneLongRuns ? kPlanesTogether : 1;
  t.nibbles = p.routes.bits == 4 && h.kernel + w.kernel < 8;
  t.short_offsets = (h.extent() - 1) * w.in + w.extent() <= 256;
  t.listed = t.nibbles || p.taps() < 32;  // so that 32 and more are no column of any window
  if (!t.listed) t.division = FindDivision(h, w);
  t.groups = CeilDiv(w.out, 16);
  const int64_t one = (h.extent() - 1) * w.in + (w.out - 1) * w.stride + w.extent();  // elements under a row
  if (one < kPlaneReach) {
    const int64_t fits = (kPlaneReach - one) / std::max<int64_t>(1, h.stride * w.in) + 1;
    t.at_once = std::min({std::max<int64_t>(1, (t.staged ? kPlaneStagedBlock : kPlaneBlock) / w.out), fits, h.out});
  }
  t.offset_step = t.at_once * w.out + 32;
  const int64_t wanted = CeilDiv(kPlaneUnits, std::max<int64_t>(1, p.batch * p.channels));
  const int64_t bands = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, h.in / (8 * h.extent())));
  t.band = CeilDiv(h.in, bands);
  t.bands = CeilDiv(h.in, t.band);
  const int64_t row_bytes = h.stride * w.in * SizeOf(p.dtype);
  t.pace = kPacedOutputs * row_bytes / w.out + 1;
  t.paced = row_bytes <= kPlanePacedRow;
  if (t.staged) {
    t.kept = std::min(h.in, std::max((t.at_once - 1) * h.stride + h.extent(), kPlaneHotSums / (4 * w.in)));
  }
  return t;
}

// The scratch of one task. Taken from null it only counts.
struct PlaneScratch {
  PlaneScratch(const Problem& p, const PlaneTiles& t, std::byte* memory) {
    ScratchTaker taker(memory);
    const int64_t run = 16 * t.groups;
    offsets = taker.Take<uint16_t>(t.together * t.offset_step);
    line = taker.Take<uint8_t>(run + 32);
    columns = taker.Take<uint8_t>(run);
    spans = taker.Take<uint8_t>(t.nibbles ? 0 : run);
    sums = taker.Take<float>(t.together * t.kept * p.width().in);
    bytes = taker.used();
  }
  uint16_t* offsets;  // by output of a block: where its dy goes, in elements from the block's first window
  uint8_t* line;      // the codes of an output row that must not be read past its end, or that are unpacked
  uint8_t* columns;   // by output of a row, the tap columns inside the input: as bits (nibbles), or the first (bytes)
  uint8_t* spans;     // bytes: how many more there are
  float* sums;        // staged: rows of sums
  int64_t bytes;
};

// The algorithm's row in the list of backward.cc.
const char* RefusePlaneScatter(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host);
Kernel MakePlaneScatter(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host);

}  // namespace poolgrad
