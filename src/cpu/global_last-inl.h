// Max pooling of channels last where the window is the whole plane: all pixels of a plane meet one pixel of winners.
//
// A few pixels at a time meet in registers and then the accumulators, so that x is read in order and asked for as it is
// read, while the accumulators stay in L1. The loops are those of stream_runs-inl.h: a pass is a row with one window.
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

#include "cpu/exact-inl.h"
#include "cpu/order-inl.h"
#include "cpu/prefetch.h"
#include "cpu/rows-inl.h"
#include "cpu/scratch.h"
#include "cpu/stream_runs-inl.h"
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

template <class S>
struct GlobalScratch {
  S* keys;
  uint8_t* codes;
  Code<S>* exact_codes;

  GlobalScratch(const Problem& p, bool with_codes, ScratchTaker& take) {
    keys = take.Take<S>(p.channels + LaneCount<S>());
    codes = take.Take<uint8_t>(with_codes ? p.channels + LaneCount<uint8_t>() : 0);
    exact_codes = take.Take<Code<S>>(with_codes ? p.channels : 0);
  }
};

// Pixels per pass: four, a number for which there is a loop; more would be read side by side, which memory delivers
// slower, fewer would meet the accumulators more often. Short pixels: as many as make a pass worth its start.
inline int64_t GlobalPixels(int64_t pixel_bytes) { return pixel_bytes <= 512 ? (8 << 10) / pixel_bytes : 4; }

template <class S, bool kRoutes>
void PoolChannels(const Rows<S>& rows, const GlobalScratch<S>& s, int64_t image, Range channels, Lookahead& look) {
  const Problem& p = rows.p;
  const int64_t pixels = p.in_plane();
  const int64_t most = GlobalPixels(p.channels * static_cast<int64_t>(sizeof(S)));
  const int64_t run = channels.size();
  const S* plane = rows.plane(image) + channels.begin;
  S* y = rows.y_row(image) + channels.begin;
  Role<S> role = {s.keys, s.codes, y, s.codes, false, false, 0, 0};
  StreamJob<S> job = {};
  job.tap_step = rows.backwards ? -p.channels : p.channels;
  job.tap_code_step = static_cast<uint8_t>(rows.backwards ? -1 : 1);
  job.rows = 1;
  job.runs = 1;
  job.run = run;
  job.roles = &role;
  job.role_count = 1;
  job.in_end = rows.x_end;
  job.y_size = run;
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
  uint8_t* line = kRoutes ? rows.route_row(image) + channels.begin * p.routes.bits / 8 : nullptr;
  bool special = false;
  if (watch.Fired() != Alarm::kNone) {
    for (int64_t i = 0; i < pixels && !special; ++i) special = HasSpecial<S>(plane + i * p.channels, run, p.dtype);
  }
  if (special) {
    const ExactRow<S> exact(p, rows.plane(image), 0, 0);
    const int64_t lanes = LaneCount<S>();
    for (int64_t c = 0; c < run; c += lanes) {
      Code<S>* codes = kRoutes ? s.exact_codes + c : nullptr;
      exact.Block(0, channels.begin + c, std::min(lanes, run - c), y + c, codes, nullptr);
    }
    if constexpr (kRoutes) PackCodes(s.exact_codes, run, p.routes.bits, line);
  } else if constexpr (kRoutes) {
    PackCodes(s.codes, run, p.routes.bits, line);
  }
}

template <class S, bool kRoutes>
void RunGlobalLast(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  const Rows<S> rows(p, args);
  ScratchTaker take(memory);
  const GlobalScratch<S> scratch(p, kRoutes, take);
  const int64_t blocks = GlobalBlocks(p);
  Lookahead in_order = rows.backwards ? Lookahead() : Lookahead(rows.plane(begin / blocks), rows.x_end);
  for (int64_t unit = begin; unit < end;) {
    const int64_t image = unit / blocks;
    const int64_t first = unit - image * blocks;
    const int64_t after = std::min(end - image * blocks, blocks);
    const Range channels = {first * kGlobalBlock, after == blocks ? p.channels : after * kGlobalBlock};
    Lookahead nothing;
    PoolChannels<S, kRoutes>(rows, scratch, image, channels, channels.size() == p.channels ? in_order : nothing);
    unit = image * blocks + after;
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
