// How the channels-last kernel of backward_ring-inl.h cuts up its work: the scalar half, shared by all SIMD
// targets.
//
// A unit is a band of rows of dx, of one image and one block of channels. It visits every output whose window reaches
// the band; what lands outside stays in the ring and is cleared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cpu/scratch.h"
#include "spec/kernel.h"

namespace poolgrad {

inline constexpr int64_t kRingBytes = 96 << 10;  // of sums, if more than the least block needs less
inline constexpr int64_t kMostRingBytes = 512 << 10;
inline constexpr int64_t kRingBlock = 32;  // channels, at least, and a multiple of this: whole lines of dy and dx
inline constexpr int64_t kRingUnits = 32;  // wanted, so that threads find work
inline constexpr int64_t kMostRingRows = 64;
inline constexpr int64_t kRingAhead = 1024;  // outputs whose dy is asked for before it is needed

struct RingTiles {
  int64_t rows;     // of the ring: those of a window
  int64_t columns;  // of a row, padding included
  int64_t first_row, first_column;  // of dx or of its padding: where the ring begins
  int64_t block;    // channels taken together
  int64_t blocks;
  int64_t band;  // rows of dx per unit
  int64_t bands;
  int64_t phases;  // of a window's first row in the ring

  int64_t row() const { return columns * block; }
  int64_t ring() const { return (rows + 1) * row(); }  // one row more for what names no tap
};

inline RingTiles LayOutRing(const Problem& p) {
  const Axis& h = p.height();
  const Axis& w = p.width();
  RingTiles t;
  t.rows = h.extent();
  t.first_row = std::min<int64_t>(0, h.start(0));  // padding may be negative: then windows begin inside
  t.first_column = std::min<int64_t>(0, w.start(0));
  t.columns = std::max(w.start(w.out - 1) + w.extent(), w.in) - t.first_column;
  const int64_t per_channel = t.rows * t.columns * static_cast<int64_t>(sizeof(float));
  const int64_t fits = std::max<int64_t>(1, kRingBytes / per_channel / kRingBlock) * kRingBlock;
  const int64_t blocks = CeilDiv(p.channels, fits);
  t.block = std::min(p.channels, CeilDiv(p.channels, blocks * kRingBlock) * kRingBlock);
  t.blocks = CeilDiv(p.channels, t.block);
  const int64_t wanted = CeilDiv(kRingUnits, std::max<int64_t>(1, p.batch * t.blocks));
  const int64_t bands = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, h.in / (4 * h.extent())));
  t.band = CeilDiv(h.in, bands);
  t.bands = CeilDiv(h.in, t.band);
  t.phases = t.rows / std::gcd(t.rows, h.stride);
  return t;
}

// The scratch of one task. Taken from null it only counts.
struct RingScratch {
  RingScratch(const Problem& p, const RingTiles& t, std::byte* memory) {
    ScratchTaker taker(memory);
    sums = taker.Take<float>(t.ring());
    offsets = taker.Take<uint32_t>(t.phases * 256);
    pairs = taker.Take<uint64_t>(p.routes.bits == 4 ? t.phases * 256 : 0);
    codes = taker.Take<uint8_t>(t.block + 64);
    bytes = taker.used();
  }
  float* sums;
  uint32_t* offsets;  // by phase and code: elements from where the window's columns begin in the ring
  uint64_t* pairs;    // by phase and two packed codes: the offsets of both
  uint8_t* codes;     // of a position, a byte each
  int64_t bytes;
};

// The algorithm's row in the list of backward.cc.
const char* RefuseRing(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host);
Kernel MakeRing(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host);

}  // namespace poolgrad
