// How disjoint windows deal out the input among them: the scalar half of backward_tiling-inl.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "spec/problem.h"

namespace poolgrad {

inline constexpr int64_t kTilingElements = 2048;  // codes unpacked at a time, about

inline constexpr int64_t kMostTilingChannels = 1 << 20;

// dx of so many bytes, more than most caches hold, is written past them where the processor has instructions for that
// (x86). Tests lower it.
inline constexpr int64_t kBytesPastCaches = 64 << 20;
inline std::atomic<int64_t> bytes_past_caches = kBytesPastCaches;

// Inputs of an axis that output o answers for, its own taps or not: from its window's start to the next one's.
inline Range OwnedBy(const Axis& a, int64_t o) {
  const int64_t begin = o == 0 ? 0 : std::clamp<int64_t>(a.start(o), 0, a.in);
  const int64_t end = o == a.out - 1 ? a.in : std::clamp<int64_t>(a.start(o + 1), 0, a.in);
  return {begin, end};
}

// The tap that input i is on the axis of output o, or a negative number.
inline int64_t OwnTap(const Axis& a, int64_t o, int64_t i) {
  const int64_t distance = i - a.start(o);
  if (a.dilation == 1) return distance < a.kernel ? distance : -1;  // -1 or less before the window
  return a.tap_at(o, i);
}

// Outputs whose codes are unpacked together: a part of a row, a multiple of 8 so that its codes begin at a byte, or
// several rows.
inline int64_t TilingChunk(const Problem& p) {
  const int64_t channels = p.channels_last() ? std::max<int64_t>(1, p.channels) : 1;
  const int64_t chunk = std::max<int64_t>(1, kTilingElements / channels / 8) * 8;
  return chunk < p.width().out ? chunk : chunk / p.width().out * p.width().out;
}

// Codes, or sums, that scratch holds.
inline int64_t TilingScratchElements(const Problem& p) {
  const int64_t channels = p.channels_last() ? p.channels : 1;
  return TilingChunk(p) * channels + 64;
}

inline int64_t TilingScratch(const Problem& p) { return 2 * TilingScratchElements(p) * SizeOf(p.dtype); }

}  // namespace poolgrad
