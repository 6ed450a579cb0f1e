// fwd_global, channels last: the window is the whole plane, and all pixels of a plane meet one pixel of winners.
//
// A pixel at a time meets the accumulators, which stay in L1, and four images take turns: memory delivers 1.3 times as
// much to several runs of addresses as to one, and most when each of them is read strictly in order. (Two threads, 512
// channels, as a fraction of copy: one image 0.52, two 0.64, four 0.67, eight 0.3; four neighbouring pixels at once
// 0.39.) Short pixels meet in registers first, many at a time: to the loops of rows_runs-inl.h they are a row with
// one window.
//
// Units are blocks of channels, so that threads can share one image; neighbouring blocks of an image are done as one.

// Per-target include guard
#if defined(POOLGRAD_CPU_GLOBAL_LAST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_GLOBAL_LAST_INL_H_
#undef POOLGRAD_CPU_GLOBAL_LAST_INL_H_
#else
#define POOLGRAD_CPU_GLOBAL_LAST_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/forward/channels_first/global-inl.h"
#include "cpu/forward/channels_last/rows_runs-inl.h"
#include "cpu/forward/common/exact-inl.h"
#include "cpu/forward/common/rows-inl.h"
#include "cpu/scratch.h"
#include "cpu/simd/order-inl.h"
#include "cpu/simd/prefetch.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Channels per unit: a multiple of every vector's lanes whose codes fill whole bytes. What is left of the channels
// belongs to the last unit of its image.
inline constexpr int64_t kGlobalBlock = 128;

inline int64_t GlobalBlocks(const Problem& p) { return std::max<int64_t>(1, p.channels / kGlobalBlock); }

inline constexpr int64_t kImagesAtOnce = 4;
inline constexpr int64_t kShortPixelBytes = 512;

template <class S>
bool HasShortPixels(const Problem& p) {
  return p.channels * static_cast<int64_t>(sizeof(S)) <= kShortPixelBytes || p.channels < LaneCount<S>();
}

template <class S>
struct GlobalScratch {
  int64_t pitch;  // from image to image
  S* keys;
  uint8_t* codes;

  GlobalScratch(const Problem& p, bool with_codes, ScratchTaker& take) : pitch(p.channels + LaneCount<uint8_t>()) {
    keys = take.Take<S>(kImagesAtOnce * pitch);
    codes = take.Take<uint8_t>(with_codes ? kImagesAtOnce * pitch : 0);
  }
};

// Routes of some channels of an image whose codes are made, and all of it again if a special value was seen.
template <class S, bool kRoutes>
void FinishChannels(const Rows<S>& rows, int64_t image, Range channels, const uint8_t* codes, const Watch<S>& watch) {
  const Problem& p = rows.p;
  const int64_t run = channels.size();
  const S* plane = rows.plane(image) + channels.begin;
  uint8_t* line = kRoutes ? rows.route_row(image) + channels.begin * p.routes.bits / 8 : nullptr;
  bool special = false;
  if (watch.Fired() != Alarm::kNone) {
    for (int64_t i = 0; i < p.in_plane() && !special; ++i) {
      special = HasSpecial<S>(plane + i * p.channels, run, p.dtype);
    }
  }
  if (special) {
    if constexpr (kIsBits<S>) {
      rows.GiveUp();
    } else {
      const ExactRow<S> exact(p, rows.plane(image), 0, 0);
      RunExactChannels<S>(exact, 0, channels, rows.y_row(image), rows.route_row(image));
    }
  } else if constexpr (kRoutes) {
    PackCodes(codes, run, p.routes.bits, line);
  }
}

// Short pixels: as many at a time as make a pass worth its start.
template <class S, bool kRoutes>
void PoolShortPixels(const Rows<S>& rows, const GlobalScratch<S>& s, int64_t image, Range channels, Lookahead& look) {
  const Problem& p = rows.p;
  const int64_t pixels = p.in_plane();
  const int64_t most = std::max<int64_t>(1, (8 << 10) / (p.channels * static_cast<int64_t>(sizeof(S))));
  const S* plane = rows.plane(image) + channels.begin;
  Role<S> role = {s.keys, s.codes, rows.y_row(image) + channels.begin, s.codes, false, false, 0, 0};
  StreamJob<S> job = {};
  job.tap_step = rows.backwards ? -p.channels : p.channels;
  job.tap_code_step = static_cast<uint8_t>(rows.backwards ? -1 : 1);
  job.rows = 1;
  job.runs = 1;
  job.run = job.y_size = channels.size();
  job.roles = &role;
  job.role_count = 1;
  job.in_end = rows.x_end;
  job.look = &look;
  Watch<S> watch(p.dtype);
  for (int64_t done = 0; done < pixels; done += job.taps) {
    const int64_t pixel = rows.backwards ? pixels - 1 - done : done;
    job.x = plane + pixel * p.channels;
    job.code = static_cast<uint8_t>(pixel);
    job.taps = job.look_step = std::min(most, pixels - done);
    role.first = done == 0;
    role.last = done + job.taps == pixels;
    StreamPieceOfRow<S, kRoutes>(job, watch);
  }
  FinishChannels<S, kRoutes>(rows, image, channels, s.codes, watch);
}

// A pixel meets the accumulators, or begins them.
template <class S, bool kRoutes, bool kFirst>
HWY_NOINLINE void MeetPixel(const S* x, uint8_t number, int64_t run, S* keys, uint8_t* codes, Watch<S>& shared_watch) {
  constexpr bool kLooks = !kIsInt<S> && !Watch<S>::kWinnersOnly;
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  Watch<S> watch = shared_watch;
  ForGroups<S>(run, [&](int64_t j, auto vectors) POOLGRAD_LAMBDA {
    constexpr int kVectors = decltype(vectors)::value;
    using G = Group<S, kRoutes, kVectors>;
    const typename G::D8 d8;
    G best;
    VecOf<S> here[kVectors];
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) here[v] = Key<S>(hn::LoadU(d, x + j + v * lanes));
    if constexpr (kLooks) {
      [&]<int... kV>(std::integer_sequence<int, kV...>) POOLGRAD_LAMBDA { (watch.template See<kV>(here[kV]), ...); }
      (std::make_integer_sequence<int, kVectors>());
    }
    const auto code = hn::Set(d8, number);
    if constexpr (kFirst) {
      POOLGRAD_UNROLL
      for (int v = 0; v < kVectors; ++v) best.key[v] = here[v];
      best.code = code;
    } else {
      POOLGRAD_UNROLL
      for (int v = 0; v < kVectors; ++v) best.key[v] = hn::LoadU(d, keys + j + v * lanes);
      if constexpr (kRoutes) best.code = hn::LoadU(d8, codes + j);
      best.Meet(here, code);
    }
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::StoreU(best.key[v], d, keys + j + v * lanes);
    if constexpr (kRoutes) hn::StoreU(best.code, d8, codes + j);
  });
  if constexpr (kLooks) shared_watch = watch;
}

template <class S>
HWY_NOINLINE void PutWinners(const S* keys, int64_t run, S* y, Watch<S>& shared_watch) {
  const hn::ScalableTag<S> d;
  const int64_t lanes = LaneCount<S>();
  Watch<S> watch = shared_watch;
  ForGroups<S>(run, [&](int64_t j, auto vectors) POOLGRAD_LAMBDA {
    [&]<int... kV>(std::integer_sequence<int, kV...>) POOLGRAD_LAMBDA {
      (watch.template SeeWinner<kV>(hn::LoadU(d, keys + j + kV * lanes)), ...);
      (hn::StoreU(Key<S>(hn::LoadU(d, keys + j + kV * lanes)), d, y + j + kV * lanes), ...);
    }
    (std::make_integer_sequence<int, decltype(vectors)::value>());
  });
  shared_watch = watch;
}

// Long pixels of `images` images from `image` on, `apart` from one to the next.
template <class S, bool kRoutes>
void PoolLongPixels(const Rows<S>& rows, const GlobalScratch<S>& s, int64_t image, int64_t images, int64_t apart,
                    Range channels) {
  const Problem& p = rows.p;
  const int64_t pixels = p.in_plane();
  const int64_t run = channels.size();
  Watch<S> watches[kImagesAtOnce] = {Watch<S>(p.dtype), Watch<S>(p.dtype), Watch<S>(p.dtype), Watch<S>(p.dtype)};
  for (int64_t done = 0; done < pixels; ++done) {
    const int64_t pixel = rows.backwards ? pixels - 1 - done : done;
    const auto number = static_cast<uint8_t>(pixel);
    for (int64_t i = 0; i < images; ++i) {
      const S* x = rows.plane(image + i * apart) + pixel * p.channels + channels.begin;
      S* keys = s.keys + i * s.pitch;
      uint8_t* codes = kRoutes ? s.codes + i * s.pitch : nullptr;
      if (done == 0) {
        MeetPixel<S, kRoutes, true>(x, number, run, keys, codes, watches[i]);
      } else {
        MeetPixel<S, kRoutes, false>(x, number, run, keys, codes, watches[i]);
      }
    }
  }
  for (int64_t i = 0; i < images; ++i) {
    PutWinners<S>(s.keys + i * s.pitch, run, rows.y_row(image + i * apart) + channels.begin, watches[i]);
    FinishChannels<S, kRoutes>(rows, image + i * apart, channels, s.codes + i * s.pitch, watches[i]);
  }
}

template <class S, bool kRoutes>
void RunGlobalLast(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  const Rows<S> rows(p, args);
  ScratchTaker take(memory);
  const GlobalScratch<S> scratch(p, kRoutes, take);
  const int64_t blocks = GlobalBlocks(p);
  const bool short_pixels = HasShortPixels<S>(p);
  Lookahead look = rows.backwards ? Lookahead() : Lookahead(rows.plane(begin / blocks), rows.x_end);
  const auto some_channels = [&](int64_t unit, int64_t unit_end) {
    const int64_t image = unit / blocks;
    const Range range = {(unit - image * blocks) * kGlobalBlock,
                         unit_end == (image + 1) * blocks ? p.channels : (unit_end - image * blocks) * kGlobalBlock};
    if (short_pixels) {
      PoolShortPixels<S, kRoutes>(rows, scratch, image, range, look);
    } else {
      PoolLongPixels<S, kRoutes>(rows, scratch, image, 1, 0, range);
    }
  };
  const Range whole = {CeilDiv(begin, blocks), end / blocks};  // images
  if (whole.size() == 0 || short_pixels) {
    for (int64_t unit = begin, unit_end; unit < end; unit = unit_end) {
      unit_end = std::min(end, (unit / blocks + 1) * blocks);
      some_channels(unit, unit_end);
    }
    return;
  }
  if (begin < whole.begin * blocks) some_channels(begin, whole.begin * blocks);
  const int64_t share = CeilDiv(whole.size(), kImagesAtOnce);  // each run of addresses goes on from image to image
  for (int64_t image = whole.begin; image < whole.begin + share; ++image) {
    PoolLongPixels<S, kRoutes>(rows, scratch, image, CeilDiv(whole.end - image, share), share, {0, p.channels});
  }
  if (whole.end * blocks < end) some_channels(whole.end * blocks, end);
}

// Both layouts.
template <class S, bool kRoutes>
Made MakeGlobal(const Problem& p) {
  for (const Axis& a : p.axis) {
    if (a.kernel != a.in || a.out != 1 || a.dilation != 1 || a.pad_lo != 0) return "the window is not the whole plane";
  }
  Kernel kernel;
  kernel.tasks_per_thread = 1;  // long runs of addresses
  if (!p.channels_last() || p.channels == 1) {
    if (p.in_plane() < LaneCount<S>()) return "a plane is shorter than a vector";
    if (kRoutes && sizeof(S) < 4 && p.in_plane() > (int64_t{1} << (8 * sizeof(S))) - 1)
      return "a tap's number does not fit a lane";
    kernel.units = p.batch * p.channels;
    kernel.run = RunGlobal<S, kRoutes>;
    return kernel;
  }
  if (kRoutes && p.taps() > 255) return "a tap's number does not fit a byte";
  ScratchTaker take(nullptr);
  const GlobalScratch<S> scratch(p, kRoutes, take);
  kernel.units = p.batch * GlobalBlocks(p);
  kernel.scratch_bytes = take.used();
  kernel.run = RunGlobalLast<S, kRoutes>;
  return kernel;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
