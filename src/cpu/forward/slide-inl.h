// Rows of outputs without routes whose windows are three wide and two apart, channels first, straight from x: the input
// rows meet, and the window slides over what they leave, all in registers. For vectors of 16 bytes, where lanes of two
// neighbours are joined by one instruction.
//
// One apart, the two passes of columns-inl.h are faster: there rows of outputs share two of their three input rows.

// Per-target include guard
#if defined(POOLGRAD_CPU_SLIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_SLIDE_INL_H_
#undef POOLGRAD_CPU_SLIDE_INL_H_
#else
#define POOLGRAD_CPU_SLIDE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/forward/maxima-inl.h"
#include "cpu/simd/order-inl.h"
#include "hwy/highway.h"
#include "spec/geometry.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

#ifdef POOLGRAD_SMALL
template <class S>
inline constexpr bool kSlides = false;
#else
template <class S>
inline constexpr bool kSlides = hn::MaxLanes(hn::ScalableTag<S>()) * sizeof(S) == 16 && sizeof(S) <= 4;
#endif

// The column after the last that a window reaches.
inline int64_t EndOfWindows(const Axis& width) { return width.start(width.out - 1) + width.extent(); }

// over <= 1: only the last tap of the last window reaches over the end.
template <class S>
bool Slides(const Axis& width) {
  const int64_t lanes = LaneCount<S>();
  return kSlides<S> && width.kernel == 3 && width.dilation == 1 && width.stride == 2 &&
         (width.pad_lo == 0 || width.pad_lo == 1) && EndOfWindows(width) <= width.in + 1 && width.out >= lanes;
}

// Every lane: the greatest of the n elements at `at`.
template <class S>
HWY_INLINE VecOf<S> GreatestOfColumn(const S* const* from, int64_t n, int64_t at, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  auto v = Key<S>(hn::Set(d, from[0][at]));
  watch.template See<2>(v);
  for (int64_t t = 1; t < n; ++t) {
    const auto key = Key<S>(hn::Set(d, from[t][at]));
    watch.template See<2>(key);
    v = Greatest<S>(key, v);
  }
  return v;
}

template <class S, int kN>
HWY_NOINLINE void SlideRows(const MaxJob<S>& job, const Axis& width, Watch<S>& shared_watch) {
  if constexpr (kSlides<S>) {
    constexpr MaxFlow kRaw = MaxFlow::kRawToKeys;
    constexpr MaxFlow kToY = MaxFlow::kKeysToY;
    const hn::ScalableTag<S> d;
    const int64_t lanes = LaneCount<S>();
    Watch<S> watch = shared_watch;
    const int64_t n = kN > 0 ? kN : job.n;
    const S* known[kN > 0 ? kN : 1] = {};
    for (int t = 0; t < kN; ++t) known[t] = job.from[t];
    const S* const* from = kN > 0 ? known : job.from;
    const auto lowest = hn::Set(d, LowestKey<S>());
    const int64_t out = width.out;
    const int64_t in = width.in;
    const int64_t middle = 1 - width.pad_lo;  // the column of tap 1 of the first window
    const bool over = EndOfWindows(width) > in;
    const int64_t full = over ? (out - 1) / lanes * lanes : out / lanes * lanes;  // windows in vectors that stay inside
    const int64_t last = middle + 2 * (out - lanes);  // the column of tap 1 of the first of the last vector of windows
    // Brings the last tap of the window before those to every lane.
    const hn::ScalableTag<uint8_t> d8;
    const auto size = static_cast<int64_t>(sizeof(S));
    const auto of_last = hn::Add(hn::And(hn::Iota(d8, 0), hn::Set(d8, static_cast<uint8_t>(size - 1))),
                                 hn::Set(d8, static_cast<uint8_t>(std::max<int64_t>(0, out - 1 - full) * size)));
    for (int64_t p = 0; p < job.planes; ++p) {
      int64_t base = p * job.in_plane;
      S* y = job.to + p * job.out_plane;
      for (int64_t r = 0; r < job.runs; ++r, base += job.in_pitch, y += out) {
        job.lookahead->At(from[n - 1] + base + in);
        auto before = middle > 0 ? GreatestOfColumn<S>(from, n, base, watch) : lowest;
        int64_t at = base + middle;
        for (int64_t j = 0; j < full; j += lanes, at += 2 * lanes) {  // taps 1 and 2 of a vector of windows are here
          const auto low = GreatestAt<S, kRaw, 0>(from, 0, n, at, watch);
          const auto high = GreatestAt<S, kRaw, 1>(from, 0, n, at + lanes, watch);
          const auto odd = hn::ConcatOdd(d, high, low);
          const auto tap0 = hn::CombineShiftRightBytes<16 - sizeof(S)>(d, odd, before);
          before = odd;
          PutMax<S, kToY, 0>(Greatest<S>(tap0, PairMax<S>(low, high)), y + j, watch);
        }
        if (full == out) continue;
        // The last vector of windows, over the one before it.
        if (full > 0) before = hn::BitCast(d, hn::TableLookupBytes(hn::BitCast(d8, before), of_last));
        const auto low = GreatestAt<S, kRaw, 0>(from, 0, n, base + last, watch);
        auto high = GreatestAt<S, kRaw, 1>(from, 0, n, base + last + lanes - (over ? 1 : 0), watch);
        if (over) high = hn::CombineShiftRightBytes<sizeof(S)>(d, lowest, high);
        const auto tap0 = hn::CombineShiftRightBytes<16 - sizeof(S)>(d, hn::ConcatOdd(d, high, low), before);
        PutMax<S, kToY, 1>(Greatest<S>(tap0, PairMax<S>(low, high)), y + out - lanes, watch);
      }
    }
    shared_watch = watch;
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
