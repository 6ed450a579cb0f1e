// How accumulation in planes is cut: the scalar half of backward_scatter-inl.h, shared by all SIMD targets.
//
// A plane of sums in scratch spans the input and all its padding that windows reach, so that every tap of every output
// lands inside it. Positions inside the stretch of that plane which one output row reaches are numbered in 16 bits.
// Channels first keeps only the rows that a band of output rows reaches, and slides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spec/problem.h"

namespace poolgrad {

inline constexpr int64_t kScatterLanes = 4;          // planes interleaved into one plane of sums, channels first
inline constexpr int64_t kScatterTogether = 4;       // such planes walked in step
inline constexpr int64_t kScatterBand = 4;           // output rows, so that their sums stay in the first-level cache
inline constexpr int64_t kScatterBytes = 512 << 10;  // of sums
inline constexpr int64_t kScatterReach = 1 << 16;    // elements
inline constexpr int64_t kScatterSlack = 64;         // elements after rows of codes
inline constexpr int64_t kRowsAhead = 2;             // output rows asked for before they are used

struct ScatterTiles {
  bool interleaved;  // channels innermost, and more than one
  int64_t channels;  // elements per position of x and y: 1 unless interleaved
  int64_t block;     // elements per position of the plane of sums: channels, or planes
  int64_t blocks;    // of channels
  int64_t images;    // batch, or batch times channels
  int64_t together;  // planes of sums walked in step
  int64_t groups;    // of images
  bool banded;       // the plane of sums holds a band of output rows at a time
  int64_t band;      // output rows of a band
  int64_t span[3];   // positions of the plane of sums, per axis
  int64_t plane;     // elements of one plane of sums
  int64_t row;       // elements of one output row, times block
  int64_t reach;     // elements of the plane of sums that one output row reaches
  int64_t sums_at, bases_at, rows_at, unpacked_at, indices_at, codes_at, values_at, table_at, bytes;

  int64_t units() const { return groups * blocks; }
};

// `lane_bytes`: of a sum. All products stay small: the caller refused spans past kScatterReach.
inline ScatterTiles LayOutScatter(const Problem& p, int64_t lane_bytes) {
  ScatterTiles t{};
  t.interleaved = p.channels_last() && p.channels > 1;
  t.channels = t.interleaved ? p.channels : 1;
  t.images = t.interleaved ? p.batch : p.batch * p.channels;
  const Axis& depth = p.depth();
  t.banded = !t.interleaved && depth.kernel == 1 && depth.stride == 1 && depth.pad_lo == 0 && depth.in == depth.out;
  t.band = t.banded ? std::min(p.height().out, kScatterBand) : p.height().out;
  int64_t positions = 1;
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    const int64_t outputs = i == 1 ? t.band : i == 0 && t.banded ? 1 : a.out;
    t.span[i] = (outputs - 1) * a.stride + a.extent();
    positions = std::min<int64_t>(positions * t.span[i], int64_t{1} << 40);
  }
  const int64_t reach = ((p.depth().extent() - 1) * t.span[1] + p.height().extent()) * t.span[2];
  const auto fits = [&](int64_t block) {
    return reach * block < kScatterReach && positions * block * lane_bytes <= kScatterBytes;
  };
  t.block = t.interleaved ? t.channels : kScatterLanes;
  if (t.interleaved && (!fits(t.block) || t.block > 64)) {
    for (t.block = 64; t.block > 16 && !fits(t.block);) t.block /= 2;
  }
  t.blocks = CeilDiv(t.channels, t.block);
  t.plane = positions * t.block;
  t.reach = reach * t.block;
  if (t.interleaved) {
    t.together = 1;
    t.groups = t.images;
  } else {
    const int64_t fitting = std::clamp<int64_t>(kScatterBytes / (t.plane * lane_bytes), 1, kScatterTogether);
    t.together = std::min(fitting, CeilDiv(t.images, t.block));
    t.groups = CeilDiv(t.images, t.together * t.block);
  }
  t.row = p.width().out * t.block;
  const auto take = [&](int64_t bytes) {
    const int64_t at = t.bytes;
    t.bytes = (t.bytes + bytes + 63) / 64 * 64;
    return at;
  };
  t.sums_at = take(t.together * t.plane * lane_bytes);
  t.bases_at = take((t.row + kScatterSlack) * 2);
  t.rows_at = take(t.interleaved ? 0 : (p.width().out + kScatterSlack) * (2 + lane_bytes));
  t.unpacked_at = take(t.interleaved ? 0 : t.together * t.block * p.out_plane() + kScatterSlack);
  t.indices_at = take(t.together * (t.row + kScatterSlack) * 2);
  t.codes_at = take((t.row + kScatterSlack) * 4);
  t.values_at = take(t.together * (t.row + kScatterSlack) * lane_bytes);
  t.table_at = take((p.taps() + 1) * 2);
  return t;
}

// n / divisor for n < 256, as the high half of a 16-bit product. divisor >= 2.
inline uint16_t ReciprocalOf(int64_t divisor) { return static_cast<uint16_t>(65535 / divisor + 1); }

}  // namespace poolgrad
