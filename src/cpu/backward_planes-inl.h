// dx by accumulation over channels-first planes: vectors turn the codes of a block of output rows into offsets from the
// block's first window, and one scalar loop over all its outputs adds dy there. Outputs are visited in row-major order,
// so every input gets its sum in that order.
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
#include "cpu/backward_planes.h"
#include "cpu/backward_round-inl.h"
#include "cpu/backward_vet-inl.h"
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
  using D8 = hn::FixedTag<uint8_t, 16>;
  using D16 = hn::FixedTag<uint16_t, 8>;
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
        out_(problem.width().out) {
    if (t_.nibbles) FindTapBits(p_, tap_bits_);
    for (int64_t tap = 0; t_.nibbles && tap < p_.taps(); ++tap) {
      const int64_t at =
          tap / p_.width().kernel * p_.height().dilation * in_ + tap % p_.width().kernel * p_.width().dilation;
      tap_low_[tap] = static_cast<uint8_t>(at & 255);
      tap_high_[tap] = static_cast<uint8_t>(at >> 8);
    }
    for (int64_t i = 0; i < 16 * t_.groups; ++i) SetColumn(i);
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

  // What output i of a row allows; past its end, anything.
  void SetColumn(int64_t i) {
    const Axis& w = p_.width();
    const Range inside = i < out_ ? ColumnsInside(w, w.start(i)) : Range{0, w.kernel};
    if (t_.nibbles) {
      s_.columns[i] = i < out_ ? static_cast<uint8_t>(BitsOf(inside) << p_.height().kernel) : uint8_t{255};
    } else {
      s_.lane_lo[i] = static_cast<uint16_t>(inside.size() == 0 ? 0x8000 : inside.begin);  // that no column reaches
      s_.lane_span[i] = static_cast<uint16_t>(inside.size() == 0 ? 0 : inside.size() - 1);
    }
  }

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
    const bool good = t_.nibbles ? NibbleOffsets(oh, count) : ByteOffsets(oh, count);
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

  // The tap rows of output row oh that land inside the band.
  HWY_INLINE Range TapsInside(int64_t oh) const {
    const Axis& h = p_.height();
    const int64_t start = h.start(oh);
    const bool whole = start >= rows_.begin && start + h.extent() <= rows_.end;
    return whole ? Range{0, h.kernel} : ClippedTaps(start);
  }
  HWY_NOINLINE Range ClippedTaps(int64_t start) const {
    const Axis& h = p_.height();
    const int64_t begin = start >= rows_.begin ? 0 : std::min(h.kernel, CeilDiv(rows_.begin - start, h.dilation));
    const int64_t end =
        start >= rows_.end ? begin : std::clamp(CeilDiv(rows_.end - start, h.dilation), begin, h.kernel);
    return {begin, end};
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

  // ---- The codes of `count` output rows to offsets; whether all land inside.

  const uint8_t* Line(int64_t oh) const { return args_.routes + LineOffset(p_.routes, plane_ * p_.height().out + oh); }
  // The same codes, where more may be read behind them.
  HWY_NOINLINE const uint8_t* CopyLine(const uint8_t* line) const {
    std::memcpy(s_.line, line, static_cast<size_t>(p_.routes.line_bytes));
    return s_.line;
  }

  HWY_NOINLINE bool NibbleOffsets(int64_t oh, int64_t count) const {
    const D8 d8;
    const D16 d16;
    const hn::FixedTag<uint8_t, 8> d8h;
    const auto low_table = hn::LoadU(d8, tap_low_);
    const auto high_table = hn::LoadU(d8, tap_high_);
    const auto bits_table = hn::LoadU(d8, tap_bits_);
    const auto nibble = hn::Set(d8h, 15);
    const auto step = hn::Set(d16, static_cast<uint16_t>(8 * p_.width().stride));
    const auto down = hn::Set(d16, static_cast<uint16_t>(p_.height().stride * in_));
    const uint8_t* HWY_RESTRICT columns = s_.columns;
    uint16_t* HWY_RESTRICT to = s_.offsets;
    const uint8_t* next = Line(oh);
    const uint8_t* const end = routes_end_;
    const int64_t next_step = p_.routes.line_bytes;
    const int64_t bytes = 8 * t_.groups;
    const int64_t out = out_;
    const int64_t stride = p_.height().stride;
    const int64_t least = rows_.begin;  // where windows that are not clipped start
    const int64_t most = rows_.end - p_.height().extent();
    const uint8_t all = BitsOf({0, p_.height().kernel});
    int64_t start = p_.height().start(oh);
    auto row_at = FirstOffsets();
    auto bad = hn::Zero(d8);
    for (int64_t row = 0; row < count; ++row, to += out, next += next_step, start += stride) {
      const uint8_t* HWY_RESTRICT line = end - next >= bytes ? next : CopyLine(next);
      const auto allowed = hn::Set(d8, start >= least && start <= most ? all : BitsOf(ClippedTaps(start)));
      auto at = row_at;
      for (int64_t i = 0; i < out; i += 16) {
        const auto packed = hn::LoadU(d8h, line + i / 2);
        const auto even = hn::And(packed, nibble);
        const auto odd = hn::ShiftRight<4>(packed);
        const auto codes = hn::Combine(d8, hn::InterleaveUpper(d8h, even, odd), hn::InterleaveLower(d8h, even, odd));
        const auto low = LookUpBytes(low_table, codes);
        const auto high = LookUpBytes(high_table, codes);
        bad = hn::Or(bad, hn::AndNot(hn::Or(hn::LoadU(d8, columns + i), allowed), LookUpBytes(bits_table, codes)));
        hn::StoreU(hn::Add(at, hn::BitCast(d16, hn::InterleaveLower(d8, low, high))), d16, to + i);
        at = hn::Add(at, step);
        hn::StoreU(hn::Add(at, hn::BitCast(d16, hn::InterleaveUpper(d8, low, high))), d16, to + i + 8);
        at = hn::Add(at, step);
      }
      row_at = hn::Add(row_at, down);
    }
    return hn::AllTrue(d8, hn::Eq(bad, hn::Zero(d8)));
  }

  // A code is divided by the window's width, in 16-bit lanes.
  HWY_NOINLINE bool ByteOffsets(int64_t oh, int64_t count) const {
    const D16 d;
    const hn::FixedTag<uint8_t, 8> d8;
    const Axis& w = p_.width();
    const int64_t width = w.kernel;
    const auto taps_per_row = hn::Set(d, static_cast<uint16_t>(width));
    const auto reciprocal = hn::Set(d, static_cast<uint16_t>(65535 / width + 1));  // n / width, for n < 256
    const auto row_step = hn::Set(d, static_cast<uint16_t>(p_.height().dilation * in_));
    const auto across = hn::Set(d, static_cast<uint16_t>(w.dilation));
    const auto step = hn::Set(d, static_cast<uint16_t>(8 * w.stride));
    const auto down = hn::Set(d, static_cast<uint16_t>(p_.height().stride * in_));
    const uint16_t* HWY_RESTRICT lane_lo = s_.lane_lo;
    const uint16_t* HWY_RESTRICT lane_span = s_.lane_span;
    uint16_t* HWY_RESTRICT to = s_.offsets;
    const int64_t out = out_;
    const auto tail = hn::FirstN(d, static_cast<size_t>((out - 1) % 8 + 1));
    auto row_at = FirstOffsets();
    auto bad = hn::Zero(d);
    for (int64_t row = 0; row < count; ++row, to += out) {
      const Range taps = TapsInside(oh + row);
      if (taps.size() == 0) return false;
      const uint8_t* HWY_RESTRICT line = CodesAsBytes(oh + row);
      const auto first = hn::Set(d, static_cast<uint16_t>(taps.begin));
      const auto more = hn::Set(d, static_cast<uint16_t>(taps.size() - 1));
      auto outside = hn::Zero(d);
      auto at = row_at;
      for (int64_t i = 0; i < out; i += 8) {
        bad = hn::Or(bad, outside);
        const auto tap = hn::PromoteTo(d, hn::LoadU(d8, line + i));
        const auto tap_row = width == 1 ? tap : hn::MulHigh(tap, reciprocal);
        const auto column = hn::Sub(tap, hn::Mul(tap_row, taps_per_row));
        const auto past = hn::SaturatedSub(hn::Sub(column, hn::LoadU(d, lane_lo + i)), hn::LoadU(d, lane_span + i));
        outside = hn::Or(past, hn::SaturatedSub(hn::Sub(tap_row, first), more));
        hn::StoreU(hn::Add(at, hn::Add(hn::Mul(tap_row, row_step), hn::Mul(column, across))), d, to + i);
        at = hn::Add(at, step);
      }
      bad = hn::Or(bad, hn::IfThenElseZero(tail, outside));
      row_at = hn::Add(row_at, down);
    }
    return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
  }

  HWY_INLINE const uint8_t* CodesAsBytes(int64_t oh) const {
    if (p_.routes.bits == 8) {
      const uint8_t* const line = Line(oh);
      return routes_end_ - line >= CeilDiv(out_, 8) * 8 ? line : CopyLine(line);
    }
    SpreadCodes(p_.routes.bits, Line(oh), out_, s_.line);
    return s_.line;
  }

  // Where the first eight windows of the block start.
  HWY_INLINE hn::Vec<D16> FirstOffsets() const {
    const D16 d;
    return hn::Mul(hn::Iota(d, 0), hn::Set(d, static_cast<uint16_t>(p_.width().stride)));
  }

  // ---- Any codes: what lands outside goes nowhere.

  HWY_NOINLINE void AddOneByOne(V* to, const T* values, int64_t oh) const {
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    const Range rows = TapsInside(oh);
    const uint8_t* const line = Line(oh);
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
  const uint8_t* const routes_end_ = args_.routes + p_.routes.bytes();
  uint8_t tap_bits_[16] = {}, tap_low_[16] = {}, tap_high_[16] = {};  // nibbles: by tap, its bits and its offset
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
