// Where dx is summed while outputs add to it: how it is cut, walked, zeroed and left, whatever the type and the SIMD
// target.
//
// A unit owns a box of inputs of one image (channels first: of one plane, or of a few planes at once; channels last: of
// all channels, or of a block of them). Outputs come in row-major order. f32, f64 and copies are added
// straight into dx, of which the next slices, or the next unit, are zeroed line by line meanwhile. The halves are
// summed as f32 in scratch, and so is everything where dx goes past the caches (past-inl.h); there only a ring of
// slices of the outermost axis, the rolling one, is kept: what no later window reaches is rounded into dx and zeroed
// for the slices that take its place. So scratch is never more than x and a constant.
//
// Boxes are cut along the axis behind the rolling one where slices are too large for the cache, and along the rolling
// one where there are fewer units than threads. Windows across a cut are visited on both sides; what lands outside the
// box is left out. Sums begin at +0, so that they never become -0, and are rounded once, when they leave.
//
// Tried and left: f32 summed in scratch like the halves and copied out to the caches (3x3 at stride 2 takes twice as
// long: dx is read before it is written, where zeroing whole lines does not); margins around the sums instead of a look
// at every place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/backward/backward.h"
#include "cpu/scratch.h"
#include "cpu/tuning.h"
#include "spec/kernel.h"
#include "spec/problem.h"

namespace poolgrad {

inline constexpr int64_t kSumSlack = 128;  // sums behind, that vectors may reach
inline constexpr int64_t kImagesInStep = 4;
inline constexpr int64_t kLanesApart = 16;  // outputs that meet others only so far on need no images in step
inline constexpr int64_t kSeldomMeet = 8;   // nor those of which so many inputs share one
inline constexpr int64_t kMostlyZeros = 4;  // inputs for an output: what is done to each input is most of the work then
inline constexpr int64_t kLeastBlock = 64;
inline constexpr int64_t kMostLeaving = 1024;  // bytes of dx at once

// One axis of a box: the inputs that it owns and the outputs over them.
struct Span {
  Range in, out;
};

// `reads`: a box is of outputs, and of all inputs.
inline Span SpanOf(const Axis& a, int64_t band, int64_t index, bool reads) {
  Span s;
  if (reads) return {{0, a.in}, {index * band, std::min(index * band + band, a.out)}};
  s.in = {index * band, std::min(index * band + band, a.in)};
  s.out = {0, a.out};
  if (band < a.in) s.out = {a.covering(s.in.begin).begin, a.covering(s.in.end - 1).end};
  return s;
}

struct SumsLayout {
  bool direct = false;               // into dx
  bool past = false;                 // what leaves goes past the caches
  bool reads = false;                // nothing is added: outputs take what lies at their places
  int64_t bytes = 1, sum_bytes = 1;  // of an element, and of a sum
  int64_t lanes = 1;                 // elements of a position that lie next to each other: the channels, or 1
  int64_t images = 1;                // batch, or batch times channels
  int64_t block = 1;                 // lanes of a unit
  int64_t blocks = 1;
  int64_t group = 1;  // images of a unit
  int64_t groups = 1;
  bool whole = false;  // outputs of whole images are taken together, several at once
  int roll = 0;
  int64_t band[3] = {};
  int64_t bands[3] = {1, 1, 1};
  int64_t ahead = 0;  // slices kept
  int64_t piece = 1;  // positions of outputs taken together
  int64_t sums = 0;   // in scratch

  int64_t units() const { return groups * blocks * bands[0] * bands[1] * bands[2]; }
  int64_t piece_elements() const { return piece * block; }
};

inline bool IsTrivial(const Axis& a) { return a.in == 1 && a.out == 1 && a.kernel == 1 && a.start(0) == 0; }

// `direct`: sums are made in the type of dx. `sum_bytes`: of one sum.
inline SumsLayout LayOutSums(const Problem& p, const Host& host, bool direct, int64_t sum_bytes, bool reads) {
  const CpuTuning& tuning = Tuning();
  SumsLayout l;
  l.direct = direct;
  l.reads = reads;
  l.bytes = SizeOf(p.dtype);
  l.sum_bytes = sum_bytes;
  l.lanes = l.block = p.channels_last() ? p.channels : 1;
  l.images = p.channels_last() ? p.batch : p.batch * p.channels;
  l.roll = !IsTrivial(p.axis[0]) ? 0 : !IsTrivial(p.axis[1]) ? 1 : 2;
  for (int i = 0; i < 3; ++i) l.band[i] = reads ? p.axis[i].out : p.axis[i].in;
  l.ahead = p.axis[l.roll].in;

  // Small images: as many as the first-level cache holds.
  const int64_t outputs = p.out_plane() * l.lanes;
  const int64_t image_bytes = p.in_plane() * l.lanes * sum_bytes;
  if (l.images > 1 && outputs * kImagesInStep <= 2 * tuning.sums_piece &&
      image_bytes * kImagesInStep <= tuning.sums_cache_2 / 2) {
    l.whole = true;
    const int64_t fitting = std::max<int64_t>(kImagesInStep, tuning.sums_cache / image_bytes);
    const int64_t fair = CeilDiv(l.images, host.tasks);
    const int64_t wanted = std::min(fitting, std::max(fair, tuning.sums_piece / outputs));
    l.group = std::min(l.images, CeilDiv(wanted, kImagesInStep) * kImagesInStep);
    l.groups = CeilDiv(l.images, l.group);
    l.piece = std::min(l.group * p.out_plane(), 2 * tuning.sums_piece / l.lanes);
    l.sums = direct ? 0 : p.in_plane() * l.lanes * l.group + kSumSlack;
    return l;
  }
  l.piece = std::max<int64_t>(1, Quotient(tuning.sums_piece, l.lanes));
  if (reads) {  // any cut will do
    l.groups = l.images;
    l.band[l.roll] = CeilDiv(l.band[l.roll], CeilDiv(host.tasks, l.images));
    l.bands[l.roll] = CeilDiv(p.axis[l.roll].out, l.band[l.roll]);
    return l;
  }
  const int64_t inputs = Quotient(p.x_elements(), p.y_elements());  // for an output
  int64_t apart = l.lanes;                                          // outputs that share no input, one after the other
  for (int i = 2; i >= 0 && p.axis[i].disjoint(); --i) apart *= p.axis[i].out;
  const bool in_step = apart < kLanesApart && !p.disjoint() && inputs < kSeldomMeet && l.images >= kImagesInStep;
  l.group = in_step ? kImagesInStep : 1;

  // What the windows of one output reach has to stay in the second-level cache, unless outputs are far between: then
  // long runs count for more.
  const Axis& r = p.axis[l.roll];
  const auto slice = [&] {
    int64_t elements = l.block;
    for (int i = l.roll + 1; i < 3; ++i) elements *= l.band[i];
    return elements;
  };
  const int64_t reach = std::min(r.extent(), r.in);
  const auto weight = [&] { return inputs < kMostlyZeros ? reach * slice() * sum_bytes * l.group : 0; };
  if (weight() > tuning.sums_cache_2) l.group = 1;
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

  // Bands of about the same size. A signal (only the width is left) does not roll: its bands fit the cache.
  const auto cut = [&](int64_t bands) {
    l.band[l.roll] = CeilDiv(r.in, bands);
    l.bands[l.roll] = CeilDiv(r.in, l.band[l.roll]);
  };
  constexpr double kOutput = 12;  // an output takes about as long as so many inputs
  const auto real = [](int64_t n) { return static_cast<double>(n); };  // what follows may be past 64 bits
  if (l.roll == 2) {
    const int64_t fit = std::max<int64_t>(1, tuning.sums_cache / (sum_bytes * slice() * l.group));
    const double most = real(r.in) * (kOutput + real(inputs)) / (96 * real(reach));
    cut(std::max<int64_t>(1, static_cast<int64_t>(std::min(real(CeilDiv(r.in, fit)), most))));
  }
  // Else as many as keep the threads busy for the shortest time, windows across the cuts being done twice; and more,
  // where that costs little, since no two take the same time. What is done by all counts as much as what one does,
  // since threads share processors.
  if (l.units() < host.tasks) {
    const int64_t others = l.units() / l.bands[l.roll];
    const int64_t least = std::max<int64_t>(1, tuning.sums_least / (sum_bytes * slice()));
    const int64_t most = std::min(CeilDiv(host.tasks, others), r.in / least);
    const auto time = [&](int64_t bands) {
      const int64_t band = CeilDiv(r.in, bands), units = others * bands;
      const double one = real(inputs) * real(band) + kOutput * real(band + (bands > 1 ? reach : 0));
      return one * (real(CeilDiv(units, host.threads)) + real(units) / real(host.threads));
    };
    int64_t chosen = l.bands[l.roll];
    double shortest = time(chosen);
    for (int64_t bands = chosen + 1; bands <= most; ++bands) {
      const double taken = time(bands);
      if (taken <= shortest + shortest / 32) chosen = bands;
      shortest = std::min(shortest, taken);
    }
    cut(chosen);
  }
  // Blocks need no window twice, but are runs of dx and of codes, and take up to 1.6 times as long.
  if (4 * l.units() <= host.threads) {
    const int64_t fair = CeilDiv(l.lanes, CeilDiv(host.threads, l.units() / l.blocks));
    const int64_t least = inputs < kMostlyZeros ? 16 : kLeastBlock;
    l.block = std::clamp(CeilDiv(fair, 16) * 16, std::min(least, l.block), l.block);
    l.blocks = CeilDiv(l.lanes, l.block);
  }

  if (!direct) {
    const int64_t fitting = tuning.sums_cache / (slice() * sum_bytes * l.group);
    const int64_t rows = std::max<int64_t>(1, tuning.sums_piece / (p.width().out * l.block));
    const int64_t more = std::min(rows * r.stride, std::max(reach, r.stride));  // outputs far between: not all of it
    l.ahead = l.roll == 2 ? l.band[2] : std::min(l.band[l.roll], std::max(reach + more, fitting));
    l.sums = l.ahead * slice() * l.group + kSumSlack;
  }
  l.piece = std::max<int64_t>(1, Quotient(tuning.sums_piece, l.block));
  return l;
}

// Outputs: of `images` images from `image` on of the unit, all of them, or of each the rows [oh, oh + rows) of slice
// od, there those in `ow`.
struct Batch {
  int64_t image, images;
  int64_t od, oh, rows;
  Range ow;
  bool whole;
};

// dx that is zeroed while outputs before it are added, line by line: by itself, it would wait for memory. (Times as
// fast, one thread, from memory: 3x3 1.05 to 1.3.)
struct ZeroMeanwhile {
  static constexpr int64_t kLine = 64;
  std::byte* at = nullptr;
  int64_t left = 0;  // bytes of an image
  int64_t images = 0;
  int64_t apart = 0;       // bytes from image to image
  int64_t lines_each = 0;  // for every few outputs

  void Finish() {
    for (int64_t i = 0; i < images; ++i) std::memset(at + i * apart, 0, static_cast<size_t>(left));
    *this = {};
  }
};
inline constexpr int64_t kFewOutputs = 32;

class Sums;

// What adds, and knows types, which a walk knows by their size alone.
class Adder {
 public:
  virtual void Begin(const Sums& sums) = 0;                    // a box begins
  virtual void Add(const Sums& sums, const Batch& batch) = 0;  // the next outputs, in order
  // n sums that are done, if they are not in dx, become so many bytes of it.
  virtual void Leave(const std::byte* from, int64_t n, std::byte* dx, int64_t bytes) = 0;

 protected:
  ~Adder() = default;
};

// A walk over the outputs of units.
class Sums {
 public:
  Sums(const Problem& problem, const Args& arguments, const SumsLayout& layout, std::byte* scratch, Adder& adder)
      : p(problem), l(layout), args(arguments), scratch_(scratch), adder_(adder) {}

  void Run(int64_t begin, int64_t end) {
    if (!l.direct) Clear(scratch_, l.sums);
    for (int64_t unit = begin; unit < end; ++unit) RunUnit(unit, unit + 1 < end);
  }

  // ---- What adders ask.

  const Problem& p;
  const SumsLayout& l;
  const Args& args;
  Span span[3];           // of the box
  int64_t image, images;  // the first, and how many
  int64_t lane, lanes;    // the block's first lane, and how many
  int64_t step[3];        // sums from place to place along an axis
  int64_t plane;          // and from image to image
  mutable ZeroMeanwhile meanwhile;

  // The sum of input (d, h, w) of image i, in the box.
  std::byte* At(int64_t i, int64_t d, int64_t h, int64_t w) const {
    return sums_ + (i * plane + Offset(d, h, w) - Turns(l.roll == 0 ? d : h)) * l.sum_bytes;
  }

  // What places of a batch are counted from. Without a ring it is where the first output's window begins, which may lie
  // before the memory that is added to; else the image's sums: then `from` is added, and `ring` taken off past the end.
  struct Origin {
    std::byte* sums;
    int64_t from, ring;
  };
  Origin OriginOf(const Batch& b) const {
    const int64_t start[] = {p.axis[0].start(b.od), p.axis[1].start(b.oh), p.axis[2].start(b.ow.begin)};
    const int64_t offset = Offset(start[0], start[1], start[2]);
    if (!ring_) return {sums_ + (b.image * plane + offset) * l.sum_bytes, 0, 0};
    return {sums_, offset - Turns(std::max(start[l.roll], span[l.roll].in.begin)), plane};
  }

  // Output (od, oh, ow) of image i in y, without lanes.
  int64_t OutputOf(int64_t i, int64_t od, int64_t oh, int64_t ow) const {
    return (((image + i) * p.axis[0].out + od) * p.axis[1].out + oh) * p.axis[2].out + ow;
  }
  const std::byte* Source(int64_t output) const {
    return static_cast<const std::byte*>(args.source) + (output * l.lanes + lane) * l.bytes;
  }
  // Whether outputs that follow each other do so in memory.
  bool flat() const { return lanes == l.lanes; }

 private:
  void RunUnit(int64_t unit, bool others) {
    const auto part = [&](int64_t of) {
      const int64_t before = unit;
      if (of > 1) unit = Quotient(unit, of);
      return before - unit * of;
    };
    int64_t index[3];
    for (int i = 2; i >= 0; --i) index[i] = part(l.bands[i]);
    lane = part(l.blocks) * l.block;
    lanes = std::min(l.block, l.lanes - lane);
    image = unit * l.group;
    images = std::min(l.group, l.images - image);
    bool covered = true;
    for (int i = 0; i < 3; ++i) {
      span[i] = SpanOf(p.axis[i], l.band[i], index[i], l.reads);
      covered = covered && span[i].out.size() > 0;
    }
    begun_ = done_ = span[l.roll].in.begin;
    FindInside();
    if (l.direct) {
      LayDirect();
    } else {
      LayStaged();
    }
    if (l.direct && l.whole && !l.reads) {
      // Units follow each other in memory: one is zeroed while the one before is added.
      const int64_t bytes = plane * l.bytes;
      if (!zeroed_) ZeroAhead(sums_, images * bytes);
      const int64_t next = others ? std::min(l.group, l.images - image - images) : 0;
      if (next > 0) ZeroNext(sums_ + images * bytes, next * bytes, 1, p.out_plane() * lanes * CeilDiv(images, 4));
      zeroed_ = others;
      begun_ = span[l.roll].in.end;
    }
    if (covered) {
      adder_.Begin(*this);
      if (l.whole) {
        MakeRoom(span[l.roll].in.begin, span[l.roll].in.end);
        int64_t together = l.piece / p.out_plane();
        if (together > kImagesInStep) together = together / kImagesInStep * kImagesInStep;
        for (int64_t i = 0; i < images; i += together) {
          adder_.Add(*this,
                     Batch{i, std::min(together, images - i), 0, 0, p.axis[0].out * p.axis[1].out, span[2].out, true});
        }
      } else {
        Roll();
      }
    }
    meanwhile.Finish();
    Finish(span[l.roll].in.end);
  }

  void LayDirect() {
    step[2] = l.lanes;
    step[1] = p.axis[2].in * step[2];
    step[0] = p.axis[1].in * step[1];
    plane = p.axis[0].in * step[0];
    origin_[0] = origin_[1] = origin_[2] = 0;
    sums_ = static_cast<std::byte*>(args.result) + (image * plane + lane) * l.bytes;
  }

  void LayStaged() {
    step[2] = lanes;
    step[1] = span[2].in.size() * lanes;
    step[0] = l.roll == 0 ? step[1] * span[1].in.size() : 0;
    slices_ = std::min(l.ahead, span[l.roll].in.size());
    ring_ = slices_ < span[l.roll].in.size();
    plane = slices_ * step[l.roll];
    for (int i = 0; i < 3; ++i) origin_[i] = span[i].in.begin;
    sums_ = scratch_;
  }

  int64_t Offset(int64_t d, int64_t h, int64_t w) const {
    return (d - origin_[0]) * step[0] + (h - origin_[1]) * step[1] + (w - origin_[2]) * step[2];
  }
  // How far slices before `slice` have gone round.
  int64_t Turns(int64_t slice) const { return ring_ ? (slice - origin_[l.roll]) / slices_ * plane : 0; }

  void Clear(std::byte* sums, int64_t n) const { std::memset(sums, 0, static_cast<size_t>(n * l.sum_bytes)); }

  void Roll() {
    const Range in = span[l.roll].in, out = span[l.roll].out;
    if (l.roll == 2) {
      MakeRoom(in.begin, in.end);
      return Pieces(0, 0, 1);
    }
    if (l.direct) return RollDirect();
    const Axis& r = p.axis[l.roll];
    const auto clip = [&](int64_t place) { return std::clamp(place, in.begin, in.end); };
    for (int64_t o = out.begin, past; o < out.end; o = past) {
      // As many slices of outputs as there is room for.
      const int64_t first = clip(r.start(o));
      for (past = o + 1; past < out.end && clip(r.start(past) + r.extent()) <= first + slices_;) ++past;
      MakeRoom(first, clip(r.start(past - 1) + r.extent()));
      Slices(o, past);
    }
  }

  // Slices without gaps are zeroed while the outputs before them are added.
  void RollDirect() {
    const Axis& r = p.axis[l.roll];
    const Range in = span[l.roll].in, out = span[l.roll].out;
    const bool gapless =
        !l.reads && flat() && span[2].in.size() == p.axis[2].in && (l.roll == 1 || span[1].in.size() == p.axis[1].in);
    const int64_t outputs = (l.roll == 1 ? 1 : span[1].out.size()) * span[2].out.size() * lanes;
    const int64_t some = std::max<int64_t>(1, Quotient(l.piece_elements(), outputs));
    const auto needed = [&](int64_t past) { return std::clamp(r.start(past - 1) + r.extent(), in.begin, in.end); };
    for (int64_t o = out.begin, past; o < out.end; o = past) {
      past = std::min(o + some, out.end);
      MakeRoom(in.begin, needed(past));
      const int64_t next = needed(std::min(past + some, out.end));
      const bool zeroes = gapless && past < out.end && next > begun_;
      if (zeroes) {
        ZeroNext(sums_ + (begun_ * step[l.roll]) * l.bytes, (next - begun_) * step[l.roll] * l.bytes, images,
                 (past - o) * outputs);
      }
      Slices(o, past);
      if (zeroes) begun_ = next;
      meanwhile.Finish();
    }
  }

  // Slices [begin, end) of outputs.
  void Slices(int64_t begin, int64_t end) {
    if (l.roll == 1) return Pieces(0, begin, end);
    for (int64_t od = begin; od < end; ++od) Pieces(od, span[1].out.begin, span[1].out.end);
  }

  // `outputs`: of one image, that are added meanwhile.
  void ZeroNext(std::byte* at, int64_t bytes, int64_t of_images, int64_t outputs) {
    const int64_t lines = CeilDiv(bytes, ZeroMeanwhile::kLine);
    meanwhile = {at, bytes, of_images, plane * l.bytes, CeilDiv(lines, std::max<int64_t>(1, outputs / kFewOutputs))};
  }

  // Outputs along the width whose windows lie in the box: pieces of long rows end there, so that only short ones have
  // to look at every place.
  void FindInside() {
    const Axis& w = p.axis[2];
    const Range in = span[2].in;
    inside_ = span[2].out;
    if (inside_.size() <= l.piece / 16) return;  // too short to be worth it
    while (inside_.size() > 0 && w.start(inside_.begin) < in.begin) ++inside_.begin;
    while (inside_.size() > 0 && w.start(inside_.end - 1) + w.extent() > in.end) --inside_.end;
  }

  // Rows [begin, end) of outputs of slice od, in pieces.
  void Pieces(int64_t od, int64_t begin, int64_t end) {
    const Range ow = span[2].out;
    if (ow.size() > l.piece || !flat() || ow.size() < p.axis[2].out) {
      for (int64_t oh = begin; oh < end; ++oh) {
        for (int64_t o = ow.begin, past; o < ow.end; o = past) {
          past = std::min(o + l.piece, o < inside_.begin ? inside_.begin : o < inside_.end ? inside_.end : ow.end);
          adder_.Add(*this, Batch{0, images, od, oh, 1, {o, past}, false});
        }
      }
      return;
    }
    const int64_t together = Quotient(l.piece, ow.size());
    for (int64_t oh = begin; oh < end; oh += together) {
      adder_.Add(*this, Batch{0, images, od, oh, std::min(together, end - oh), ow, false});
    }
  }

  // Slices before `first` get no more sums; those before `past` are needed.
  void MakeRoom(int64_t first, int64_t past) {
    if (l.direct) {
      if (past <= begun_) return;
      if (!l.reads) Zero(begun_, past);
      begun_ = past;
      return;
    }
    if (past > done_ + slices_) Finish(first);
  }

  // ---- The way out.

  // Calls visit(dx, n) for every run of dx without gaps of the box's slices [begin, end).
  template <class Visit>
  void ForRuns(int64_t begin, int64_t end, Visit&& visit) const {
    Range in[3] = {span[0].in, span[1].in, span[2].in};
    in[l.roll] = {begin, end};
    const int64_t row = p.axis[2].in * l.lanes;
    const auto at = [&](int64_t i, int64_t d, int64_t h) {
      const int64_t place = (((image + i) * p.axis[0].in + d) * p.axis[1].in + h) * row + in[2].begin * l.lanes + lane;
      return static_cast<std::byte*>(args.result) + place * l.bytes;
    };
    const bool rows = flat() && in[2].size() == p.axis[2].in;
    const bool planes = rows && in[1].size() == p.axis[1].in;
    if (planes && in[0].size() == p.axis[0].in) return visit(at(0, 0, 0), images * p.in_plane() * lanes);
    for (int64_t i = 0; i < images; ++i) {
      if (planes) {
        visit(at(i, in[0].begin, 0), in[0].size() * p.axis[1].in * row);
        continue;
      }
      for (int64_t d = in[0].begin; d < in[0].end; ++d) {
        if (rows) {
          visit(at(i, d, in[1].begin), in[1].size() * row);
          continue;
        }
        for (int64_t h = in[1].begin; h < in[1].end; ++h) {
          if (flat()) {
            visit(at(i, d, h), in[2].size() * lanes);
          } else {
            for (int64_t w = 0; w < in[2].size(); ++w) visit(at(i, d, h) + w * l.lanes * l.bytes, lanes);
          }
        }
      }
    }
  }

  void Zero(int64_t begin, int64_t end) const {
    ForRuns(begin, end, [&](std::byte* dx, int64_t n) { ZeroAhead(dx, n * l.bytes, Ahead()); });
  }

  // Blocks of lanes: some positions.
  int64_t Ahead() const { return flat() ? kBytesAhead : 8 * l.lanes * l.bytes; }

  // Slices before `end` are final, of those that the box owns.
  void Finish(int64_t end) {
    if (l.direct) return MakeRoom(end, end);  // what no window reached
    if (done_ >= end) return;
    const int64_t kept = std::min(done_ + slices_, end);
    while (done_ < kept) {
      // Runs of dx are runs of sums, up to the ring's end; images are further apart there than what has been written of
      // them.
      const int64_t first = (done_ - origin_[l.roll]) % slices_;
      const int64_t past = std::min(kept, done_ + slices_ - first);
      const int64_t written = (past - done_) * step[l.roll];
      int64_t from = first * step[l.roll], begin = from;
      ForRuns(done_, past, [&](std::byte* dx, int64_t n) {
        Leave(sums_ + from * l.sum_bytes, n, dx);
        from += n;
        if (from == begin + written && written != plane) from = begin += plane;
      });
      done_ = past;
    }
    if (kept < end) Zero(kept, end);
    done_ = end;
  }

  // n sums, side by side.
  void Leave(std::byte* from, int64_t n, std::byte* dx) const {
    const int64_t block = kMostLeaving / l.bytes;
    for (int64_t i = 0; i < n; i += block) {
      const int64_t some = std::min(n - i, block);
      if (!l.past) AskFor(dx + i * l.bytes, Ahead(), some * l.bytes);
      adder_.Leave(from + i * l.sum_bytes, some, dx + i * l.bytes, some * l.bytes);
      Clear(from + i * l.sum_bytes, some);
    }
  }

  std::byte* const scratch_;
  Adder& adder_;
  std::byte* sums_ = nullptr;  // of origin_
  int64_t origin_[3] = {};
  int64_t slices_ = 0;  // kept, if staged
  bool ring_ = false;   // and they are fewer than the box has
  Range inside_ = {};
  int64_t begun_ = 0;    // slices before are zeroed, if direct
  bool zeroed_ = false;  // the next unit is zeroed already
  int64_t done_ = 0;     // slices before have left, if staged
};

}  // namespace poolgrad
