// Rows of x made ready for windows along the width: keys with padding around them, sorted by phase (position modulo
// stride), so that every tap of a vector of windows is a contiguous load. At strides of 2, 3 and 4 that is done on the
// way from x; at wider ones a row is a matrix that is turned over, from scratch. Strides of several channels beside
// each other, and windows put together from spans, are made at all places and picked afterwards (PickRow).

// Per-target include guard
#if defined(POOLGRAD_CPU_PADDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_PADDED_INL_H_
#undef POOLGRAD_CPU_PADDED_INL_H_
#else
#define POOLGRAD_CPU_PADDED_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/simd/order-inl.h"
#include "cpu/simd/prefetch.h"
#include "cpu/simd/transpose-inl.h"
#include "spec/geometry.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// Where padded position q (the input's q - pad_lo) of each of several rows lies: phase q % stride, place q / stride.
struct Phases {
  int64_t stride = 1;
  int64_t places = 0;       // from row to row inside a phase
  int64_t phase_pitch = 0;  // from phase to phase

  Phases() = default;
  Phases(int64_t phases, int64_t positions, int64_t rows, int64_t lanes)
      : stride(phases), places(CeilDiv(positions, stride)), phase_pitch(places * rows + lanes) {}
  int64_t size() const { return stride * phase_pitch; }
  int64_t at(int64_t q) const { return q % stride * phase_pitch + q / stride; }
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

// Rows that fill no block, kStride vectors: a block is taken all the same. Its lanes beyond the row become padding,
// which is what follows a row; where the next row begins, that row is still to be written. Rows too near the end of the
// input to read a block there go by way of a copy.
template <class S, int kStride>
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
    lookahead->At(row + count);
    const bool fits = left * row_pitch + count >= block;
    if (!fits) std::copy_n(row, std::min(count, block), copy);
    VecOf<S> v[4];
    LoadPhases<S, kStride>(fits ? row : copy, v);
    for (int64_t t = 0; t < kStride; ++t) {
      const auto in_row = hn::FirstN(d, static_cast<size_t>(kept[t]));
      const auto key = watch.KeyOf(v[t]);
      watch.See(hn::IfThenElseZero(in_row, key));
      hn::StoreU(hn::IfThenElse(in_row, key, lowest), d, keys + start[t]);
    }
  }
  shared_watch = watch;
}

// Sorts `count` elements of each of `rows` rows; the first of them has position `first`. Values become keys and are
// watched, and those to come are asked for. Up to a vector of places after the last row may be written.
template <class S, int kStride>
HWY_NOINLINE void SplitRowsBy(const Phases& to, const S* row, int64_t count, int64_t first, int64_t row_pitch,
                              int64_t rows, S* keys, Watch<S>& shared_watch, Lookahead* lookahead) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  const int64_t block = kStride * lanes;
  if (count < block && first == 0 && count == row_pitch &&
      count == to.places * to.stride) {  // short rows without padding are one
    count *= rows;
    rows = 1;
  }
  if (count < block) {
    return SplitShortRows<S, kStride>(to, row, count, first, row_pitch, rows, keys, shared_watch, lookahead);
  }
  Watch<S> watch = shared_watch;
  int64_t start[kStride] = {}, last[kStride] = {};  // where the first and the last block of a row go
  for (int64_t t = 0; t < kStride; ++t) {
    start[t] = to.at(first + t);
    last[t] = to.at(first + count - block + t);
  }
  const auto split = [&](const S* from, const int64_t* at, S* base) POOLGRAD_LAMBDA {
    VecOf<S> v[4];
    LoadPhases<S, kStride>(from, v);
    for (int64_t t = 0; t < kStride; ++t) {
      const auto key = watch.KeyOf(v[t]);
      watch.See(key);
      hn::StoreU(key, d, base + at[t]);
    }
  };
  for (int64_t r = 0; r < rows; ++r, row += row_pitch, keys += to.places) {
    lookahead->At(row + count);
    S* base = keys;
    int64_t i = 0;
    for (; i + block <= count; i += block, base += lanes) split(row + i, start, base);
    if (i < count) split(row + count - block, last, keys);
  }
  shared_watch = watch;
}

template <class S>
void SplitRows(const Phases& to, const S* row, int64_t count, int64_t first, int64_t row_pitch, int64_t rows, S* keys,
               Watch<S>& watch, Lookahead* lookahead) {
  switch (to.stride) {
    case 1:
      return SplitRowsBy<S, 1>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
    case 2:
      return SplitRowsBy<S, 2>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
    case 3:
      return SplitRowsBy<S, 3>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
    default:
      return SplitRowsBy<S, 4>(to, row, count, first, row_pitch, rows, keys, watch, lookahead);
  }
}

// Sorts the first `columns` phases of `rows` rows of keys with their padding, to.places * to.stride elements each. What
// a square of 16 bytes holds is read beyond them.
template <class S>
HWY_NOINLINE void SortByPhase(const Phases& to, const S* from, int64_t rows, int64_t columns, S* keys) {
  constexpr int64_t kSide = 16 / sizeof(S);
  const hn::CappedTag<S, kSide> d;
  const int64_t n = rows * to.places;
  for (int64_t r = 0; r < n && n < kSide; ++r) {
    for (int64_t t = 0; t < columns; ++t) keys[t * to.phase_pitch + r] = from[r * to.stride + t];
  }
  for (int64_t r = 0; r < n && n >= kSide; r += kSide) {
    const int64_t row = std::min(r, n - kSide);  // some again
    for (int64_t c = 0; c < columns; c += kSide) {
      hn::Vec<decltype(d)> v[kSide];
      POOLGRAD_UNROLL for (int64_t i = 0; i < kSide; ++i) v[i] = hn::LoadU(d, from + (row + i) * to.stride + c);
      TransposeInBlocks(d, v);
      S* const at = keys + c * to.phase_pitch + row;
      const int64_t some = std::min(kSide, columns - c);
      POOLGRAD_UNROLL for (int64_t i = 0; i < kSide; ++i) {
        if (i < some) hn::StoreU(v[i], d, at + i * to.phase_pitch);
      }
    }
  }
}

// n elements, all alike. Written out, since these files are compiled without loops turned into vectors
// (CMakeLists.txt).
template <class T>
HWY_NOINLINE void FillRow(T* to, int64_t n, T value) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto all = hn::Set(d, value);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(all, d, to + i);
  for (; i < n; ++i) to[i] = value;
}

// Every output's `inner` elements, `step` apart, of `rows` rows. Up to a vector beyond `from` is read and beyond `to`
// written. S: whose lanes are as many as may be.
template <class S, class T>
HWY_NOINLINE void PickRow(const T* from, int64_t out, int64_t step, int64_t inner, T* to) {
  const hn::Rebind<T, hn::ScalableTag<S>> d;
  int64_t o = 0;
  if (inner == 1) {
    for (; o + 4 <= out; o += 4, from += 4 * step) {
      to[o] = from[0];
      to[o + 1] = from[step];
      to[o + 2] = from[2 * step];
      to[o + 3] = from[3 * step];
    }
    for (; o < out; ++o, from += step) to[o] = *from;
  } else {  // what is too much is written over by the next
    for (; o < out; ++o, from += step) hn::StoreU(hn::LoadU(d, from), d, to + o * inner);
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
