// dx by accumulation over channels-first planes: vectors turn the codes of a block of output rows into offsets from the
// block's first window (backward_offsets-inl.h), and one scalar loop over all its outputs adds dy there. Outputs are
// visited in row-major order, so every input gets its sum in that order.
//
// The loop (backward_plane_adds-inl.h) is bound by the core's loads and stores, so it makes few: one load fetches four
// offsets, one four dy, and what remains is a load and a store of dx per output. dx is zeroed as the loop goes
// (backward_zero-inl.h). The halves add in rows of f32 sums, rounded when no later window reaches them
// (backward_round-inl.h).
//
// Codes are vetted while they become offsets. A block with a code that lands outside the unit's rows is added one by
// one, and what lands outside is left out. A sum starts from +0, so it never becomes -0.
#if defined(POOLGRAD_CPU_BACKWARD_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_PLANES_INL_H_
#undef POOLGRAD_CPU_BACKWARD_PLANES_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_PLANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/offsets-inl.h"
#include "cpu/backward/plane_adds-inl.h"
#include "cpu/backward/planes.h"
#include "cpu/backward/round-inl.h"
#include "cpu/backward/zero-inl.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class T>
class PlaneScatter {
  using V = Wide<T>;
  static constexpr bool kStaged = !std::is_same_v<T, V>;
  struct Nothing {};
  using Rounder = std::conditional_t<kStaged, SumRounder<T>, Nothing>;

 public:
  PlaneScatter(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem),
        args_(args),
        t_(LayOutPlanes(problem)),
        s_(problem, t_, scratch),
        in_(problem.width().in),
        out_(problem.width().out),
        offsets_(problem, t_, s_, args.routes) {
    if constexpr (kStaged) std::memset(s_.sums, 0, RowBytes<V>(t_.together * t_.kept));
  }

  void Run(int64_t begin, int64_t end) {
    if constexpr (!kStaged) zeroers_[0] = Zeroer(UnitRow(begin), UnitRow(end));
    for (int64_t unit = begin; unit < end;) {
      const int64_t band = unit % t_.bands;
      const int64_t past = std::min(t_.bands, band + end - unit);  // neighbouring bands are one
      plane_ = unit / t_.bands;
      planes_ = t_.bands == 1 && end - unit >= t_.together ? t_.together : 1;
      rows_ = {band * t_.band, std::min(past * t_.band, p_.height().in)};
      RunBand();
      unit += planes_ > 1 ? planes_ : past - band;
    }
  }

 private:
  T* DxRow(int64_t plane, int64_t row) const {
    return static_cast<T*>(args_.result) + (plane * p_.height().in + row) * in_;
  }
  T* UnitRow(int64_t unit) const { return DxRow(unit / t_.bands, unit % t_.bands * t_.band); }

  // ---- A band of one plane or of some in step, block by block.

  void RunBand() {
    const Axis& h = p_.height();
    first_ = ready_ = origin_ = rows_.begin;
    if constexpr (!kStaged) {  // in step each plane has its own, else one goes on through all bands
      for (int64_t i = 0; t_.together > 1 && i < planes_; ++i) {
        zeroers_[i] = Zeroer(DxRow(plane_ + i, rows_.begin), DxRow(plane_ + i, rows_.end));
      }
    }
    const Range ohs = {h.covering(rows_.begin).begin, h.covering(rows_.end - 1).end};
    for (int64_t oh = ohs.begin; oh < ohs.end;) {
      int64_t count = std::min(t_.at_once, ohs.end - oh);
      if (t_.bands > 1) count = Cut(oh) ? 1 : UncutRows(oh, count);
      RunBlock(oh, count);
      oh += count;
    }
    if constexpr (kStaged) {
      MoveOn(rows_.end, rows_.end);
    } else {
      ZeroTo(rows_.end);
    }
  }

  // Whether windows of this output row lie over the band's edge inside the plane: their codes may be right and land
  // outside.
  bool Cut(int64_t oh) const {
    const Axis& h = p_.height();
    const int64_t start = h.start(oh);
    return (rows_.begin > 0 && start < rows_.begin) || (rows_.end < h.in && start + h.extent() > rows_.end);
  }

  int64_t UncutRows(int64_t oh, int64_t most) const {
    int64_t count = 1;
    while (count < most && !Cut(oh + count)) ++count;
    return count;
  }

  void RunBlock(int64_t oh, int64_t count) {
    const Axis& h = p_.height();
    const int64_t start = h.start(oh);
    bool good[kPlanesTogether] = {};
    bool all_good = true;
    for (int64_t i = 0; i < planes_; ++i) {
      good[i] = offsets_.Find(plane_ + i, rows_, oh, count, s_.offsets + i * t_.offset_step);
      all_good &= good[i];
    }
    const int64_t n = count * out_;
    const int64_t past = start + (count - 1) * h.stride + h.extent();
    PlaneAdds<T> adds{nullptr,       kStaged ? t_.kept * in_ : h.in * in_, Dy(0, oh), h.out * out_, s_.offsets,
                      t_.offset_step};
    if constexpr (kStaged) {
      MoveOn(start, past);
      adds.to = Sums(0, start) + p_.width().start(0);
    } else {
      adds.to = DxRow(plane_, start) + p_.width().start(0);
      if (all_good && t_.paced) {
        ZeroTo(start + h.extent());
        const PlaneZeros zeros{zeroers_, Zeroer::Address(DxRow(plane_, start + h.extent())),
                               static_cast<uintptr_t>(h.in * in_) * sizeof(T), static_cast<uintptr_t>(t_.pace)};
        return planes_ > 1 ? AddFour<true>(adds, n, zeros) : AddOne<true>(adds, n, zeros);
      }
      ZeroTo(past);
    }
    if (all_good && planes_ > 1) return AddFour<false>(adds, n, PlaneZeros{});
    for (int64_t i = 0; i < planes_; ++i) {
      if (good[i]) {
        AddOne<false>(adds, n, PlaneZeros{});
      } else {
        for (int64_t row = 0; row < count; ++row) AddOneByOne(adds.to + row * h.stride * in_, i, oh + row);
      }
      adds.to += adds.to_step;
      adds.values += adds.value_step;
      adds.offsets += adds.offset_step;
    }
  }

  const T* Dy(int64_t i, int64_t oh) const {
    return static_cast<const T*>(args_.source) + ((plane_ + i) * p_.height().out + oh) * out_;
  }

  // Not staged: the rows before `row` are zero afterwards.
  void ZeroTo(int64_t row) {
    for (int64_t i = 0; i < planes_; ++i) zeroers_[i].UpTo(Zeroer::Address(DxRow(plane_ + i, row)));
  }

  // Staged: rows before `done` get no more adds and are rounded into dx; rows up to `needed` are ready for some.
  void MoveOn(int64_t done, int64_t needed) {
    done = std::clamp(done, first_, rows_.end);
    needed = std::clamp(needed, done, rows_.end);
    const int64_t past = std::min(done, ready_);
    for (int64_t i = 0; i < planes_; ++i) {
      rounder_.Run(Sums(i, first_), (past - first_) * in_, DxRow(plane_ + i, first_));
      if (done > ready_) std::memset(static_cast<void*>(DxRow(plane_ + i, ready_)), 0, RowBytes<T>(done - ready_));
    }
    first_ = done;
    ready_ = std::max(ready_, done);
    if (needed - origin_ > t_.kept) MoveSums();
    ready_ = std::max(ready_, needed);
  }
  V* Sums(int64_t i, int64_t row) const { return s_.sums + (i * t_.kept + row - origin_) * in_; }

  // Rows that still get adds go to the front; what they leave behind is zero again.
  HWY_NOINLINE void MoveSums() {
    const int64_t from = (first_ - origin_) * in_;
    const int64_t count = (ready_ - first_) * in_;
    const int64_t left = std::max(from, count);
    for (int64_t i = 0; i < planes_; ++i) {
      V* const sums = Sums(i, origin_);
      std::memmove(sums, sums + from, RowBytes<V>(ready_ - first_));
      std::memset(sums + left, 0, static_cast<size_t>(from + count - left) * sizeof(V));
    }
    origin_ = first_;
  }
  template <class E>
  size_t RowBytes(int64_t rows) const {
    return static_cast<size_t>(rows * in_) * sizeof(E);
  }

  // ---- Any codes: what lands outside goes nowhere.

  HWY_NOINLINE void AddOneByOne(V* to, int64_t plane, int64_t oh) const {
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    const Range rows = TapsInside(h, h.start(oh), rows_);
    const uint8_t* const line = offsets_.Line(plane_ + plane, oh);
    const T* const values = Dy(plane, oh);
    for (int64_t i = 0; i < out_; ++i) {
      const int64_t tap = LoadCode(p_.routes, line, i);
      const int64_t tap_row = tap / w.kernel;
      const int64_t column = tap % w.kernel * w.dilation;
      if (tap_row < rows.begin || tap_row >= rows.end) continue;
      if (w.start(i) + column < 0 || w.start(i) + column >= w.in) continue;
      to[tap_row * h.dilation * in_ + i * w.stride + column] += Widen(values[i]);
    }
  }

  const Problem& p_;
  const Args& args_;
  const PlaneTiles t_;
  const PlaneScratch s_;
  const int64_t in_, out_;
  const PlaneOffsets offsets_;
  // The band at work, of planes [plane_, plane_ + planes_).
  int64_t plane_ = 0, planes_ = 1;
  Range rows_;
  Zeroer zeroers_[kPlanesTogether];
  // Staged: rows [first_, ready_) may be added to; the sums of row origin_ stand in front. All other sums are zero.
  int64_t first_ = 0, ready_ = 0, origin_ = 0;
  const Rounder rounder_{};
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_PLANES_INL_H_
