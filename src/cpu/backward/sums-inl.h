// The sums of dx while outputs add to them (sums.h says how they are cut and kept), and their way out. What adds is the caller's:
//   void Begin(Sums&)              a box begins
//   void Add(Sums&, const Batch&)  the next outputs, in order
// Sums begin at +0, so that they never become -0, and are rounded once, when they leave.
#if defined(POOLGRAD_CPU_BACKWARD_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_SUMS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_SUMS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_SUMS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/sums.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Outputs: of `images` images from `image` on of the unit, all of them, or of each the rows [oh, oh + rows) of slice od, there
// those in `ow`.
struct Batch {
  int64_t image, images;
  int64_t od, oh, rows;
  Range ow;
  bool whole;
};

// T: the element type. S: what it is summed in (for unpool, which copies, the unsigned integer of its size, like T).
template <class T, class S>
class Sums {
 public:
  Sums(const Problem& problem, const Args& args, S* sums)
      : p(problem), l(*static_cast<const SumsLayout*>(args.layout)), args(args), sums_(sums) {}

  template <class Adder>
  void Run(int64_t begin, int64_t end, Adder& adder) {
    for (int64_t unit = begin; unit < end; ++unit) RunUnit(unit, adder);
    if (l.stream) hwy::FlushStream();
  }

  // ---- What adders ask.

  const Problem& p;
  const SumsLayout& l;
  const Args& args;
  Span span[3];              // of the box
  int64_t image, images;     // the first, and how many in step
  int64_t lane, lanes;       // the block's first lane, and how many
  int64_t step[3];           // sums from place to place along an axis (of the width: to the next place of the same phase)
  int64_t phase_step;        // and from phase to phase

  int64_t plane;             // and from image to image

  S* sums() const { return sums_; }

  // Where tap 0 of the window of output (od, oh, ow) of image i lies among the sums.
  int64_t PlaceOf(int64_t i, int64_t od, int64_t oh, int64_t ow) const {
    const int64_t w = p.axis[2].start(ow) - span[2].kept.begin;
    return kDump + i * plane + (p.axis[0].start(od) - origin_[0]) * step[0] + (p.axis[1].start(oh) - origin_[1]) * step[1] +
           w / l.phases * step[2];
  }
  // Where input (d, h, w) lies, one that is kept; only without phases.
  int64_t PlaceOfInput(int64_t i, int64_t d, int64_t h, int64_t w) const {
    return kDump + i * plane + (d - origin_[0]) * step[0] + (h - origin_[1]) * step[1] + (w - origin_[2]) * step[2];
  }

  // Output (od, oh, ow) of image i in y, without lanes.
  int64_t OutputOf(int64_t i, int64_t od, int64_t oh, int64_t ow) const {
    return (((image + i) * p.axis[0].out + od) * p.axis[1].out + oh) * p.axis[2].out + ow;
  }
  const T* Source(int64_t output) const { return static_cast<const T*>(args.source) + output * l.lanes + lane; }
  // Whether outputs that follow each other do so in memory.
  bool flat() const { return lanes == l.lanes; }

 private:
  template <class Adder>
  void RunUnit(int64_t unit, Adder& adder) {
    int64_t index[3];
    for (int i = 2; i >= 0; --i) {
      index[i] = unit % l.bands[i];
      unit /= l.bands[i];
    }
    lane = unit % l.blocks * l.block;
    lanes = std::min(l.block, l.lanes - lane);
    image = unit / l.blocks * l.group;
    images = std::min(l.group, l.images - image);
    int64_t elements = lanes;
    bool covered = true;
    for (int i = 2; i >= 0; --i) {
      span[i] = SpanOf(p.axis[i], l.band[i], index[i], i == 2 ? l.phases : 1, l.exact);
      covered = covered && span[i].out.size() > 0;
      origin_[i] = span[i].kept.begin;
      step[i] = elements;
      if (i == 2) {
        phase_step = CeilDiv(span[2].kept.size(), l.phases) * lanes;
        elements = phase_step * l.phases;
      } else if (i > l.roll) {
        elements *= span[i].kept.size();
      }
    }
    slices_ = std::min(l.most, span[l.roll].kept.size());
    slice_ = step[l.roll];
    plane = l.roll == 2 ? elements : slices_ * slice_;
    written_ = span[l.roll].in.begin;
    if (!covered) {
      slices_ = 0;  // nothing is kept: all zeros
    } else {
      Clear(sums_, kDump + images * plane + kSumSlack);
      adder.Begin(*this);
      if (l.whole) {
        int64_t together = l.piece / p.out_plane();
        if (together > kImagesInStep) together = together / kImagesInStep * kImagesInStep;
        for (int64_t i = 0; i < images; i += together) {
          adder.Add(*this, Batch{i, std::min(together, images - i), 0, 0, p.axis[0].out * p.axis[1].out, span[2].out, true});
        }
      } else {
        Roll(adder);
      }
    }
    Write(span[l.roll].in.end);
  }

  static void Clear(S* sums, int64_t n) { std::memset(static_cast<void*>(sums), 0, static_cast<size_t>(n) * sizeof(S)); }

  template <class Adder>
  void Roll(Adder& adder) {
    const Axis& r = p.axis[l.roll];
    const Range out = span[l.roll].out;
    if (l.roll == 2) return Pieces(adder, 0, 0, 1);
    for (int64_t o = out.begin; o < out.end;) {
      // As many slices of outputs as the sums have room for.
      const auto clip = [&](int64_t place) { return std::clamp(place, span[l.roll].kept.begin, span[l.roll].kept.end); };
      const int64_t first = clip(r.start(o));
      int64_t past = o + 1;
      while (past < out.end && clip(r.start(past) + r.extent()) - first <= slices_) ++past;
      MakeRoom(first, clip(r.start(past - 1) + r.extent()));
      if (l.roll == 1) {
        Pieces(adder, 0, o, past);
      } else {
        for (int64_t od = o; od < past; ++od) Pieces(adder, od, span[1].out.begin, span[1].out.end);
      }
      o = past;
    }
  }

  // Rows [begin, end) of outputs of slice od, in pieces.
  template <class Adder>
  HWY_INLINE void Pieces(Adder& adder, int64_t od, int64_t begin, int64_t end) {
    const Range ow = span[2].out;
    if (ow.size() > l.piece || !flat() || ow.size() < p.axis[2].out) {
      const int64_t piece = l.piece < 32 ? l.piece : l.piece / 32 * 32;  // codes begin at bytes
      for (int64_t oh = begin; oh < end; ++oh) {
        for (int64_t o = ow.begin; o < ow.end; o += piece) {
          adder.Add(*this, Batch{0, images, od, oh, 1, {o, std::min(o + piece, ow.end)}, false});
        }
      }
      return;
    }
    const int64_t together = l.piece / ow.size();
    for (int64_t oh = begin; oh < end; oh += together) {
      adder.Add(*this, Batch{0, images, od, oh, std::min(together, end - oh), ow, false});
    }
  }

  // Slices before `first` get no more sums; those before `past` are needed.
  void MakeRoom(int64_t first, int64_t past) {
    int64_t& origin = origin_[l.roll];
    if (past <= origin + slices_) return;
    Write(first);
    const int64_t gone = std::min(first - origin, slices_) * slice_;
    const int64_t left = slices_ * slice_ - gone;
    for (int64_t i = 0; i < images; ++i) {
      S* const sums = sums_ + kDump + i * plane;
      std::memmove(static_cast<void*>(sums), sums + gone, static_cast<size_t>(left) * sizeof(S));
      Clear(sums + left, gone);
    }
    origin = first;
  }

  // ---- The way out.

  // Slices before `end`, of those that the box owns, go to dx; past what is kept there are zeros.
  void Write(int64_t end) {
    end = std::min(end, span[l.roll].in.end);
    if (written_ >= end) return;
    Range in[3] = {span[0].in, span[1].in, span[2].in};
    in[l.roll] = {written_, end};
    const int64_t kept = origin_[l.roll] + slices_;
    const int64_t row = p.axis[2].in * l.lanes;
    const bool rows = flat() && in[2].size() == p.axis[2].in;  // they are written whole
    T* const dx = static_cast<T*>(args.result) + lane + in[2].begin * l.lanes;
    const auto row_of = [&](int64_t i, int64_t d, int64_t h) {
      return dx + (((image + i) * p.axis[0].in + d) * p.axis[1].in + h) * row;
    };
    if (l.whole && kept >= end && plane == p.in_plane() * l.lanes) {  // without margins
      return Leave(sums_ + kDump, images * plane, row_of(0, 0, 0), row_of(images, 0, 0));
    }
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t d = in[0].begin; d < in[0].end; ++d) {
        const S* const from = sums_ + kDump + i * plane + (d - origin_[0]) * step[0] - origin_[1] * step[1];
        // Rows that are kept, and then those that are not.
        const int64_t zeros = l.roll == 1 ? std::clamp(kept, in[1].begin, in[1].end)
                              : (l.roll == 0 ? d : in[2].begin) < kept ? in[1].end
                                                                       : in[1].begin;
        int64_t h = in[1].begin;
        if (rows && l.phases == 1) {
          const bool planes = in[1].size() == p.axis[1].in;
          T* const past = l.whole ? row_of(images, 0, 0) : row_of(i, planes ? in[0].end - 1 : d, in[1].end);
          WriteRows(from + h * step[1] + (in[2].begin - origin_[2]) * lanes, zeros - h, row, row_of(i, d, h), past);
          h = zeros;
        }
        for (; h < zeros; ++h) WriteRow(from + h * step[1], in[2], row_of(i, d, h));
        for (; h < in[1].end; ++h) WriteZeros(row_of(i, d, h), in[2].size());
      }
    }
    written_ = end;
  }

  // Rows that follow each other in dx, of n elements each. Before `past` more may be written than a row has: it is written again.
  HWY_NOINLINE void WriteRows(const S* HWY_RESTRICT from, int64_t rows, int64_t n, T* HWY_RESTRICT to, const T* past) const {
    if (rows <= 0) return;
    if (n == step[1] || n >= 64) {
      const int64_t runs = n == step[1] ? 1 : rows;
      const int64_t run = n == step[1] ? rows * n : n;
      for (int64_t r = 0; r < runs; ++r) Leave(from + r * step[1], run, to + r * n, past);
      return;
    }
    const hn::ScalableTag<S> d;
    const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
    const int64_t whole = CeilDiv(n, vector) * vector;
    for (; rows > 0 && past - to >= whole; --rows, from += step[1], to += n) {
      for (int64_t i = 0; i < n; i += vector) StoreNarrow(d, hn::LoadU(d, from + i), to + i);
    }
    for (; rows > 0; --rows, from += step[1], to += n) LeaveRest(from, 0, n, to);
  }

  void WriteZeros(T* to, int64_t places) const {
    const int64_t runs = flat() ? 1 : places;
    const int64_t n = flat() ? places * lanes : lanes;
    for (int64_t r = 0; r < runs; ++r) std::memset(static_cast<void*>(to + r * l.lanes), 0, static_cast<size_t>(n) * sizeof(T));
  }

  // Places [w.begin, w.end) of the row of sums.
  void WriteRow(const S* row, Range w, T* to) const {
    const int64_t first = w.begin - origin_[2];
    if (l.phases == 1) {
      row += first * lanes;
      if (flat()) return Leave(row, w.size() * lanes, to, to + w.size() * lanes);
      for (int64_t i = 0; i < w.size(); ++i) Leave(row + i * lanes, lanes, to + i * l.lanes, to + i * l.lanes + lanes);
      return;
    }
    int64_t phase = first % l.phases, q = first / l.phases;
    if (l.lanes > 1) {
      for (int64_t i = 0; i < w.size(); ++i) {
        T* const at = to + i * l.lanes;
        Leave(row + phase * phase_step + q * lanes, lanes, at, at + lanes);
        if (++phase == l.phases) phase = 0, ++q;
      }
      return;
    }
    int64_t i = 0;
    for (; i < w.size() && phase != 0; ++i) {
      to[i] = Narrow<T>(row[phase * phase_step + q]);
      if (++phase == l.phases) phase = 0, ++q;
    }
    if (l.phases == 2) i += Interleave<2>(row + q, w.size() - i, to + i);
    if (l.phases == 3) i += Interleave<3>(row + q, w.size() - i, to + i);
    if (l.phases == 4) i += Interleave<4>(row + q, w.size() - i, to + i);
    q = (first + i) / l.phases;
    for (; i < w.size(); ++i) {
      to[i] = Narrow<T>(row[phase * phase_step + q]);
      if (++phase == l.phases) phase = 0, ++q;
    }
  }

  // Whole vectors of kPhases phases from `row` on, side by side; returns how many elements.
  template <int kPhases>
  HWY_INLINE int64_t Interleave(const S* HWY_RESTRICT row, int64_t count, T* HWY_RESTRICT to) const {
    if constexpr (std::is_integral_v<S>) {
      return 0;
    } else {
      const hn::ScalableTag<S> d;
      const hn::Rebind<Stored<T, S>, decltype(d)> ds;
      const int64_t n = static_cast<int64_t>(hn::Lanes(d));
      const auto load = [&](int64_t phase, int64_t i) HWY_ATTR {
        return NarrowTo<T>(d, hn::LoadU(d, row + phase * phase_step + i));
      };
      auto* const out = reinterpret_cast<Stored<T, S>*>(to);
      int64_t i = 0;
      for (; (i + n) * kPhases <= count; i += n) {
        if constexpr (kPhases == 2) hn::StoreInterleaved2(load(0, i), load(1, i), ds, out + 2 * i);
        if constexpr (kPhases == 3) hn::StoreInterleaved3(load(0, i), load(1, i), load(2, i), ds, out + 3 * i);
        if constexpr (kPhases == 4) {
          hn::StoreInterleaved4(load(0, i), load(1, i), load(2, i), load(3, i), ds, out + 4 * i);
        }
      }
      return i * kPhases;
    }
  }

  // n sums, side by side; up to `past` more may be written.
  HWY_INLINE void Leave(const S* HWY_RESTRICT from, int64_t n, T* HWY_RESTRICT to, const T* past) const {
    if constexpr (std::is_same_v<T, S>) {
      if (l.stream && n >= 64) return Stream(from, n, to);
    } else {
      if (n >= 64) return RoundRun<T>(from, n, to);
    }
    const hn::ScalableTag<S> d;
    const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i < n && past - (to + i) >= vector; i += vector) StoreNarrow(d, hn::LoadU(d, from + i), to + i);
    if (i < n) LeaveRest(from, i, n, to);
  }

  // Those from i on, where nothing may be written behind.
  static HWY_NOINLINE void LeaveRest(const S* HWY_RESTRICT from, int64_t i, int64_t n, T* HWY_RESTRICT to) {
    const hn::CappedTag<S, 4> d;
    const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
    if (n >= vector) {
      for (; i < n; i += vector) {
        i = std::min(i, n - vector);
        StoreNarrow(d, hn::LoadU(d, from + i), to + i);
      }
    }
    for (; i < n; ++i) to[i] = Narrow<T>(from[i]);
  }

  static HWY_NOINLINE void Stream(const S* HWY_RESTRICT from, int64_t n, S* HWY_RESTRICT to) {
    const hn::ScalableTag<S> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; reinterpret_cast<uintptr_t>(to + i) % (sizeof(S) * hn::Lanes(d)) != 0; ++i) to[i] = from[i];
    for (; i + lanes <= n; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
    for (; i < n; ++i) to[i] = from[i];
  }

  S* const sums_;
  int64_t origin_[3] = {};  // of what is kept; of the rolling axis, it moves
  int64_t slices_ = 0, slice_ = 0;
  int64_t written_ = 0;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_SUMS_INL_H_
