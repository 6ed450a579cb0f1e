// How windows are pooled lane by lane: the scalar half of lanes-inl.h, shared by all SIMD targets.
//
// The lanes of a vector are results that have the same window geometry, so that the order of a sum stays the row-major
// one, any table will do, and no window is a special case. Channels last, lanes are neighbouring channels. Channels
// first (and where channels are few), they are planes: their rows are transposed on the way in and on the way out. Rows
// that are long, or of few planes, are cut into equal parts, which are lanes, too.
//
// Forward makes y from rows of x, backward dx from rows of dy: the result and the source change places, and so do
// windows and what covers an input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cpu/scratch.h"
#include "cpu/tuning.h"
#include "spec/kernel.h"
#include "spec/problem.h"

namespace poolgrad {

// The places of the source that a place of the result is made of, along one axis: first, first + step, ...
struct Sources {
  int64_t first, count;
};

struct Direction {
  bool back;
  int64_t source(const Axis& a) const { return back ? a.out : a.in; }
  int64_t result(const Axis& a) const { return back ? a.in : a.out; }
  int64_t step(const Axis& a) const {
    return a.dilation == 1 ? 1 : back ? a.dilation / std::gcd(a.stride, a.dilation) : a.dilation;
  }
  Sources Of(const Axis& a, int64_t place) const {
    if (!back) {
      const Range taps = a.valid_taps(place);
      return {a.start(place) + taps.begin * a.dilation, taps.size()};
    }
    const Range over = a.covering(place);
    if (a.dilation == 1) return {over.begin, over.size()};
    const int64_t by = step(a);
    const int64_t last = std::min(over.end, over.begin + by);
    for (int64_t first = over.begin; first < last; ++first) {
      if (a.tap_at(first, place) >= 0) return {first, (over.end - 1 - first) / by + 1};
    }
    return {0, 0};
  }
};

// The same, remembered: divisions take longer than a short row does. And how many taps an average counts there, if it
// is forward.
class SourcesAlong {
 public:
  struct Found {
    Sources at;
    int64_t counted;
  };

  SourcesAlong(const Axis& a, Direction way, bool count_padding, ScratchTaker& take)
      : a_(a), way_(way), count_padding_(count_padding), memo_(take.Take<Found>(n_)) {}
  void Start() {
    for (int64_t i = 0; i < n_; ++i) memo_[i].counted = kUnknown;
  }
  Found Of(int64_t place) {
    if (n_ == 0) return Find(place);
    Found& found = memo_[place];
    if (found.counted == kUnknown) found = Find(place);
    return found;
  }

 private:
  static constexpr int64_t kMost = 4096, kUnknown = -1;
  Found Find(int64_t place) const {
    return {way_.Of(a_, place), way_.back ? 0 : a_.counted_taps(place, count_padding_).size()};
  }

  const Axis& a_;
  const Direction way_;
  const bool count_padding_;
  const int64_t n_ = way_.result(a_) <= kMost ? way_.result(a_) : 0;
  Found* const memo_;
};

// Whether no window ends before an earlier one does: then all that start before a place and end behind it cover it.
inline bool EndsInOrder(const Axis& a) {
  for (int64_t o = 0; a.table && o + 1 < a.out; ++o) {
    if (a.start(o) + a.size(o) > a.start(o + 1) + a.size(o + 1)) return false;
  }
  return true;
}

struct LaneLayout {
  Direction way = {};
  bool channels = false;  // are the lanes; else planes, or parts of their rows, are
  bool staged = true;     // or read where they lie
  int64_t images = 1;     // planes, or images
  int64_t inner = 1;      // channels at a place that are not lanes
  int64_t block = 1;      // lanes that are staged side by side
  int64_t blocks = 1;     // of channels
  // Parts of rows. Where there are several, `width` is the axis of one, without its borders, whose places are counted
  // from the part's first source.
  Axis width = {};
  int64_t parts = 1;
  int64_t part = 0;         // places of the result in each
  int64_t part_step = 0;    // places of the source from part to part
  int64_t part_origin = 0;  // and where the first one's begin
  int64_t places = 0;       // of the source, in each
  // What is staged at once is a tile: some rows of the source, or some columns of one row.
  int64_t tile_rows = 1, tile_columns = 1;
  int64_t tiles_down = 1, tiles_across = 1;  // in a slice
  int64_t slots = 1;                         // tiles that are kept
  int64_t rows_out = 1;                      // of the result that leave together

  int64_t source_row = 0, result_row = 0;  // elements from row to row in memory
  int64_t rows = 1;                        // of the result, in an image

  int64_t groups(int64_t lanes) const { return channels ? images * parts * blocks : CeilDiv(images * parts, lanes); }
  int64_t units(int64_t lanes) const { return groups(lanes) * rows; }
  int64_t row() const { return part * inner * block; }  // sums of a row of the result
  int64_t slot() const { return tile_rows * tile_columns * inner * block; }
};

// `lanes`: of a vector of sums, of `size` bytes each.
inline LaneLayout LayOutLanes(const Problem& p, bool back, int64_t lanes, int64_t size) {
  const CpuTuning& tuning = Tuning();
  LaneLayout l;
  l.way = {back};
  const int64_t beside = p.channels_last() ? p.channels : 1;
  l.channels = p.channels_last() && 2 * beside > lanes;
  l.staged = back || !l.channels;
  l.images = p.channels_last() ? p.batch : p.batch * p.channels;
  l.inner = l.channels ? 1 : beside;
  const int64_t vectors = CeilDiv(beside, lanes);
  l.block = !l.channels ? lanes : l.staged ? std::min<int64_t>(vectors, 16) * lanes : vectors * lanes;
  l.blocks = l.channels ? CeilDiv(beside, l.block) : 1;
  const Axis& w = p.width();
  const int64_t result = l.way.result(w);
  l.places = l.way.source(w);
  l.source_row = l.places * beside;
  l.result_row = result * beside;
  l.rows = l.way.result(p.depth()) * l.way.result(p.height());
  l.width = w;
  l.part = result;
  if (!l.staged) {
    l.slots = 0;
    return l;
  }

  // As much of the source, or of the result, as a tile holds; and where planes are few, as many parts as it takes.
  // Windows that reach over several parts are staged with each.
  const int64_t fitting = std::max<int64_t>(1, tuning.lanes_tile / (l.inner * l.block * size));
  const int64_t every = back ? w.stride : 1;  // parts are alike
  int64_t part = back ? fitting : (fitting - w.extent()) / w.stride + 1;
  if (!l.channels && l.images < lanes) part = std::min(part, CeilDiv(result * l.images, lanes));
  part = CeilDiv(std::max(part, CeilDiv(w.extent(), back ? 1 : w.stride)), every) * every;
  if (!w.table && part < result) {
    l.part = part;
    l.parts = CeilDiv(result, part);
    l.part_step = back ? part / w.stride : part * w.stride;
    l.part_origin = back ? CeilDiv(w.pad_lo - w.extent() + 1, w.stride) : -w.pad_lo;
    l.places = back ? FloorDiv(part - 1 + w.pad_lo, w.stride) + 1 - l.part_origin : (part - 1) * w.stride + w.extent();
    l.width.pad_lo = back ? w.pad_lo - l.part_origin * w.stride : 0;
    l.width.in = back ? part : l.places;
    l.width.out = back ? l.places : part;
  }
  const int64_t height = l.way.source(p.height());
  l.tile_columns = std::min(l.places, std::max(fitting, lanes));
  l.tiles_across = CeilDiv(l.places, l.tile_columns);
  if (l.parts == 1 && l.tiles_across == 1) l.tile_rows = std::clamp<int64_t>(fitting / l.places, 1, height);
  l.tiles_down = CeilDiv(height, l.tile_rows);
  l.slots = std::clamp<int64_t>(tuning.lanes_cache / (l.slot() * size), 1,
                                l.way.source(p.depth()) * l.tiles_down * l.tiles_across);
  if (l.parts == 1 && !l.channels) l.rows_out = std::clamp<int64_t>(fitting / l.part, 1, l.rows);
  return l;
}

}  // namespace poolgrad
