// The gradient of an average: every output gives every tap of its window the same share, by vectors.
//
// Vectors go along a row of outputs, lanes and positions alike, one tap after the other. The sums of a row (sums-inl.h)
// are sorted by phase of the stride, so that neighbouring outputs add to neighbouring places. The taps of the last
// column come first: an input then gets its outputs in their order.
#if defined(POOLGRAD_CPU_BACKWARD_AVERAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_AVERAGE_INL_H_
#undef POOLGRAD_CPU_BACKWARD_AVERAGE_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_AVERAGE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/sums-inl.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class T>
class AverageGradient {
  using S = Wide<T>;

 public:
  // With null scratch it only counts what it needs.
  AverageGradient(const Problem& problem, const SumsLayout& l, std::byte* scratch) : p_(problem) {
    ScratchTaker take(scratch);
    sums = take.Take<S>(l.sums);
    values_ = take.Take<S>(l.piece_elements() + kRowSlack);
    bytes = take.used();
  }

  S* sums;
  int64_t bytes;

  void Begin(const Sums<T, S, true>&) {}

  void Add(const Sums<T, S, true>& s, const Batch& b) {
    for (int64_t r = 0; r < b.rows; ++r) Row(s, b.od, b.oh + r, b.ow);
  }

 private:
  void Row(const Sums<T, S, true>& s, int64_t od, int64_t oh, Range ow) {
    const int64_t n = ow.size() * s.lanes;
    const int64_t output = s.OutputOf(0, od, oh, ow.begin);
    if (s.flat()) {
      SpreadSum<T>(s.Source(output), n, values_);
    } else {
      for (int64_t i = 0; i < ow.size(); ++i) SpreadSum<T>(s.Source(output + i), s.lanes, values_ + i * s.lanes);
    }
    Divide(od, oh, ow, s.lanes);
    const Axis* a = p_.axis;
    const Range in = s.span[2].in;
    const Range depth = Inside(a[0], od, s.span[0].in);
    const Range height = Inside(a[1], oh, s.span[1].in);
    for (int64_t kw = a[2].kernel - 1; kw >= 0; --kw) {
      // The outputs whose tap kw lies in the box, and where the first one's does.
      const int64_t shift = kw * a[2].dilation;
      const int64_t begin = std::max(ow.begin, CeilDiv(in.begin - a[2].start(0) - shift, a[2].stride));
      const int64_t end = std::min(ow.end, FloorDiv(in.end - 1 - a[2].start(0) - shift, a[2].stride) + 1);
      if (begin >= end) continue;
      const int64_t at = a[2].start(begin) + shift - in.begin;
      const int64_t column = at % s.l.phases * s.phase_step + at / s.l.phases * s.step[2];
      for (int64_t kd = depth.begin; kd < depth.end; ++kd) {
        for (int64_t kh = height.begin; kh < height.end; ++kh) {
          Give(values_ + (begin - ow.begin) * s.lanes, (end - begin) * s.lanes,
               s.Row(0, a[0].start(od) + kd * a[0].dilation, a[1].start(oh) + kh * a[1].dilation) + column);
        }
      }
    }
  }

  // The taps of output o that lie in the box.
  static Range Inside(const Axis& a, int64_t o, Range in) {
    return {std::clamp<int64_t>(CeilDiv(in.begin - a.start(o), a.dilation), 0, a.kernel),
            std::clamp<int64_t>(CeilDiv(in.end - a.start(o), a.dilation), 0, a.kernel)};
  }

  static HWY_NOINLINE void Give(const S* HWY_RESTRICT values, int64_t n, S* HWY_RESTRICT to) {
    const hn::ScalableTag<S> d;
    const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + vector <= n; i += vector) hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, values + i)), d, to + i);
    for (; i < n; ++i) to[i] += values[i];
  }

  void Divide(int64_t od, int64_t oh, Range ow, int64_t lanes) {
    for (int64_t o = ow.begin; o < ow.end;) {
      const auto count = [&](int64_t at) {
        return p_.whole_window_gradient ? p_.taps() : AverageCount(p_, od, oh, at);
      };
      const int64_t divisor = count(o);
      // Most of a row has one divisor: between windows that reach no border it is found once.
      const Range inner = p_.width().interior();
      int64_t past = o + 1;
      if (o >= inner.begin && o < inner.end) past = std::min(inner.end, ow.end);
      DivideRun(values_ + (o - ow.begin) * lanes, (past - o) * lanes, static_cast<S>(divisor));
      o = past;
    }
  }

  static void DivideRun(S* values, int64_t n, S divisor) {
    const hn::ScalableTag<S> d;
    const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
    const auto by = hn::Set(d, divisor);
    int64_t i = 0;
    for (; i + vector <= n; i += vector) hn::StoreU(hn::Div(hn::LoadU(d, values + i), by), d, values + i);
    for (; i < n; ++i) values[i] = values[i] / divisor;
  }

  const Problem& p_;
  S* values_;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_AVERAGE_INL_H_
