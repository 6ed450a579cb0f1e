// fwd_average: average pooling forward, both layouts. Every sum is made in row-major order of the taps, starting from
// +0, in the wide type, and divided and rounded once: the order is fixed, so no part of a sum is shared between
// windows.
//
// Channels first expands input rows to wide values sorted by phase, as padded-inl.h does for keys, with 0 for padding:
// adding +0 to a sum that began at +0 changes no bit.

// Per-target include guard
#if defined(POOLGRAD_CPU_AVERAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_AVERAGE_INL_H_
#undef POOLGRAD_CPU_AVERAGE_INL_H_
#else
#define POOLGRAD_CPU_AVERAGE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/forward/any/blocks-inl.h"
#include "cpu/forward/any/padded-inl.h"
#include "cpu/scratch.h"
#include "cpu/simd/types-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class T>
struct AverageScratch {
  using W = Wide<T>;
  Phases phases;
  Piece piece;  // the whole row
  W* expanded;
  W* sums;
  W* counts;
  const T** taps;

  AverageScratch(const Problem& p, ScratchTaker& take)
      : phases(std::min(p.width().stride, Positions(p.width())), Positions(p.width()), 1, 0),
        piece(p.width(), {0, p.width().out}) {
    const bool planar = !p.channels_last() || p.channels == 1;
    const int64_t row = p.width().out + LaneCount<W>();
    expanded = take.Take<W>(planar ? phases.size() + LaneCount<W>() : 0);  // vectors may read on into the next phase
    sums = take.Take<W>(planar ? row : 0);
    counts = take.Take<W>(row);
    taps = take.Take<const T*>(planar ? 0 : p.taps());
  }
};

template <class T>
class AverageRunner {
 public:
  AverageRunner(const Problem& p, const Args& args, std::byte* memory)
      : p_(p),
        inner_(p.channels_last() ? p.channels : 1),
        x_(static_cast<const T*>(args.source)),
        y_(static_cast<T*>(args.result)),
        take_(memory),
        s_(p, take_) {
    if (inner_ == 1) std::fill(s_.expanded, s_.expanded + s_.phases.size(), W{0});
  }

  // Rows are (plane, od, oh).
  void Run(int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t oh = r % p_.height().out;
      const int64_t od = r / p_.height().out % p_.depth().out;
      const T* plane = x_ + r / p_.height().out / p_.depth().out * p_.in_plane() * inner_;
      T* y = y_ + r * p_.width().out * inner_;
      for (int64_t ow = 0; ow < p_.width().out; ++ow) s_.counts[ow] = static_cast<W>(AverageCount(p_, od, oh, ow));
      if (inner_ == 1) {
        PlanarRow(plane, od, oh, y);
      } else {
        for (int64_t ow = 0; ow < p_.width().out; ++ow) Pixel(plane, od, oh, ow, y + ow * inner_);
      }
    }
  }

 private:
  using W = Wide<T>;

  template <class Visit>
  void ForEachRow(const T* plane, int64_t od, int64_t oh, const Visit& visit) const {
    const Range d = p_.depth().valid_taps(od);
    const Range h = p_.height().valid_taps(oh);
    for (int64_t kd = d.begin; kd < d.end; ++kd) {
      for (int64_t kh = h.begin; kh < h.end; ++kh) {
        const int64_t in_d = p_.depth().start(od) + kd * p_.depth().dilation;
        const int64_t in_h = p_.height().start(oh) + kh * p_.height().dilation;
        visit(plane + (in_d * p_.height().in + in_h) * p_.width().in * inner_);
      }
    }
  }

  // sum / count, or 0 where nothing counts.
  HWY_INLINE hn::Vec<hn::ScalableTag<W>> Divide(hn::Vec<hn::ScalableTag<W>> sum,
                                                hn::Vec<hn::ScalableTag<W>> count) const {
    const hn::ScalableTag<W> d;
    return hn::IfThenElseZero(hn::Ne(count, hn::Zero(d)), hn::Div(sum, count));
  }

  void Pixel(const T* plane, int64_t od, int64_t oh, int64_t ow, T* y) {
    const hn::ScalableTag<W> d;
    const Axis& width = p_.width();
    const Range w = width.valid_taps(ow);
    int64_t n = 0;
    ForEachRow(plane, od, oh, [&](const T* row) {
      for (int64_t kw = w.begin; kw < w.end; ++kw)
        s_.taps[n++] = row + (width.start(ow) + kw * width.dilation) * inner_;
    });
    const auto count = hn::Set(d, s_.counts[ow]);
    const int64_t lanes = LaneCount<W>();
    for (int64_t c = 0; c < inner_; c += lanes) {
      const auto here = static_cast<size_t>(std::min(lanes, inner_ - c));
      auto sum = hn::Zero(d);
      for (int64_t t = 0; t < n; ++t) sum = hn::Add(sum, LoadWideN(d, s_.taps[t] + c, here));
      StoreNarrowN(d, Divide(sum, count), y + c, here);
    }
  }

  void PlanarRow(const T* plane, int64_t od, int64_t oh, T* y) {
    const hn::ScalableTag<W> d;
    const Axis& width = p_.width();
    const int64_t lanes = LaneCount<W>();
    std::fill(s_.sums, s_.sums + width.out, W{0});
    ForEachRow(plane, od, oh, [&](const T* row) HWY_ATTR {
      Expand(row);
      for (int64_t j = 0; j < width.out; j += lanes) {
        auto sum = hn::LoadU(d, s_.sums + j);
        for (int64_t kw = 0; kw < width.kernel; ++kw) {
          sum = hn::Add(sum, hn::LoadU(d, s_.expanded + s_.phases.at(kw * width.dilation) + j));
        }
        hn::StoreU(sum, d, s_.sums + j);
      }
    });
    for (int64_t j = 0; j < width.out; j += lanes) {
      const auto average = Divide(hn::LoadU(d, s_.sums + j), hn::LoadU(d, s_.counts + j));
      StoreNarrowN(d, average, y + j, static_cast<size_t>(std::min(lanes, width.out - j)));
    }
  }

  void Expand(const T* row) {
    const hn::ScalableTag<W> d;
    const Phases& to = s_.phases;
    const int64_t first = s_.piece.width.pad_lo;
    const int64_t count = s_.piece.width.in;
    row += s_.piece.begin;
    int64_t i = 0;
    if (to.stride == 1) {
      const int64_t lanes = LaneCount<W>();
      for (; i + lanes <= count; i += lanes) hn::StoreU(LoadWide(d, row + i), d, s_.expanded + first + i);
    }
    int64_t phase = (first + i) % to.stride;
    int64_t place = (first + i) / to.stride;
    for (; i < count; ++i) {
      s_.expanded[phase * to.phase_pitch + place] = Widen(row[i]);
      if (++phase == to.stride) {
        phase = 0;
        ++place;
      }
    }
  }

  const Problem& p_;
  int64_t inner_;
  const T* x_;
  T* y_;
  ScratchTaker take_;
  AverageScratch<T> s_;
};

template <class T>
void RunAverage(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* memory) {
  AverageRunner<T>(p, args, memory).Run(begin, end);
}

template <class T>
Made MakeAverage(const Problem& p) {
  if (const char* reason = RefusePadding(p)) return reason;
  ScratchTaker take(nullptr);
  const AverageScratch<T> scratch(p, take);
  const int64_t planes = p.channels_last() ? p.batch : p.batch * p.channels;
  Kernel kernel;
  kernel.run = RunAverage<T>;
  kernel.units = planes * p.depth().out * p.height().out;
  kernel.scratch_bytes = take.used();
  return kernel;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
