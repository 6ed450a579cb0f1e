// How the sums of dx are kept while outputs add to them: the scalar half of sums-inl.h, shared by all SIMD targets.
//
// A unit owns a box of inputs of one image (channels first: of one plane, or of a few planes in step; channels last: of a block
// of channels). Its sums lie in scratch with a margin on every side as wide as windows reach, so that every tap of every window
// over the box has a place and nothing is asked at borders; margins are thrown away. Outputs come in row-major order, so along
// the outermost axis, the rolling one, only a stretch of slices is kept: what no later window reaches leaves for dx.
//
// Boxes are cut along the axis behind the rolling one where slices are too large for the cache, and along the rolling one where
// there are fewer units than threads. Windows across a cut are visited on both sides.
//
// Scratch: where margins would be much larger than the box (kMarginFactor and kMarginFree), there are none, and every code is
// looked at by itself (`exact`); so are windows by table. So sums never take more than kMarginFactor times the elements of x and a constant.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/scratch.h"
#include "cpu/tuning.h"
#include "spec/kernel.h"
#include "spec/problem.h"

namespace poolgrad {

inline constexpr int64_t kMarginFactor = 8;
inline constexpr int64_t kMarginFree = 64 << 10;   // elements
inline constexpr int64_t kDump = 64;               // sums in front, for codes that name no tap
inline constexpr int64_t kSumSlack = 128;          // sums behind, that vectors may reach
inline constexpr int64_t kMostArithmeticTaps = 1 << 20;  // codes below are divided in f32 without error
inline constexpr int64_t kImagesInStep = 4;
inline constexpr int64_t kLanesApart = 16;  // neighbours that are different channels need no images in step
inline constexpr int64_t kLeastBlock = 64;

// One axis of a box: the inputs that it owns, the outputs over them, and the places that sums are kept for.
struct Span {
  Range in, out, kept;
};

inline Span SpanOf(const Axis& a, int64_t band, int64_t index, int64_t phases, bool exact) {
  Span s;
  s.in = {index * band, std::min(index * band + band, a.in)};
  s.out = {0, a.out};
  if (band < a.in) s.out = {a.covering(s.in.begin).begin, a.covering(s.in.end - 1).end};
  s.kept = s.in;
  if (s.out.size() == 0 || exact) return s;
  const int64_t first = a.start(s.out.begin);
  s.kept.begin = std::min(s.in.begin, first);
  s.kept.begin -= ((s.kept.begin - first) % phases + phases) % phases;  // the first window begins at phase 0
  s.kept.end = std::max(s.in.end, a.start(s.out.end - 1) + a.extent());
  return s;
}

struct SumsLayout {
  int64_t lanes = 1;   // elements of a position that lie next to each other: the channels, or 1
  int64_t images = 1;  // batch, or batch times channels
  int64_t block = 1;   // lanes of a unit
  int64_t blocks = 1;
  int64_t group = 1;  // images of a unit
  int64_t groups = 1;
  bool whole = false;  // outputs of whole images are taken together, several at once
  int roll = 0;
  int64_t band[3] = {};
  int64_t bands[3] = {1, 1, 1};
  int64_t most = 0;     // slices kept
  int64_t phases = 1;   // of the width: places that are equal modulo `phases` lie next to each other
  bool exact = false;   // no margins
  bool stream = false;  // dx is more than caches keep
  int64_t piece = 1;    // positions of outputs taken together
  int64_t plane = 0;    // sums of one image, at most

  int64_t units() const { return groups * blocks * bands[0] * bands[1] * bands[2]; }
  int64_t piece_elements() const { return piece * block; }
  int64_t sums() const { return kDump + plane * group + kSumSlack; }
};

inline bool IsTrivial(const Axis& a) { return a.in == 1 && a.out == 1 && a.kernel == 1 && a.start(0) == 0; }

// Places of axis i cut into bands of so many inputs.
inline int64_t PlacesOf(const SumsLayout& l, const Problem& p, int i, int64_t band) {
  const Axis& a = p.axis[i];
  const int64_t phases = i == 2 ? l.phases : 1;
  if (band < a.in) return band + (l.exact ? 0 : 2 * (a.extent() - 1)) + 2 * (phases - 1);
  return CeilDiv(SpanOf(a, band, 0, phases, l.exact).kept.size(), phases) * phases;
}

// `phased`: neighbouring outputs add to neighbouring places whatever the stride. `steps`: whether several images at once are
// worth it. `sum_bytes`: of one sum.
inline SumsLayout LayOutSums(const Problem& p, const Host& host, bool phased, bool steps, int64_t sum_bytes) {
  const CpuTuning& tuning = Tuning();
  SumsLayout l;
  l.lanes = p.channels_last() ? p.channels : 1;
  l.images = p.channels_last() ? p.batch : p.batch * p.channels;
  l.block = std::min(l.lanes, tuning.sums_block);
  l.roll = !IsTrivial(p.axis[0]) ? 0 : !IsTrivial(p.axis[1]) ? 1 : 2;
  l.phases = phased && p.width().out > 1 ? p.width().stride : 1;
  l.stream = p.x_bytes() >= tuning.bytes_past_caches;

  const auto places = [&](int i) { return PlacesOf(l, p, i, l.band[i]); };
  double with = 1, without = 1;
  for (int i = 0; i < 3; ++i) {
    l.band[i] = p.axis[i].in;
    with *= static_cast<double>(places(i));
    without *= static_cast<double>(l.band[i]);
  }
  const auto block = static_cast<double>(l.block);
  l.exact = p.by_table() || with * block > kMarginFactor * without * block + static_cast<double>(kMarginFree) ||
            (p.kind == POOLGRAD_MAX && p.taps() > kMostArithmeticTaps);
  steps = steps && !l.exact && l.images > 1;

  // Small images: as many as the first-level cache holds.
  const double image_bytes = with * static_cast<double>(l.lanes * sum_bytes);
  const int64_t outputs = p.out_plane() * l.lanes;
  if (steps && l.block == l.lanes && outputs * kImagesInStep <= 2 * tuning.sums_piece &&
      image_bytes * kImagesInStep <= static_cast<double>(tuning.sums_cache_2 / 2)) {
    l.whole = true;
    l.plane = static_cast<int64_t>(with) * l.lanes;
    const int64_t fitting = std::max<int64_t>(kImagesInStep, tuning.sums_cache / (l.plane * sum_bytes));
    const int64_t fair = host.threads > 1 ? CeilDiv(l.images, 4 * host.threads) : l.images;
    const int64_t wanted = std::min(fitting, std::max(fair, tuning.sums_piece / outputs));
    l.group = std::min(l.images, CeilDiv(wanted, kImagesInStep) * kImagesInStep);
    l.groups = CeilDiv(l.images, l.group);
    l.most = PlacesOf(l, p, l.roll, l.band[l.roll]);
    l.piece = std::min(l.group * p.out_plane(), 2 * tuning.sums_piece / l.lanes);
    return l;
  }
  l.group = steps && l.lanes < kLanesApart ? std::min(kImagesInStep, l.images) : 1;

  // What windows of one output reach should stay in the first-level cache, and has to stay in the second.
  const Axis& r = p.axis[l.roll];
  const auto slice = [&] {
    int64_t elements = l.block;
    for (int i = l.roll + 1; i < 3; ++i) elements *= places(i);
    return elements;
  };
  const int64_t reach = std::min(r.extent(), PlacesOf(l, p, l.roll, r.in));
  const auto weight = [&] { return reach * slice() * sum_bytes * l.group; };
  while (weight() > tuning.sums_cache && l.block > kLeastBlock) {
    l.block = std::max(kLeastBlock, CeilDiv(CeilDiv(l.block, 2), 32) * 32);
  }
  for (int i = l.roll + 1; i < 3; ++i) {
    while (weight() > tuning.sums_cache_2 && l.band[i] > 8 * p.axis[i].extent()) l.band[i] = CeilDiv(l.band[i], 2);
    l.bands[i] = CeilDiv(p.axis[i].in, l.band[i]);
  }
  l.blocks = CeilDiv(l.lanes, l.block);
  l.groups = CeilDiv(l.images, l.group);

  // Enough units for the threads, as far as windows across the cuts allow it. A signal (only the width is left) does not roll:
  // its bands fit the cache.
  const int64_t wanted = host.threads > 1 ? 4 * host.threads : 1;
  const auto cut = [&](int64_t band, int64_t least_bytes) {
    const int64_t least = std::max<int64_t>(8 * r.extent(), least_bytes / (sum_bytes * slice()));
    l.band[l.roll] = std::clamp<int64_t>(band, std::min(least, r.in), r.in);
    l.bands[l.roll] = CeilDiv(r.in, l.band[l.roll]);
  };
  if (l.roll == 2) cut(tuning.sums_cache / (sum_bytes * slice() * l.group), 0);
  if (l.units() < wanted) cut(CeilDiv(l.band[l.roll], CeilDiv(wanted, l.units())), tuning.sums_least);

  l.most = places(l.roll);
  if (l.roll < 2) {  // slices that still get sums are moved to the front when there is no more room: not too often
    const int64_t moved = std::max<int64_t>(0, reach - r.stride);
    l.most = std::min(l.most, std::max(reach + 4 * moved, tuning.sums_cache / (slice() * sum_bytes * l.group)));
  }
  l.plane = l.most * slice();
  l.piece = std::max<int64_t>(1, tuning.sums_piece / l.block);
  return l;
}

}  // namespace poolgrad
