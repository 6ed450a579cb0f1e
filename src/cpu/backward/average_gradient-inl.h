// The gradient of an average: every output gives every tap of its window the same share, by vectors.
//
// Vectors go along a row of outputs, lanes and positions alike. The sums of a row (sums-inl.h) are sorted by phase of the
// stride, so that neighbouring outputs add to neighbouring places. Inside a row the taps of the last column come first: an input
// then gets its outputs in their order. Where lanes are few, one column of taps goes along the whole piece before the next: a
// load that straddles what was just stored waits for it.
//
// Tried and left: the same for small windows of max pooling, where a tap adds dy if the code names it. With vectors of 64 bytes
// 3x3 takes the time of bwd_scatter channels last, and channels first, in short rows, 1.5 times as much.
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
    sums = take.Take<S>(l.sums());
    values_ = take.Take<S>(l.piece_elements() + kRowSlack);
    places_ = take.Take<int64_t>(p_.taps());
    bytes = take.used();
  }

  S* sums;
  int64_t bytes;

  // Taps by column, the last one first.
  void Begin(const Sums<T, S>& s) {
    const Axis* a = p_.axis;
    int64_t* place = places_;
    for (int64_t kw = a[2].kernel - 1; kw >= 0; --kw) {
      const int64_t w = kw * a[2].dilation;
      const int64_t column = w % s.l.phases * s.phase_step + w / s.l.phases * s.step[2];
      for (int64_t kd = 0; kd < a[0].kernel; ++kd) {
        for (int64_t kh = 0; kh < a[1].kernel; ++kh) {
          *place++ = column + kd * a[0].dilation * s.step[0] + kh * a[1].dilation * s.step[1];
        }
      }
    }
  }

  void Add(const Sums<T, S>& s, const Batch& b) {
    for (int64_t r = 0; r < b.rows; ++r) Row(s, b.od, b.oh + r, b.ow);
  }

 private:
  void Row(const Sums<T, S>& s, int64_t od, int64_t oh, Range ow) {
    const hn::ScalableTag<S> d;
    const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
    const int64_t n = ow.size() * s.lanes;
    const int64_t output = s.OutputOf(0, od, oh, ow.begin);
    if (s.flat()) {
      SpreadSum<T>(s.Source(output), n, values_);
    } else {
      for (int64_t i = 0; i < ow.size(); ++i) SpreadSum<T>(s.Source(output + i), s.lanes, values_ + i * s.lanes);
    }
    for (int64_t i = n; i < n + vector; ++i) values_[i] = S{0};
    Divide(od, oh, ow, s.lanes);
    S* const to = s.sums() + s.PlaceOf(0, od, oh, ow.begin);
    const int64_t columns = p_.width().kernel;
    const int64_t rows = p_.taps() / columns;
    if (s.lanes >= vector) return Give(places_, p_.taps(), n, to);
    for (int64_t k = 0; k < columns; ++k) Give(places_ + k * rows, rows, n, to);
  }

  HWY_NOINLINE void Give(const int64_t* places, int64_t taps, int64_t n, S* to) const {
    const hn::ScalableTag<S> d;
    const int64_t vector = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < n; i += vector) {
      const auto value = hn::LoadU(d, values_ + i);
      for (int64_t t = 0; t < taps; ++t) {
        S* const at = to + places[t] + i;
        hn::StoreU(hn::Add(hn::LoadU(d, at), value), d, at);
      }
    }
  }

  void Divide(int64_t od, int64_t oh, Range ow, int64_t lanes) {
    for (int64_t o = ow.begin; o < ow.end;) {
      const auto count = [&](int64_t at) { return p_.whole_window_gradient ? p_.taps() : AverageCount(p_, od, oh, at); };
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
  int64_t* places_;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_AVERAGE_INL_H_
