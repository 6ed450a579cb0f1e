// An input row made ready for the width axis of channels first: keys instead of values, padding filled in, and the elements of a
// strided row sorted by phase (position modulo stride), so that every tap of a window is a contiguous load.

// Per-target include guard
#if defined(POOLGRAD_CPU_EXPAND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_EXPAND_INL_H_
#undef POOLGRAD_CPU_EXPAND_INL_H_
#else
#define POOLGRAD_CPU_EXPAND_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/order-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Where things are in expanded rows. Padded position q (the input's q - pad_lo) lies at phase q % stride, place q / stride.
struct Expansion {
  int64_t stride;
  int64_t places;       // from row to row inside a phase
  int64_t phase_pitch;  // from phase to phase
  int64_t first;        // padded position of the first input element that is used
  int64_t skip;         // input elements before it (a cropped row)
  int64_t count;        // input elements used
  int64_t begin, end;   // of the part that vectors do: whole strides, at least one block, or nothing

  Expansion(const Axis& width, int64_t rows, int64_t lanes) {
    stride = width.stride;
    const int64_t positions = (width.out - 1) * width.stride + width.extent();
    places = CeilDiv(positions, stride);
    phase_pitch = places * rows + lanes;
    first = std::max<int64_t>(0, width.pad_lo);
    skip = std::max<int64_t>(0, -width.pad_lo);
    count = std::max<int64_t>(0, std::min(width.in - skip, positions - first));
    begin = end = 0;
    if (stride <= 4) {
      begin = std::min((stride - first % stride) % stride, count);
      end = begin + (count - begin) / stride * stride;
      if (end - begin < stride * lanes) end = begin = 0;
    }
  }
  int64_t size() const { return stride * phase_pitch; }
  int64_t at(int64_t q) const { return q % stride * phase_pitch + q / stride; }
};

template <class S, int kStride>
HWY_INLINE void SplitBlock(const S* from, S* to, int64_t phase_pitch, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const auto put = [&](auto phase, VecOf<S> raw) POOLGRAD_LAMBDA {
    const auto key = Key<S>(raw);
    watch.template See<decltype(phase)::value>(key);
    hn::StoreU(key, d, to + decltype(phase)::value * phase_pitch);
  };
  VecOf<S> a, b, c, e;
  if constexpr (kStride == 2) hn::LoadInterleaved2(d, from, a, b);
  if constexpr (kStride == 3) hn::LoadInterleaved3(d, from, a, b, c);
  if constexpr (kStride == 4) hn::LoadInterleaved4(d, from, a, b, c, e);
  if constexpr (kStride == 1) a = hn::LoadU(d, from);
  put(std::integral_constant<int, 0>(), a);
  if constexpr (kStride > 1) put(std::integral_constant<int, 1>(), b);
  if constexpr (kStride > 2) put(std::integral_constant<int, 2>(), c);
  if constexpr (kStride > 3) put(std::integral_constant<int, 3>(), e);
}

// Expands `rows` rows that are row_pitch apart in the input. The padding must have been filled with LowestKey once; it is left
// alone.
template <class S, int kStride>
HWY_NOINLINE void ExpandRowsBy(const Expansion& e, const S* row, int64_t row_pitch, int64_t rows, S* keys,
                               Watch<S>& shared_watch) {
  Watch<S> watch = shared_watch;
  const int64_t block = kStride * LaneCount<S>();
  const int64_t stride = kStride > 0 ? kStride : e.stride;
  const int64_t begin = kStride > 0 ? e.begin : 0;
  const int64_t end = kStride > 0 ? e.end : 0;
  const int64_t phase_pitch = e.phase_pitch;
  row += e.skip;
  for (int64_t r = 0; r < rows; ++r, row += row_pitch, keys += e.places) {
    if constexpr (kStride > 0) {
      if (begin < end) {
        S* to = keys + (e.first + begin) / kStride;
        int64_t i = begin;
        for (; i + block <= end; i += block, to += block / kStride) SplitBlock<S, kStride>(row + i, to, phase_pitch, watch);
        if (i < end) SplitBlock<S, kStride>(row + end - block, to + (end - block - i) / kStride, phase_pitch, watch);
      }
    }
    int64_t phase = e.first % stride;
    int64_t place = e.first / stride;
    const auto put = [&](int64_t i) POOLGRAD_LAMBDA {
      const S key = ScalarKey<S>(row[i]);
      keys[phase * phase_pitch + place] = key;
      if (++phase == stride) {
        phase = 0;
        ++place;
      }
      if constexpr (!kIsInt<S>) {
        const auto v = hn::Set(hn::ScalableTag<S>(), key);
        watch.See(v);
      }
    };
    for (int64_t i = 0; i < begin; ++i) put(i);
    if (end < e.count) {
      phase = (e.first + end) % stride;
      place = (e.first + end) / stride;
      for (int64_t i = end; i < e.count; ++i) put(i);
    }
  }
  shared_watch = watch;
}

template <class S>
void ExpandRows(const Expansion& e, const S* row, int64_t row_pitch, int64_t rows, S* keys, Watch<S>& watch) {
  switch (e.stride) {
    case 1: return ExpandRowsBy<S, 1>(e, row, row_pitch, rows, keys, watch);
    case 2: return ExpandRowsBy<S, 2>(e, row, row_pitch, rows, keys, watch);
    case 3: return ExpandRowsBy<S, 3>(e, row, row_pitch, rows, keys, watch);
    case 4: return ExpandRowsBy<S, 4>(e, row, row_pitch, rows, keys, watch);
    default: return ExpandRowsBy<S, 0>(e, row, row_pitch, rows, keys, watch);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
