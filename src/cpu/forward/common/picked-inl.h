// fwd_exact: any problem, rows of outputs by the letter (exact-inl.h). On ordinary values all rules agree: rows are
// pooled without them first, and a Watch looks on. Where channels that lie last are few, or none, lanes are outputs
// that are neighbours, whatever their windows: columns are reduced down first, as they lie, then the windows of every
// size that occurs at every place, where every output finds its winner. (One by one: an instruction that gathers takes
// 17 ns for 16 lanes here, as long as 40 loads.)

#include <algorithm>
#include <cstdint>

#include "cpu/forward/common/rows-inl.h"
#include "cpu/simd/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// Whether channels that lie last do, well enough.
template <class S>
bool FillsLanes(const Problem& p) {
  return p.channels_last() && p.channels > 1 && 4 * p.channels > LaneCount<S>();
}

template <class S>
class PickedRows {
  static constexpr int64_t kMostLevels = 4;

 public:
  PickedRows(const Problem& p, const Range& sizes, ScratchTaker& take) : p_(p), sizes_(sizes), take_(take) {}

  // How many taps windows have along the width, from the least to the most; empty where that is not asked for.
  static Range Sizes(const Problem& p) {
    const int64_t inner = p.channels_last() ? p.channels : 1;
    if (!TakesOrdinaryRows<S>(p) || FillsLanes<S>(p) || p.width().in * inner > 1 << 28) return {};
    Range sizes = {p.width().kernel, 0};
    for (int64_t o = 0; o < p.width().out; ++o) {
      const int64_t taps = p.width().valid_taps(o).size();
      sizes = {std::min(sizes.begin, taps), std::max(sizes.end, taps + 1)};
    }
    return sizes.size() <= kMostLevels ? sizes : Range{};
  }

  // Where outputs find their winners, once there is scratch.
  void Start() {
    const Axis& w = p_.width();
    std::fill(best_ + out_, best_ + out_ + lanes_, S{1});  // which the Watch sees
    for (int64_t e = 0; e < out_; ++e) {
      const Range taps = w.valid_taps(e / inner_);
      const int64_t at = (w.start(e / inner_) + taps.begin * w.dilation) * inner_ + e % inner_;
      place_[e] = static_cast<int32_t>((taps.size() - sizes_.begin) * level_ + at);
      first_[e] = static_cast<Code<S>>(taps.begin);
    }
  }

  // `routes` may be null.
  HWY_NOINLINE void Row(const ExactRow<S>& row, S* y, uint8_t* routes, Watch<S>& shared_watch) {
    const hn::ScalableTag<S> d;
    const hn::ScalableTag<Code<S>> du;
    Watch<S> watch = shared_watch;
    int64_t at = 0;
    const auto keep = [&](int v, VecOf<S> key, CodeVec<S> code) POOLGRAD_LAMBDA {
      hn::StoreU(key, d, keys_ + at + v * lanes_);
      hn::StoreU(code, du, codes_ + at + v * lanes_);
    };
    for (; at + 4 * lanes_ <= in_; at += 4 * lanes_) OrdinaryBlock<S, 4>(row, {0, 1}, at, lanes_, watch, keep);
    for (; at < in_; at += lanes_) OrdinaryBlock<S, 1>(row, {0, 1}, at, std::min(lanes_, in_ - at), watch, keep);
    const auto meet = routes ? &PickedRows::Meet<true> : &PickedRows::Meet<false>;
    for (int64_t taps = 1, more; taps < sizes_.begin; taps += more) {
      more = std::min(taps, sizes_.begin - taps);
      (this->*meet)(0, more, 0);
    }
    for (int64_t level = 0; level + 1 < sizes_.size(); ++level) (this->*meet)(level * level_, 1, (level + 1) * level_);
    Pick(keys_, place_, out_, best_);
    if (routes) Pick(codes_, place_, out_, numbers_);
    for (int64_t e = 0; e < out_; e += lanes_) {
      const auto key = hn::LoadU(d, best_ + e);
      const auto code = hn::Add(hn::LoadU(du, numbers_ + e), hn::LoadU(du, first_ + e));
      if (!routes && kIsFloat<S>) watch.SeeUnordered(key);
      StoreOrdinary<S>(key, code, std::min(lanes_, out_ - e), y + e, numbers_ + e, watch);
    }
    if (routes) PackRow(p_, numbers_, {0, p_.width().out}, routes);
    shared_watch = watch;
  }

 private:
  template <class T>
  static HWY_INLINE void Pick(const T* HWY_RESTRICT from, const int32_t* HWY_RESTRICT place, int64_t n,
                              T* HWY_RESTRICT to) {
    for (int64_t e = 0; e < n; ++e) to[e] = from[place[e]];
  }

  // Windows of `more` taps more, of two that lie so far apart. Of equal keys the one whose number is less, or with
  // ties=last greater, as if taps came in row-major order.
  template <bool kRoutes>
  HWY_NOINLINE void Meet(int64_t from, int64_t more, int64_t to) const {
    const hn::ScalableTag<S> d;
    const hn::ScalableTag<Code<S>> du;
    const bool takes_ties = p_.ties == POOLGRAD_TIES_LAST;
    const auto on = hn::Set(du, static_cast<Code<S>>(more));
    for (int64_t e = from; e < from + in_; e += lanes_) {
      const auto best = hn::LoadU(d, keys_ + e), key = hn::LoadU(d, keys_ + e + more * step_);
      if constexpr (kRoutes) {
        const auto code = hn::LoadU(du, codes_ + e), with = hn::Add(hn::LoadU(du, codes_ + e + more * step_), on);
        const auto prefers = takes_ties ? hn::Gt(with, code) : hn::Lt(with, code);
        const auto takes = hn::Or(hn::Gt(key, best), hn::And(hn::Eq(key, best), hn::RebindMask(d, prefers)));
        hn::StoreU(hn::IfThenElse(hn::RebindMask(du, takes), with, code), du, codes_ + e - from + to);
        hn::StoreU(hn::IfThenElse(takes, key, best), d, keys_ + e - from + to);
      } else {
        hn::StoreU(Greatest<S>(key, best), d, keys_ + e - from + to);
      }
    }
  }

  const Problem& p_;
  const Range sizes_;  // of windows along the width
  ScratchTaker& take_;
  const int64_t inner_ = p_.channels_last() ? p_.channels : 1, lanes_ = LaneCount<S>();
  const int64_t in_ = p_.width().in * inner_, out_ = p_.width().out * inner_;  // of a row, in elements
  const int64_t step_ = p_.width().dilation * inner_;
  // The windows of each size are so far apart, at every place, since vectors begin anywhere.
  const int64_t level_ = (in_ + sizes_.begin * step_) / lanes_ * lanes_ + 2 * lanes_;
  S* const keys_ = take_.Take<S>(level_ * sizes_.size());
  Code<S>* const codes_ = take_.Take<Code<S>>(level_ * sizes_.size());
  // Of outputs: winners, their numbers, where they are, and the number of the first tap.
  S* const best_ = take_.Take<S>(out_ + lanes_);
  Code<S>* const numbers_ = take_.Take<Code<S>>(out_ + lanes_);
  int32_t* const place_ = take_.Take<int32_t>(out_);
  Code<S>* const first_ = take_.Take<Code<S>>(out_ + lanes_);
};

// Rows of outputs [begin, end), by the letter where they need it.
template <class S>
void RunExact(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const Rows<S> rows(p, args);
  const Range whole = {0, p.width().out};
  const Range sizes = PickedRows<S>::Sizes(p);
  ScratchTaker take(scratch);
  PickedRows<S> picked(p, sizes, take);
  const bool picks = sizes.size() > 0, tries = picks || (FillsLanes<S>(p) && TakesOrdinaryRows<S>(p));
  if (picks) picked.Start();
  Lookahead ahead(rows.plane(RowPlace(p, begin).plane), rows.x_end);
  for (int64_t r = begin; r < end; ++r) {
    const RowPlace at(p, r);
    const S* const plane = rows.plane(at.plane);
    const ExactRow<S> row(p, plane, at.od, at.oh);
    bool done = tries && row.d.size() > 0 && row.h.size() > 0;
    if (done) {
      Watch<S> watch(p);
      ahead.At(rows.row(plane, row.start_d, row.start_h) + row.h.end * p.width().in * rows.inner);
      if (picks) {
        picked.Row(row, rows.y_row(r), rows.route_row(r), watch);
      } else {
        OrdinaryRow<S>(row, rows.y_row(r), rows.route_row(r), watch);
      }
      done = !watch.Fired() || !SeesSpecial(rows, plane, at.od, at.oh, whole);
    }
    if (!done) RunExactRow<S>(rows, plane, at.od, at.oh, whole, r);
    rows.Finish(r, 1, whole);
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
