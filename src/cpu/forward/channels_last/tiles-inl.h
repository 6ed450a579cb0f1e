// fwd_cl_rows where windows of four or eight taps share nothing and lie inside the input: 2x2, 2x2x2,
// 4 in one dimension.
//
// All taps of a block of channels are read at once, nothing waits in an accumulator, and codes leave packed. The rows
// of a window are runs of addresses far from each other, which end and begin with every row of outputs: the hardware
// follows them late. So what the next row of outputs reads is asked for while this one is made, as the one run of
// addresses that it is in memory. (2x2 with routes over rows of 28 to 56 KiB, as a fraction of copy: one input row
// after the other 0.50, at once 0.50 to 0.58, with the next rows asked for 0.63 to 0.68.)

// Per-target include guard
#if defined(POOLGRAD_CPU_CL_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_CL_TILES_INL_H_
#undef POOLGRAD_CPU_CL_TILES_INL_H_
#else
#define POOLGRAD_CPU_CL_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/forward/any/maxima-inl.h"
#include "cpu/forward/common/exact-inl.h"
#include "cpu/forward/common/rows-inl.h"
#include "cpu/forward/common/tile_routes-inl.h"
#include "cpu/simd/order-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

inline constexpr bool kPixelTiles = HWY_TARGET != HWY_WASM;  // not worth their bytes there

// Of the codes of a problem that tiles take; `no route` is one more.
inline int32_t TileBits(const Problem& p) { return p.taps() == 4 && !p.relu ? 2 : 4; }

// Whether RunPixelTiles takes a problem: whole windows, whose channels fill blocks of a vector of bytes well enough
// (the last one overlaps the one before it), and whose codes fill bytes. Without routes, halves that need keys are
// bound by those, not by memory, and faster row by row; vectors of 64 bytes are not.
template <class S, bool kRoutes>
bool TakesPixelTiles(const Problem& p) {
  const int64_t block = LaneCount<uint8_t>();
  if (!kPixelTiles || (kHasKeys<S> && !kRoutes && HWY_TARGET != HWY_AVX3)) return false;
  if ((p.taps() != 4 && p.taps() != 8) || p.ties == POOLGRAD_TIES_LAST) return false;
  if (p.channels < block || CeilDiv(p.channels, block) * block * 4 > p.channels * 5) return false;
  if (kRoutes && (p.routes.bits != TileBits(p) || p.channels * p.routes.bits % 8 != 0)) return false;
  return std::all_of(p.axis, p.axis + 3, [](const Axis& a) { return a.disjoint() && a.interior().size() == a.out; });
}

// `rows` rows of `pixels` outputs; taps are distances from the first one.
template <class S>
struct PixelJob {
  const S* x;
  const int64_t* taps;
  int64_t rows, row_pitch, pixels, pixel_pitch, channels;
  S* y;
  uint8_t* codes;
  int64_t bits;  // of a code
  RowsAhead ahead;
};

template <class S, bool kRoutes, int kTaps>
HWY_INLINE void TilePixelBlock(const S* x, const int64_t* taps, S* y, uint8_t* codes, int64_t bits, Watch<S>& watch) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  [[maybe_unused]] CodeVec<S> of[sizeof(S)], dropped[sizeof(S)];
  POOLGRAD_UNROLL
  for (size_t k = 0; k < sizeof(S); ++k, x += lanes, y += lanes) {
    VecOf<S> v[kTaps];
    POOLGRAD_UNROLL
    for (int t = 0; t < kTaps; ++t) v[t] = Key<S>(hn::LoadU(d, x + taps[t]));
    POOLGRAD_UNROLL
    for (int t = 0; t < kTaps; t += 4) {
      watch.template See<0>(v[t]);
      watch.template See<1>(v[t + 1]);
      watch.template See<2>(v[t + 2]);
      watch.template See<3>(v[t + 3]);
    }
    VecOf<S> pair[kTaps / 2];
    POOLGRAD_UNROLL
    for (int t = 0; t < kTaps / 2; ++t) pair[t] = Greatest<S>(v[2 * t + 1], v[2 * t]);
    VecOf<S> key = Greatest<S>(pair[1], pair[0]);
    if constexpr (kRoutes) {
      const auto first = PairOfBest<S>(key, pair[0], v[0], v[2]);
      if constexpr (kTaps == 8) {
        const auto second = PairOfBest<S>(Greatest<S>(pair[3], pair[2]), pair[2], v[4], v[6]);
        const auto best = BestOfHalves<S>(first, second);
        key = best.key;
        of[k] = best.code;
      } else {
        of[k] = CodeOfFour<S>(first);
      }
    } else if constexpr (kTaps == 8) {
      key = Greatest<S>(Greatest<S>(pair[3], pair[2]), key);
    }
    watch.SeeWinner(key);
    hn::StoreU(watch.ToY(key), d, y);
    if constexpr (kRoutes) {
      dropped[k] = watch.rectifies() ? watch.Dropped(key) : hn::Zero(hn::ScalableTag<Code<S>>());
    }
  }
  if constexpr (kRoutes) {
    if (kTaps == 4 && bits == 2) {
      StoreTileCodes<S, kTaps, 2, sizeof(S)>(of, dropped, watch.rectifies(), codes);
    } else {
      StoreTileCodes<S, kTaps, 4, sizeof(S)>(of, dropped, watch.rectifies(), codes);
    }
  }
}

template <class S, bool kRoutes, int kTaps>
HWY_NOINLINE void TilePixels(PixelJob<S>& job, Watch<S>& shared_watch) {
  const int64_t block = LaneCount<uint8_t>();
  const int64_t channels = job.channels, bits = job.bits;
  int64_t taps[kTaps];
  for (int t = 0; t < kTaps; ++t) taps[t] = job.taps[t];
  Watch<S> watch = shared_watch;
  RowsAhead ahead = job.ahead;
  S* y = job.y;
  uint8_t* codes = job.codes;
  for (int64_t r = 0; r < job.rows; ++r) {
    const S* x = job.x + r * job.row_pitch;
    ahead.Start(x);
    for (int64_t i = 0; i < job.pixels; ++i, x += job.pixel_pitch, y += channels) {
      for (int64_t j = 0; j < channels; j += block) {
        ahead.Block(static_cast<uintptr_t>(block) * kTaps * sizeof(S));
        const int64_t at = std::min(j, channels - block);
        uint8_t* const block_codes = kRoutes ? codes + at * bits / 8 : nullptr;
        TilePixelBlock<S, kRoutes, kTaps>(x + at, taps, y + at, block_codes, bits, watch);
      }
      if constexpr (kRoutes) codes += channels * bits / 8;
    }
  }
  job.ahead = ahead;
  shared_watch = watch;
}

template <class S, bool kRoutes>
void RunPixelTiles(const Problem& p, const Args& args, int64_t begin, int64_t end, int64_t looks) {
  const Rows<S> rows(p, args);
  const Axis& depth = p.depth();
  const Axis& height = p.height();
  const Axis& width = p.width();
  const int64_t in_row = width.in * p.channels;
  const int64_t slice = height.in * in_row;
  int64_t taps[8];
  for (int64_t t = 0; t < p.taps(); ++t) {
    const int64_t kw = t % width.kernel, kh = t / width.kernel % height.kernel, kd = t / width.kernel / height.kernel;
    taps[t] = kd * depth.dilation * slice + kh * height.dilation * in_row + kw * width.dilation * p.channels;
  }
  PixelJob<S> job;
  job.taps = taps;
  job.row_pitch = height.stride * in_row;
  job.pixels = width.out;
  job.pixel_pitch = width.stride * p.channels;
  job.channels = p.channels;
  job.bits = p.routes.bits;
  if (HWY_ARCH_ARM_A64) job.ahead = RowsToAskFor(rows);
  // Rows between two looks at the Watch.
  const int64_t group = std::clamp<int64_t>(looks / (width.out * p.channels), 1, 64);
  for (int64_t r = begin; r < end && !rows.GaveUp();) {
    const int64_t group_of = r / height.out;  // (plane, od)
    const int64_t od = group_of % depth.out;
    const int64_t oh = r % height.out;
    const S* plane = rows.plane(group_of / depth.out);
    job.x = rows.row(plane, depth.start(od), height.start(oh)) + width.start(0) * p.channels;
    job.rows = std::min({group, height.out - oh, end - r});
    job.y = rows.y_row(r);
    job.codes = rows.route_row(r);
    Watch<S> watch(p);
    if (p.taps() == 4) {
      TilePixels<S, kRoutes, 4>(job, watch);
    } else {
      TilePixels<S, kRoutes, 8>(job, watch);
    }
    if (watch.Fired() != Alarm::kNone) {
      for (int64_t i = 0; i < job.rows; ++i) {
        if (!SeesSpecial(rows, plane, od, oh + i, {0, width.out})) continue;
        RunExactRow<S>(rows, plane, od, oh + i, {0, width.out}, r + i);
      }
    }
    rows.Finish(r, job.rows, {0, width.out});
    r += job.rows;
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
