// dx by accumulation over channels-first planes: vectors turn the codes of a block of output rows into offsets from the
// block's first window (backward_offsets-inl.h), and one scalar loop over all its outputs adds dy there. Outputs are
// visited in row-major order, so every input gets its sum in that order.
//
// The loop is bound by the core's loads and stores, so it makes few: one load fetches four offsets, one four dy, and
// what remains is a load and a store of dx per output. dx is zeroed as the loop goes (backward_zero-inl.h). The halves
// add in rows of f32 sums, rounded when no later window reaches them.
//
// Codes are vetted while they become offsets. A block with a code that lands outside the unit's rows is added one by
// one, and what lands outside is left out. A sum starts from +0, so it never becomes -0.
#if defined(POOLGRAD_CPU_BACKWARD_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_PLANES_INL_H_
#undef POOLGRAD_CPU_BACKWARD_PLANES_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_PLANES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward_lanes-inl.h"
#include "cpu/backward_offsets-inl.h"
#include "cpu/backward_planes.h"
#include "cpu/backward_round-inl.h"
#include "cpu/backward_zero-inl.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

#if HWY_ARCH_ARM_A64
// Eight values as two vectors of f32.
template <class T>
HWY_INLINE void LoadEight(const T* from, hn::Vec<hn::FixedTag<float, 4>>& first,
                          hn::Vec<hn::FixedTag<float, 4>>& second) {
  const hn::FixedTag<float, 4> d;
  if constexpr (std::is_same_v<T, BF16>) {
    const hn::FixedTag<uint16_t, 8> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    first = hn::BitCast(d, hn::InterleaveLower(d16, hn::Zero(d16), bits));
    second = hn::BitCast(d, hn::InterleaveUpper(d16, hn::Zero(d16), bits));
  } else {
    first = LoadWide(d, from);
    second = LoadWide(d, from + 4);
  }
}
#endif

// Eight outputs: to[offsets[i]] += values[i], one after the other.
template <class T>
HWY_INLINE void AddEight(Wide<T>* to, const T* values, const uint16_t* offsets) {
  uint64_t low, high;
  std::memcpy(&low, offsets, 8);
  std::memcpy(&high, offsets + 4, 8);
#if HWY_ARCH_ARM_A64
  if constexpr (sizeof(Wide<T>) == 4) {  // taking lanes out of a vector leaves the load pipes to dx
    hn::Vec<hn::FixedTag<float, 4>> first, second;
    LoadEight(values, first, second);
    asm("" : "+w"(first.raw), "+w"(second.raw));  // or the compiler loads the lanes one by one after all
    to[low & 0xFFFF] += hn::ExtractLane(first, 0);
    to[low >> 16 & 0xFFFF] += hn::ExtractLane(first, 1);
    to[low >> 32 & 0xFFFF] += hn::ExtractLane(first, 2);
    to[low >> 48] += hn::ExtractLane(first, 3);
    to[high & 0xFFFF] += hn::ExtractLane(second, 0);
    to[high >> 16 & 0xFFFF] += hn::ExtractLane(second, 1);
    to[high >> 32 & 0xFFFF] += hn::ExtractLane(second, 2);
    to[high >> 48] += hn::ExtractLane(second, 3);
    return;
  }
#endif
  Wide<T> widened[8];
  const Wide<T>* wide;
  if constexpr (std::is_same_v<T, Wide<T>>) {
    wide = values;
  } else {
    const hn::CappedTag<Wide<T>, 8> d;
    for (size_t i = 0; i < 8; i += hn::Lanes(d)) hn::StoreU(LoadWide(d, values + i), d, widened + i);
    wide = widened;
  }
  to[low & 0xFFFF] += wide[0];
  to[low >> 16 & 0xFFFF] += wide[1];
  to[low >> 32 & 0xFFFF] += wide[2];
  to[low >> 48] += wide[3];
  to[high & 0xFFFF] += wide[4];
  to[high >> 16 & 0xFFFF] += wide[5];
  to[high >> 32 & 0xFFFF] += wide[6];
  to[high >> 48] += wide[7];
}

template <class T>
HWY_INLINE void AddRest(Wide<T>* to, const T* values, const uint16_t* offsets, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[offsets[i]] += Widen(values[i]);
}

// Asks for dy `kBytes` behind `at`, which may lie past its end.
template <uintptr_t kBytes>
HWY_INLINE void AskAhead(const void* at) {
  hwy::Prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(at) + kBytes));
}

template <class T>
HWY_NOINLINE void AddOutputs(Wide<T>* to, const T* values, const uint16_t* offsets, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    AskAhead<2048>(values + i);
    AddEight(to, values + i, offsets + i);
  }
  AddRest(to, values + i, offsets + i, n - i);
}

// The same, and `pace` bytes more of `zeroer` are zero before each eight outputs, from `zeroed` on.
template <class T>
HWY_NOINLINE void AddAndZero(T* to, const T* values, const uint16_t* offsets, int64_t n, Zeroer& zeroer,
                             uintptr_t zeroed, uintptr_t pace) {
  Zeroer mine = zeroer;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    zeroed += pace;
    mine.UpTo(zeroed);
    AskAhead<2048>(values + i);
    AddEight(to, values + i, offsets + i);
  }
  mine.UpTo(zeroed + pace);
  AddRest(to, values + i, offsets + i, n - i);
  zeroer = mine;
}

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
    if constexpr (kStaged) std::memset(s_.sums, 0, RowBytes<V>(t_.kept));
  }

  void Run(int64_t begin, int64_t end) {
    if constexpr (!kStaged) zeroer_ = Zeroer(UnitRow(begin), UnitRow(end));
    for (int64_t unit = begin; unit < end;) {
      const int64_t band = unit % t_.bands;
      const int64_t past = std::min(t_.bands, band + end - unit);  // neighbouring bands are one
      plane_ = unit / t_.bands;
      rows_ = {band * t_.band, std::min(past * t_.band, p_.height().in)};
      RunBand();
      unit += past - band;
    }
  }

 private:
  T* DxRow(int64_t plane, int64_t row) const {
    return static_cast<T*>(args_.result) + (plane * p_.height().in + row) * in_;
  }
  T* UnitRow(int64_t unit) const { return DxRow(unit / t_.bands, unit % t_.bands * t_.band); }

  // ---- A band, block by block.

  void RunBand() {
    const Axis& h = p_.height();
    first_ = ready_ = origin_ = rows_.begin;
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
      zeroer_.UpTo(Zeroer::Address(DxRow(plane_, rows_.end)));
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
    const T* dy = static_cast<const T*>(args_.source) + (plane_ * h.out + oh) * out_;
    const bool good = offsets_.Find(plane_, rows_, oh, count, s_.offsets);
    const int64_t n = count * out_;
    if constexpr (kStaged) {
      MoveOn(start, start + (count - 1) * h.stride + h.extent());
      V* const to = Sums(start) + p_.width().start(0);
      if (good) return AddOutputs(to, dy, s_.offsets, n);
      for (int64_t i = 0; i < count; ++i) AddOneByOne(to + i * h.stride * in_, dy + i * out_, oh + i);
    } else {
      V* const to = DxRow(plane_, start) + p_.width().start(0);
      const uintptr_t needed = Zeroer::Address(DxRow(plane_, start + h.extent()));
      const uintptr_t row_bytes = static_cast<uintptr_t>(h.stride * in_) * sizeof(T);
      const bool paced = good && t_.paced;
      zeroer_.UpTo(paced ? needed : needed + static_cast<uintptr_t>(count - 1) * row_bytes);
      const uintptr_t pace = paced ? static_cast<uintptr_t>(t_.pace) : 0;
      if (good) return AddAndZero(to, dy, s_.offsets, n, zeroer_, needed, pace);
      for (int64_t i = 0; i < count; ++i) AddOneByOne(to + i * h.stride * in_, dy + i * out_, oh + i);
    }
  }

  // Staged: rows before `done` get no more adds and are rounded into dx; rows up to `needed` are ready for some.
  void MoveOn(int64_t done, int64_t needed) {
    done = std::clamp(done, first_, rows_.end);
    needed = std::clamp(needed, done, rows_.end);
    const int64_t past = std::min(done, ready_);
    rounder_.Run(Sums(first_), (past - first_) * in_, DxRow(plane_, first_));
    if (done > ready_) std::memset(static_cast<void*>(DxRow(plane_, ready_)), 0, RowBytes<T>(done - ready_));
    first_ = done;
    ready_ = std::max(ready_, done);
    if (needed - origin_ > t_.kept) MoveSums();
    ready_ = std::max(ready_, needed);
  }
  V* Sums(int64_t row) const { return s_.sums + (row - origin_) * in_; }

  // Rows that still get adds go to the front; what they leave behind is zero again.
  HWY_NOINLINE void MoveSums() {
    const int64_t from = (first_ - origin_) * in_;
    const int64_t count = (ready_ - first_) * in_;
    std::memmove(s_.sums, s_.sums + from, RowBytes<V>(ready_ - first_));
    const int64_t left = std::max(from, count);
    std::memset(s_.sums + left, 0, static_cast<size_t>(from + count - left) * sizeof(V));
    origin_ = first_;
  }
  template <class E>
  size_t RowBytes(int64_t rows) const {
    return static_cast<size_t>(rows * in_) * sizeof(E);
  }

  // ---- Any codes: what lands outside goes nowhere.

  HWY_NOINLINE void AddOneByOne(V* to, const T* values, int64_t oh) const {
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    const Range rows = TapsInside(h, h.start(oh), rows_);
    const uint8_t* const line = offsets_.Line(plane_, oh);
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
  Zeroer zeroer_;
  // The band at work.
  int64_t plane_ = 0;
  Range rows_;
  // Staged: rows [first_, ready_) may be added to; the sums of row origin_ stand in front. All other sums are zero.
  int64_t first_ = 0, ready_ = 0, origin_ = 0;
  const Rounder rounder_{};
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_PLANES_INL_H_
