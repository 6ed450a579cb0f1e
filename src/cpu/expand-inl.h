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

// Where things are in an expanded row. Padded position q (the input's q - pad_lo) lies at phase q % stride, place q / stride.
struct Expansion {
  int64_t stride;
  int64_t places;  // per phase, one vector of room included
  int64_t first;   // padded position of the first input element that is used
  int64_t skip;    // input elements before it (a cropped row)
  int64_t count;   // input elements used

  Expansion(const Axis& width, int64_t lanes) {
    stride = width.stride;
    const int64_t positions = (width.out - 1) * width.stride + width.extent();
    places = CeilDiv(positions, stride) + lanes;
    first = std::max<int64_t>(0, width.pad_lo);
    skip = std::max<int64_t>(0, -width.pad_lo);
    count = std::max<int64_t>(0, std::min(width.in - skip, positions - first));
  }
  int64_t size() const { return stride * places; }
  int64_t at(int64_t q) const { return q % stride * places + q / stride; }
};

template <class S, int kStride>
HWY_INLINE void SplitBlock(const S* from, S* to, int64_t places, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const auto put = [&](auto phase, VecOf<S> raw) HWY_ATTR {
    const auto key = Key<S>(raw);
    watch.template See<decltype(phase)::value>(key);
    watch.SeeWinner(key);
    hn::StoreU(key, d, to + decltype(phase)::value * places);
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

template <class S, int kStride>
HWY_INLINE void SplitRow(const Expansion& e, const S* row, S* keys, Watch<S>& shared_watch, int64_t begin, int64_t end) {
  Watch<S> watch = shared_watch;
  const int64_t block = kStride * LaneCount<S>();
  int64_t i = begin;
  for (; i + block <= end; i += block) SplitBlock<S, kStride>(row + i, keys + (e.first + i) / kStride, e.places, watch);
  if (i < end) SplitBlock<S, kStride>(row + end - block, keys + (e.first + end - block) / kStride, e.places, watch);
  shared_watch = watch;
}

// Expands one row. The padding must have been filled with LowestKey once; it is left alone.
template <class S>
HWY_NOINLINE void ExpandRow(const Expansion& e, const S* row, S* keys, Watch<S>& watch) {
  row += e.skip;
  int64_t begin = 0;  // [begin, end) is the part that vectors do: whole strides, at least one block
  int64_t end = 0;
  if (e.stride <= 4) {
    begin = std::min((e.stride - e.first % e.stride) % e.stride, e.count);
    end = begin + (e.count - begin) / e.stride * e.stride;
    if (end - begin < e.stride * LaneCount<S>()) end = begin = 0;
  }
  if (begin < end) {
    switch (e.stride) {
      case 1: SplitRow<S, 1>(e, row, keys, watch, begin, end); break;
      case 2: SplitRow<S, 2>(e, row, keys, watch, begin, end); break;
      case 3: SplitRow<S, 3>(e, row, keys, watch, begin, end); break;
      default: SplitRow<S, 4>(e, row, keys, watch, begin, end); break;
    }
  }
  const auto put = [&](int64_t i) HWY_ATTR {
    const S key = ScalarKey<S>(row[i]);
    keys[e.at(e.first + i)] = key;
    if constexpr (!kIsInt<S>) {
      const auto v = hn::Set(hn::ScalableTag<S>(), key);
      watch.See(v);
      watch.SeeWinner(v);
    }
  };
  for (int64_t i = 0; i < begin; ++i) put(i);
  for (int64_t i = end; i < e.count; ++i) put(i);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
