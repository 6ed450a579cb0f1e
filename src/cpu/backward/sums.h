// Where dx is summed while outputs add to it: the scalar half of sums-inl.h, shared by all SIMD targets.
//
// A unit owns a box of inputs of one image (channels first: of one plane, or of a few planes at once; channels last: of
// all channels, or of a block of them). Outputs come in row-major order. f32, f64 and copies (unpool) are added
// straight into dx, which is zeroed a little ahead. The halves are summed as f32 in scratch, of which only a stretch of
// slices of the outermost axis, the rolling one, is kept: what no later window reaches is rounded into dx. So scratch
// is never more than x and a constant.
//
// Boxes are cut along the axis behind the rolling one where slices are too large for the cache, and along the rolling
// one where there are fewer units than threads. Windows across a cut are visited on both sides; what lands outside the
// box is left out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/scratch.h"
#include "cpu/tuning.h"
#include "spec/kernel.h"
#include "spec/problem.h"

namespace poolgrad {

inline constexpr int64_t kSumSlack = 128;  // sums behind, that vectors may reach
inline constexpr int64_t kImagesInStep = 4;
inline constexpr int64_t kLanesApart = 16;  // neighbours that are different channels need no images in step
inline constexpr int64_t kLeastBlock = 64;

// One axis of a box: the inputs that it owns and the outputs over them.
struct Span {
  Range in, out;
};

inline Span SpanOf(const Axis& a, int64_t band, int64_t index) {
  Span s;
  s.in = {index * band, std::min(index * band + band, a.in)};
  s.out = {0, a.out};
  if (band < a.in) s.out = {a.covering(s.in.begin).begin, a.covering(s.in.end - 1).end};
  return s;
}

struct SumsLayout {
  bool direct = false;  // into dx
  int64_t lanes = 1;    // elements of a position that lie next to each other: the channels, or 1
  int64_t images = 1;   // batch, or batch times channels
  int64_t block = 1;    // lanes of a unit
  int64_t blocks = 1;
  int64_t group = 1;  // images of a unit
  int64_t groups = 1;
  bool whole = false;  // outputs of whole images are taken together, several at once
  int roll = 0;
  int64_t band[3] = {};
  int64_t bands[3] = {1, 1, 1};
  int64_t ahead = 0;  // slices zeroed at once, or kept
  int64_t piece = 1;  // positions of outputs taken together
  int64_t sums = 0;   // in scratch

  int64_t units() const { return groups * blocks * bands[0] * bands[1] * bands[2]; }
  int64_t piece_elements() const { return piece * block; }
};

inline bool IsTrivial(const Axis& a) { return a.in == 1 && a.out == 1 && a.kernel == 1 && a.start(0) == 0; }

// `direct`: sums are made in the type of dx. `sum_bytes`: of one sum.
inline SumsLayout LayOutSums(const Problem& p, const Host& host, bool direct, int64_t sum_bytes) {
  const CpuTuning& tuning = Tuning();
  SumsLayout l;
  l.direct = direct;
  l.lanes = l.block = p.channels_last() ? p.channels : 1;
  l.images = p.channels_last() ? p.batch : p.batch * p.channels;
  l.roll = !IsTrivial(p.axis[0]) ? 0 : !IsTrivial(p.axis[1]) ? 1 : 2;
  for (int i = 0; i < 3; ++i) l.band[i] = p.axis[i].in;

  // Small images: as many as the first-level cache holds.
  const int64_t outputs = p.out_plane() * l.lanes;
  const int64_t image_bytes = p.in_plane() * l.lanes * sum_bytes;
  if (l.images > 1 && outputs * kImagesInStep <= 2 * tuning.sums_piece &&
      image_bytes * kImagesInStep <= tuning.sums_cache_2 / 2) {
    l.whole = true;
    const int64_t fitting = std::max<int64_t>(kImagesInStep, tuning.sums_cache / image_bytes);
    const int64_t fair = host.threads > 1 ? CeilDiv(l.images, 4 * host.threads) : l.images;
    const int64_t wanted = std::min(fitting, std::max(fair, tuning.sums_piece / outputs));
    l.group = std::min(l.images, CeilDiv(wanted, kImagesInStep) * kImagesInStep);
    l.groups = CeilDiv(l.images, l.group);
    l.ahead = l.band[l.roll];
    l.piece = std::min(l.group * p.out_plane(), 2 * tuning.sums_piece / l.lanes);
    l.sums = direct ? 0 : p.in_plane() * l.lanes * l.group + kSumSlack;
    return l;
  }
  l.group = l.lanes < kLanesApart ? std::min(kImagesInStep, l.images) : 1;

  // What the windows of one output reach has to stay in the second-level cache.
  const Axis& r = p.axis[l.roll];
  const auto slice = [&] {
    int64_t elements = l.block;
    for (int i = l.roll + 1; i < 3; ++i) elements *= l.band[i];
    return elements;
  };
  const int64_t reach = std::min(r.extent(), r.in);
  const auto weight = [&] { return reach * slice() * sum_bytes * l.group; };
  if (!direct && weight() > tuning.sums_cache_2) {  // blocks of about the same size
    const int64_t fitting = std::max(kLeastBlock, tuning.sums_cache_2 / (weight() / l.block) / 16 * 16);
    const int64_t fair = CeilDiv(l.lanes, CeilDiv(l.lanes, fitting));
    l.block = std::min(l.lanes, std::max(kLeastBlock, CeilDiv(fair, 16) * 16));
  }
  for (int i = l.roll + 1; i < 3; ++i) {
    while (weight() > tuning.sums_cache_2 && l.band[i] > 8 * p.axis[i].extent()) l.band[i] = CeilDiv(l.band[i], 2);
    l.bands[i] = CeilDiv(p.axis[i].in, l.band[i]);
  }
  l.blocks = CeilDiv(l.lanes, l.block);
  l.groups = CeilDiv(l.images, l.group);

  // Enough units for the threads, as far as windows across the cuts allow it. A signal (only the width is left) does
  // not roll: its bands fit the cache.
  const int64_t wanted = host.threads > 1 ? 4 * host.threads : 1;
  const auto cut = [&](int64_t band, int64_t least_bytes) {
    const int64_t least = std::max<int64_t>(8 * r.extent(), least_bytes / (sum_bytes * slice()));
    l.band[l.roll] = std::clamp<int64_t>(band, std::min(least, r.in), r.in);
    l.bands[l.roll] = CeilDiv(r.in, l.band[l.roll]);
  };
  if (l.roll == 2) cut(tuning.sums_cache / (sum_bytes * slice() * l.group), 0);
  if (l.units() < wanted) cut(CeilDiv(l.band[l.roll], CeilDiv(wanted, l.units())), tuning.sums_least);

  const int64_t fitting = tuning.sums_cache / (slice() * sum_bytes * l.group);
  if (direct) {
    l.ahead = std::max<int64_t>(1, fitting);
  } else {  // slices that still get sums are moved to the front when there is no more room: not too often
    const int64_t moved = std::max<int64_t>(0, reach - r.stride);
    l.ahead = l.roll == 2 ? l.band[2] : std::min(l.band[l.roll], std::max(reach + 4 * moved, fitting));
    l.sums = (l.roll == 2 ? l.band[2] * l.block : l.ahead * slice()) * l.group + kSumSlack;
  }
  l.piece = std::max<int64_t>(1, tuning.sums_piece / l.block);
  return l;
}

}  // namespace poolgrad
