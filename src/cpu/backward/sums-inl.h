// Where dx is summed while outputs add to it (sums.h says how it is cut), and how sums become dx. What adds is the
// caller's:
//   void Begin(Sums&)              a box begins
//   void Add(Sums&, const Batch&)  the next outputs, in order
// Sums begin at +0, so that they never become -0, and are rounded once, when they leave.
//
// Tried and left: f32 summed in scratch like the halves and copied out (3x3 at stride 2 takes twice as long: dx is read
// before it is written, where zeroing whole lines does not); margins around the sums instead of a look at every place.
#if defined(POOLGRAD_CPU_BACKWARD_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_SUMS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_SUMS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward/backward.h"
#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/sums.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Outputs: of `images` images from `image` on of the unit, all of them, or of each the rows [oh, oh + rows) of slice
// od, there those in `ow`.
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
  Sums(const Problem& problem, const Args& arguments, S* scratch)
      : p(problem), l(*static_cast<const SumsLayout*>(arguments.layout)), args(arguments), scratch_(scratch) {}

  template <class Adder>
  void Run(int64_t begin, int64_t end, Adder& adder) {
    for (int64_t unit = begin; unit < end; ++unit) RunUnit(unit, adder);
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

  // The sum of input (d, h, w) of image i; it may lie outside the box, if only others inside are reached from it.
  S* At(int64_t i, int64_t d, int64_t h, int64_t w) const {
    return sums_ + i * plane + (d - origin_[0]) * step[0] + (h - origin_[1]) * step[1] + (w - origin_[2]) * step[2];
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
    bool covered = true;
    for (int i = 0; i < 3; ++i) {
      span[i] = SpanOf(p.axis[i], l.band[i], index[i]);
      covered = covered && span[i].out.size() > 0;
    }
    begun_ = done_ = span[l.roll].in.begin;
    FindInside();
    if (l.direct) {
      LayDirect();
    } else {
      LayStaged();
    }
    if (covered) {
      adder.Begin(*this);
      if (l.whole) {
        MakeRoom(span[l.roll].in.begin, span[l.roll].in.end);
        int64_t together = l.piece / p.out_plane();
        if (together > kImagesInStep) together = together / kImagesInStep * kImagesInStep;
        for (int64_t i = 0; i < images; i += together) {
          adder.Add(*this,
                    Batch{i, std::min(together, images - i), 0, 0, p.axis[0].out * p.axis[1].out, span[2].out, true});
        }
      } else {
        Roll(adder);
      }
    }
    Finish(span[l.roll].in.end);
  }

  void LayDirect() {
    step[2] = l.lanes;
    step[1] = p.axis[2].in * step[2];
    step[0] = p.axis[1].in * step[1];
    plane = p.axis[0].in * step[0];
    origin_[0] = origin_[1] = origin_[2] = 0;
    if constexpr (std::is_same_v<T, S>) sums_ = static_cast<S*>(args.result) + image * plane;
  }

  void LayStaged() {
    step[2] = lanes;
    step[1] = span[2].in.size() * lanes;
    step[0] = l.roll == 0 ? step[1] * span[1].in.size() : 0;
    slices_ = l.roll == 2 ? span[2].in.size() : std::min(l.ahead, span[l.roll].in.size());
    plane = l.roll == 2 ? step[1] : slices_ * step[l.roll];
    for (int i = 0; i < 3; ++i) origin_[i] = span[i].in.begin;
    sums_ = scratch_;
    Clear(sums_, images * plane + kSumSlack);
  }

  static void Clear(S* sums, int64_t n) {
    std::memset(static_cast<void*>(sums), 0, static_cast<size_t>(n) * sizeof(S));
  }

  template <class Adder>
  void Roll(Adder& adder) {
    const Axis& r = p.axis[l.roll];
    const Range in = span[l.roll].in;
    const Range out = span[l.roll].out;
    if (l.roll == 2) {
      MakeRoom(in.begin, in.end);
      return Pieces(adder, 0, 0, 1);
    }
    const auto clip = [&](int64_t place) { return std::clamp(place, in.begin, in.end); };
    for (int64_t o = out.begin; o < out.end;) {
      // As many slices of outputs as there is room for.
      const int64_t first = clip(r.start(o));
      const int64_t end = l.direct ? std::max(begun_ + l.ahead, clip(r.start(o) + r.extent())) : first + slices_;
      int64_t past = o + 1;
      while (past < out.end && clip(r.start(past) + r.extent()) <= end) ++past;
      MakeRoom(first, l.direct ? clip(end) : clip(r.start(past - 1) + r.extent()));
      if (l.roll == 1) {
        Pieces(adder, 0, o, past);
      } else {
        for (int64_t od = o; od < past; ++od) Pieces(adder, od, span[1].out.begin, span[1].out.end);
      }
      o = past;
    }
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
  template <class Adder>
  HWY_INLINE void Pieces(Adder& adder, int64_t od, int64_t begin, int64_t end) {
    const Range ow = span[2].out;
    if (ow.size() > l.piece || !flat() || ow.size() < p.axis[2].out) {
      for (int64_t oh = begin; oh < end; ++oh) {
        for (int64_t o = ow.begin, past; o < ow.end; o = past) {
          past = std::min(o + l.piece, o < inside_.begin ? inside_.begin : o < inside_.end ? inside_.end : ow.end);
          adder.Add(*this, Batch{0, images, od, oh, 1, {o, past}, false});
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
    if (l.direct) {
      if (past <= begun_) return;
      ForRuns(begun_, past, [](T* dx, int64_t n) { ZeroAhead(dx, n * static_cast<int64_t>(sizeof(T))); });
      begun_ = past;
      return;
    }
    int64_t& origin = origin_[l.roll];
    if (past <= origin + slices_) return;
    Finish(first);
    const int64_t gone = std::min(first - origin, slices_) * step[l.roll];
    const int64_t left = plane - gone;
    for (int64_t i = 0; i < images; ++i) {
      S* const sums = sums_ + i * plane;
      std::memmove(static_cast<void*>(sums), sums + gone, static_cast<size_t>(left) * sizeof(S));
      Clear(sums + left, gone);
    }
    origin = first;
  }

  // ---- The way out.

  // Calls visit(dx, n) for every run of dx without gaps of the box's slices [begin, end).
  template <class Visit>
  HWY_INLINE void ForRuns(int64_t begin, int64_t end, Visit&& visit) const {
    Range in[3] = {span[0].in, span[1].in, span[2].in};
    in[l.roll] = {begin, end};
    const int64_t row = p.axis[2].in * l.lanes;
    T* const dx = static_cast<T*>(args.result) + lane;
    const auto at = [&](int64_t i, int64_t d, int64_t h) {
      return dx + (((image + i) * p.axis[0].in + d) * p.axis[1].in + h) * row + in[2].begin * l.lanes;
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
            for (int64_t w = 0; w < in[2].size(); ++w) visit(at(i, d, h) + w * l.lanes, lanes);
          }
        }
      }
    }
  }

  // Slices before `end` are final, of those that the box owns.
  void Finish(int64_t end) {
    if (l.direct) return MakeRoom(end, end);  // what no window reached
    if (done_ >= end) return;
    const int64_t kept = l.roll == 2 ? end : std::clamp(origin_[l.roll] + slices_, done_, end);
    if (kept > done_) {
      // Runs of dx are runs of sums; images are further apart there than what has been written of them.
      const S* from = l.roll == 2 ? sums_ : sums_ + (done_ - origin_[l.roll]) * step[l.roll];
      const int64_t written = l.roll == 2 ? plane : (kept - done_) * step[l.roll];
      const S* begin = from;
      ForRuns(done_, kept, [&](T* dx, int64_t n) HWY_ATTR {
        Leave(from, n, dx);
        from += n;
        if (from == begin + written && written != plane) from = begin += plane;
      });
    }
    if (kept < end) {
      ForRuns(kept, end, [](T* dx, int64_t n) { ZeroAhead(dx, n * static_cast<int64_t>(sizeof(T))); });
    }
    done_ = end;
  }

  // n sums, side by side.
  HWY_NOINLINE void Leave(const S* HWY_RESTRICT from, int64_t n, T* HWY_RESTRICT to) const {
    constexpr int64_t kBytes = sizeof(T), kBlock = 1024 / kBytes;
    const int64_t ahead = flat() ? kBytesAhead : 8 * l.lanes * kBytes;  // blocks of lanes: some positions
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t some = std::min(n - i, kBlock);
      AskFor(to + i, ahead, some * kBytes);
      if constexpr (!std::is_same_v<T, S>) RoundRun<T>(from + i, some, to + i);  // only such sums are not made in dx
    }
  }

  S* const scratch_;
  S* sums_ = nullptr;       // of origin_
  int64_t origin_[3] = {};  // of the rolling axis, if staged, it moves
  int64_t slices_ = 0;      // kept, if staged
  Range inside_ = {};
  int64_t begun_ = 0;  // slices before are zeroed, if direct
  int64_t done_ = 0;   // slices before have left, if staged
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_SUMS_INL_H_
