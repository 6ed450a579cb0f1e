// Rows of outputs without routes whose windows are three wide and two apart, channels first, straight from x: the input
// rows meet, and the window slides over what they leave, all in registers. Only the last windows of a row, which may
// reach over its end, go through a few elements of memory. For vectors of 16 bytes, where lanes of two neighbours are
// joined by one instruction.
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

#include "cpu/maxima-inl.h"
#include "cpu/order-inl.h"
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

// over <= 1: more than the last vector of windows never reaches over the end.
template <class S>
bool Slides(const Axis& width) {
  const int64_t lanes = LaneCount<S>();
  const int64_t over = EndOfWindows(width) - width.in;
  return kSlides<S> && width.kernel == 3 && width.dilation == 1 && width.stride == 2 &&
         (width.pad_lo == 0 || width.pad_lo == 1) && over <= 1 && over > -lanes && width.in >= 3 * lanes &&
         width.out >= lanes;
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
    const int64_t out = width.out;
    const int64_t in = width.in;
    const int64_t middle = 1 - width.pad_lo;  // the column of tap 1 of the first window
    // The last 3 * lanes columns, and beyond them the lowest keys.
    HWY_ALIGN S end[4 * hn::MaxLanes(hn::ScalableTag<S>())];
    hn::Store(hn::Set(d, LowestKey<S>()), d, end + 3 * lanes);
    const int64_t last_windows =
        EndOfWindows(width) - 1 - 2 * lanes - (in - 3 * lanes);  // where the last vector of windows begins there
    for (int64_t p = 0; p < job.planes; ++p) {
      int64_t base = p * job.in_plane;
      S* y = job.to + p * job.out_plane;
      for (int64_t r = 0; r < job.runs; ++r, base += job.in_pitch, y += out) {
        job.lookahead->At(from[n - 1] + base + in);
        auto before = hn::Set(d, LowestKey<S>());
        if (middle > 0) {
          for (int64_t t = 0; t < n; ++t) {
            const auto key = Key<S>(hn::Set(d, from[t][base]));
            watch.See(key);
            before = Greatest<S>(key, before);
          }
        }
        int64_t j = 0;
        int64_t at = base + middle;
        for (; middle + 2 * j + 2 * lanes <= in && j + lanes <= out;
             j += lanes, at += 2 * lanes) {  // taps 1 and 2 of a vector of windows are here
          const auto low = GreatestAt<S, kRaw, 0>(from, 0, n, at, watch);
          const auto high = GreatestAt<S, kRaw, 1>(from, 0, n, at + lanes, watch);
          const auto odd = hn::ConcatOdd(d, high, low);
          const auto tap0 = hn::CombineShiftRightBytes<16 - sizeof(S)>(d, odd, before);
          before = odd;
          PutMax<S, kToY, 0>(Greatest<S>(tap0, PairMax<S>(low, high)), y + j, watch);
        }
        if (j >= out) continue;
        for (int64_t i = 0; i < 3; ++i) {
          hn::Store(GreatestAt<S, kRaw, 2>(from, 0, n, base + in - (3 - i) * lanes, watch), d, end + i * lanes);
        }
        PutMax<S, kToY, 1>(PairsAt<S>(end + last_windows, 3), y + out - lanes, watch);
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
