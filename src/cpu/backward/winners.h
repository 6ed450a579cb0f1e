// Scratch of the tangent kernel (winners-inl.h): the scalar half, shared by all SIMD targets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "spec/problem.h"

namespace poolgrad {

inline constexpr int64_t kNowhere = std::numeric_limits<int64_t>::min();  // an offset that is none
inline constexpr int64_t kMostWinnerTaps = 1 << 16;

struct WinnerTiles {
  bool interleaved;  // channels innermost, and more than one
  int64_t channels;  // elements per position: 1 unless interleaved
  int64_t rows;      // of outputs
  int64_t tile;      // outputs of a row whose codes are unpacked together; a multiple of 8 unless interleaved
  int64_t offsets_at, columns_at, codes_at, bytes;
};

inline WinnerTiles LayOutWinners(const Problem& p) {
  WinnerTiles t{};
  t.interleaved = p.channels_last() && p.channels > 1;
  t.channels = t.interleaved ? p.channels : 1;
  t.rows = (t.interleaved ? p.batch : p.batch * p.channels) * p.depth().out * p.height().out;
  t.tile = std::min(p.width().out, t.interleaved ? std::max<int64_t>(1, 4096 / t.channels) : 4096);
  const auto take = [&](int64_t bytes) {
    const int64_t at = t.bytes;
    t.bytes = (t.bytes + bytes + 63) / 64 * 64;
    return at;
  };
  t.offsets_at = take((p.taps() + 1) * 8);
  t.columns_at = take((p.taps() + 1) * 4);
  t.codes_at = take((t.tile * t.channels + 64) * 4);
  return t;
}

}  // namespace poolgrad
