// Rows of channels first made ready for windows along a strided width: the elements sorted by phase (position modulo
// stride), so that every tap of a vector of windows is a contiguous load.

// Per-target include guard
#if defined(POOLGRAD_CPU_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_SPLIT_INL_H_
#undef POOLGRAD_CPU_SPLIT_INL_H_
#else
#define POOLGRAD_CPU_SPLIT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/simd/order-inl.h"
#include "cpu/simd/prefetch.h"
#include "hwy/highway.h"
#include "spec/geometry.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// How many positions, padding included, the windows of an axis reach over; a cropped input may have more.
inline int64_t Positions(const Axis& a) { return (a.out - 1) * a.stride + a.extent(); }

// Where padded position q (the input's q - pad_lo) of each of several rows lies: phase q % stride, place q / stride.
struct Phases {
  int64_t stride;
  int64_t places;       // from row to row inside a phase
  int64_t phase_pitch;  // from phase to phase

  Phases(const Axis& width, int64_t rows, int64_t lanes)
      : stride(width.stride), places(CeilDiv(Positions(width), stride)), phase_pitch(places * rows + lanes) {}
  int64_t size() const { return stride * phase_pitch; }
  int64_t at(int64_t q) const { return q % stride * phase_pitch + q / stride; }
};

// The part of each input row that windows see.
struct Seen {
  int64_t skip;  // elements before it (a cropped row)
  int64_t count;
  int64_t first;  // the padded position of its first element

  explicit Seen(const Axis& width)
      : skip(std::max<int64_t>(0, -width.pad_lo)), first(std::max<int64_t>(0, width.pad_lo)) {
    count = std::max<int64_t>(0, std::min(width.in - skip, Positions(width) - first));
  }
};

// v[t] = every kStride-th element from x + t on. Two and four by joining halves: on Neoverse-V1 the loads that
// de-interleave take longer.
template <class S, int kStride>
HWY_INLINE void LoadPhases(const S* x, VecOf<S>* v) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  if constexpr (kStride == 1) {
    v[0] = hn::LoadU(d, x);
  } else if constexpr (kStride == 3) {
    hn::LoadInterleaved3(d, x, v[0], v[1], v[2]);
  } else if constexpr (kStride == 2) {
    const auto low = hn::LoadU(d, x);
    const auto high = hn::LoadU(d, x + lanes);
    v[0] = hn::ConcatEven(d, high, low);
    v[1] = hn::ConcatOdd(d, high, low);
  } else {
    VecOf<S> low[2], high[2];
    LoadPhases<S, 2>(x, low);
    LoadPhases<S, 2>(x + 2 * lanes, high);
    v[0] = hn::ConcatEven(d, high[0], low[0]);
    v[1] = hn::ConcatEven(d, high[1], low[1]);
    v[2] = hn::ConcatOdd(d, high[0], low[0]);
    v[3] = hn::ConcatOdd(d, high[1], low[1]);
  }
}

// Rows that fill no block, kStride vectors: a block is taken all the same. Its lanes beyond the row become padding, which
// is what follows a row; where the next row begins, that row is still to be written. Rows too near the end of the input
// to read a block there go by way of a copy.
template <class S, bool kRaw, int kStride>
HWY_NOINLINE void SplitShortRows(const Phases& to, const S* row, int64_t count, int64_t first, int64_t row_pitch,
                                 int64_t rows, S* keys, Watch<S>& shared_watch, Lookahead* lookahead) {
  const hn::ScalableTag<S> d;
  Watch<S> watch = shared_watch;
  const int64_t block = kStride * LaneCount<S>();
  const auto lowest = hn::Set(d, LowestKey<S>());
  HWY_ALIGN S copy[kStride * hn::MaxLanes(hn::ScalableTag<S>())] = {};
  int64_t start[kStride], kept[kStride];
  for (int64_t t = 0; t < kStride; ++t) {
    start[t] = to.at(first + t);
    kept[t] = std::max<int64_t>(0, CeilDiv(count - t, kStride));
  }
  for (int64_t left = rows - 1; left >= 0; --left, row += row_pitch, keys += to.places) {
    if constexpr (kRaw) lookahead->At(row + count);
    const bool fits = left * row_pitch + count >= block;
    if (!fits) std::copy_n(row, std::min(count, block), copy);
    VecOf<S> v[4];
    LoadPhases<S, kStride>(fits ? row : copy, v);
    for (int64_t t = 0; t < kStride; ++t) {
      const auto in_row = hn::FirstN(d, static_cast<size_t>(kept[t]));
      const auto key = kRaw ? Key<S>(v[t]) : v[t];
      if constexpr (kRaw) watch.See(hn::IfThenElseZero(in_row, key));
      hn::StoreU(hn::IfThenElse(in_row, key, lowest), d, keys + start[t]);
    }
  }
  shared_watch = watch;
}

// Sorts `count` elements of each of `rows` rows; the first of them has position `first`. kRaw: values become
// keys and are watched, and those to come are asked for. Up to a vector of places after the last row may be written.
template <class S, bool kRaw, int kStride>
HWY_NOINLINE void SplitRowsBy(const Phases& to, const S* row, int64_t count, int64_t first, int64_t row_pitch,
                              int64_t rows, S* keys, Watch<S>& shared_watch, Lookahead* lookahead) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  constexpr int64_t kPhases = kStride > 0 ? kStride : 1;
  const int64_t block = kPhases * lanes;
  if (count < block && first == 0 && count == row_pitch &&
      count == to.places * to.stride) {  // short rows without padding are one
    count *= rows;
    rows = 1;
  }
  if constexpr (kStride > 0) {
    if (count < block) {
      return SplitShortRows<S, kRaw, kStride>(to, row, count, first, row_pitch, rows, keys, shared_watch, lookahead);
    }
  }
  Watch<S> watch = shared_watch;
  int64_t start[kPhases] = {}, last[kPhases] = {};  // where the first and the last block of a row go
  for (int64_t t = 0; kStride > 0 && t < kPhases; ++t) {
    start[t] = to.at(first + t);
    last[t] = to.at(first + count - block + t);
  }
  const auto split = [&](const S* from, const int64_t* at, S* base) POOLGRAD_LAMBDA {
    VecOf<S> v[4];
    if constexpr (kStride > 0) LoadPhases<S, kStride>(from, v);
    for (int64_t t = 0; t < kPhases; ++t) {
      const auto key = kRaw ? Key<S>(v[t]) : v[t];
      if constexpr (kRaw) watch.See(key);
      hn::StoreU(key, d, base + at[t]);
    }
  };
  for (int64_t r = 0; r < rows; ++r, row += row_pitch, keys += to.places) {
    if constexpr (kRaw) lookahead->At(row + count);
    if constexpr (kStride > 0) {
      S* base = keys;
      int64_t i = 0;
      for (; i + block <= count; i += block, base += lanes) split(row + i, start, base);
      if (i < count) split(row + count - block, last, keys);
    } else {  // strides that no load knows
      int64_t phase = first % to.stride;
      int64_t place = first / to.stride;
      for (int64_t i = 0; i < count; ++i) {
        const S key = kRaw ? ScalarKey<S>(row[i]) : row[i];
        if constexpr (kRaw && !kIsInt<S>) watch.See(hn::Set(d, key));
        keys[phase * to.phase_pitch + place] = key;
        if (++phase == to.stride) {
          phase = 0;
          ++place;
        }
      }
    }
  }
  shared_watch = watch;
}

template <class S, bool kRaw>
void SplitRows(const Phases& to, const S* row, int64_t count, int64_t first, int64_t row_pitch, int64_t rows, S* keys,
               Watch<S>& watch, Lookahead* lookahead) {
  switch (to.stride) {
    case 1:
      return SplitRowsBy<S, kRaw, 1>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
    case 2:
      return SplitRowsBy<S, kRaw, 2>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
    case 3:
      return SplitRowsBy<S, kRaw, 3>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
    case 4:
      return SplitRowsBy<S, kRaw, 4>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
    default:
      return SplitRowsBy<S, kRaw, 0>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
