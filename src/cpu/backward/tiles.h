// How a gather over rows is cut: the scalar half of backward_gather-inl.h, shared by all SIMD targets.
//
// An input row is taken apart by phase: input i of an axis with stride s is i = s*q + phase. Taps with
// tap*dilation = phase + pad_lo + s*shift land on it from output q - shift. So the inputs of one phase are covered by
// outputs that lie next to each other, and a vector over q (times channels, when those are innermost) reads plain
// contiguous rows.
//
// Output rows are spread once into slots of scratch (values and codes, one per lane) and used by all the input rows
// they cover. A tile is a stretch of q, and of channels, whose slots stay in the first-level cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spec/problem.h"

namespace poolgrad {

inline constexpr int64_t kRowLead = 8;    // elements a slot may be written before its start
inline constexpr int64_t kRowSlack = 64;  // and after its end; also read, up to one vector
inline constexpr int64_t kTileBytes = 40 << 10;
inline constexpr int64_t kMostSlots = 4096;
inline constexpr int64_t kMostGatherScratch = 16 << 20;
inline constexpr int64_t kUnitsWanted = 64;

// A tap of the width axis, and how many outputs back it lies.
struct WidthTap {
  int32_t tap;
  int32_t shift;
};

// An output row over an input row: its slot's first element, and the tap its row of the window begins with.
struct Cover {
  int64_t at;
  int64_t first_tap;
};

// One (output row, tap) that an input row gathers from: where in the slots its values and codes begin for q = 0.
struct Visit {
  int32_t values;
  int32_t codes;
  uint64_t tap;  // the code to match, or the bit of a mask's word
};

struct GatherTiles {
  bool interleaved;  // channels innermost, and more than one
  int64_t planes;    // independent images: batch, or batch times channels
  int64_t channels;  // elements per position: 1 unless interleaved
  int64_t block;     // of those, taken together
  int64_t phases;
  int64_t shift_lo, shift_hi;
  int64_t positions;  // q per row
  int64_t tile;       // q per tile
  int64_t slots_depth, slots_height;
  bool slot_by_place;  // slot = output row modulo the slots, so that it is found again by the next input row
  int64_t words;       // rows of codes per slot
  int64_t step;        // elements from slot to slot
  int64_t rows;        // input rows of a plane, depth times height
  int64_t band;        // input rows per unit
  int64_t bands;       // units per plane
  // Scratch, in bytes.
  int64_t values_at, codes_at, divisors_at, covers_at, visits_at, starts_at, taps_at, tags_at, bytes;

  int64_t slots() const { return slots_depth * slots_height; }
  int64_t units() const { return planes * bands; }
};

inline int64_t RoundUpTo(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Rows of outputs that an input row may be covered by.
inline int64_t CoverCount(const Axis& a) { return std::min(a.out, CeilDiv(a.extent(), a.stride)); }

// `lane_bytes`: of a value and of a code. `words`: code rows (0 for average).
inline GatherTiles LayOutGather(const Problem& p, int64_t lane_bytes, int64_t words) {
  GatherTiles t{};
  const Axis& w = p.width();
  t.interleaved = p.channels_last() && p.channels > 1;
  t.planes = t.interleaved ? p.batch : p.batch * p.channels;
  t.channels = t.interleaved ? p.channels : 1;
  t.positions = CeilDiv(w.in, w.stride);
  t.phases = std::min(w.stride, w.in);
  t.shift_lo = CeilDiv(-(t.phases - 1) - w.pad_lo, w.stride);
  t.shift_hi = FloorDiv((w.kernel - 1) * w.dilation - w.pad_lo, w.stride);
  t.words = words;

  const int64_t by_place = CoverCount(p.depth()) * CoverCount(p.height());
  t.slot_by_place = by_place <= 32;
  t.slots_depth =
      std::max<int64_t>(1, t.slot_by_place ? CoverCount(p.depth()) : std::min(p.depth().kernel, p.depth().out));
  t.slots_height =
      std::max<int64_t>(1, t.slot_by_place ? CoverCount(p.height()) : std::min(p.height().kernel, p.height().out));

  const int64_t halo = t.shift_hi - t.shift_lo;
  const int64_t element_bytes = t.slots() * lane_bytes * (1 + words);
  const int64_t fits = std::max<int64_t>(64, kTileBytes / element_bytes);  // elements per slot
  const int64_t least = t.interleaved ? std::min<int64_t>(t.positions, std::max<int64_t>(8, halo)) : 0;
  t.block = std::min(t.channels, std::max<int64_t>(64, fits / std::max<int64_t>(1, least + halo) / 64 * 64));
  t.tile = std::min(t.positions, std::max(fits / t.block - halo, std::max<int64_t>(least, t.interleaved ? 1 : 64)));
  t.step = RoundUpTo(kRowLead + (t.tile + halo) * t.block + kRowSlack, 64);

  t.rows = p.depth().in * p.height().in;
  const int64_t bands =
      std::min(CeilDiv(kUnitsWanted, std::max<int64_t>(1, t.planes)), std::max<int64_t>(1, t.rows / 8));
  t.band = std::max<int64_t>(1, CeilDiv(t.rows, bands));
  t.bands = CeilDiv(t.rows, t.band);

  const auto most = [](const Axis& a) { return std::min(a.kernel, std::max<int64_t>(1, a.out)); };
  const int64_t most_covers = most(p.depth()) * most(p.height());
  const auto take = [&](int64_t bytes) {
    const int64_t at = t.bytes;
    t.bytes = RoundUpTo(t.bytes + bytes, 64);
    return at;
  };
  t.values_at = take(t.slots() * t.step * lane_bytes);
  t.codes_at = take(t.slots() * t.step * lane_bytes * words);
  t.divisors_at = take(t.step * lane_bytes);
  t.covers_at = take(most_covers * static_cast<int64_t>(sizeof(Cover)));
  t.visits_at = take(most_covers * w.kernel * static_cast<int64_t>(sizeof(Visit)));
  t.starts_at = take(2 * (t.phases + 1) * static_cast<int64_t>(sizeof(int32_t)));
  t.taps_at = take(w.kernel * static_cast<int64_t>(sizeof(WidthTap)));
  t.tags_at = take(t.slots() * static_cast<int64_t>(sizeof(int64_t)));
  return t;
}

// Sorts the width's taps by the phase they land on, and inside a phase by output. `start` gets phases + 1 entries.
inline void SortTaps(const Axis& w, int64_t phases, WidthTap* taps, int32_t* start) {
  int32_t count = 0;
  for (int64_t phase = 0; phase < phases; ++phase) {
    start[phase] = count;
    for (int64_t tap = w.kernel - 1; tap >= 0; --tap) {
      const int64_t distance = tap * w.dilation - phase - w.pad_lo;
      if (distance % w.stride != 0) continue;
      taps[count++] = {static_cast<int32_t>(tap), static_cast<int32_t>(distance / w.stride)};
    }
  }
  start[phases] = count;
}

}  // namespace poolgrad
