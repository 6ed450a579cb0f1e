// The codes of a block of output rows become 16-bit offsets: where each output's dy goes, in elements from the block's
// first window. They are vetted meanwhile: a code that names no tap, or a tap outside the input or the band, makes the
// whole block bad.
//
// Packed codes of small windows are looked up: a tap's offset, and a byte with a bit for its row and one for its
// column, which must be among those allowed. Codes of a byte give the first tap of their row, which subtracted leaves
// the column: looked up for fewer than 32 taps, else by a multiplication and a shift in 16-bit lanes, exact for every
// tap (FindDivision).
#if defined(POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward/lanes-inl.h"
#include "cpu/backward/planes.h"
#include "cpu/backward/vet-inl.h"
#include "spec/problem.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// The tap rows of a window from row `start` on that lie in `rows`.
inline Range TapsInside(const Axis& h, int64_t start, Range rows) {
  if (start >= rows.begin && start + h.extent() <= rows.end) return {0, h.kernel};
  const int64_t begin = start >= rows.begin ? 0 : std::min(h.kernel, CeilDiv(rows.begin - start, h.dilation));
  const int64_t end = start >= rows.end ? begin : std::clamp(CeilDiv(rows.end - start, h.dilation), begin, h.kernel);
  return {begin, end};
}

// What is known of each tap, by lists for fewer than 32 of them.
struct TapLists {
  uint8_t bits[16];           // a bit for its row and one for its column (FindTapBits)
  uint8_t row[32];            // the first tap of its row; 255 for what is no tap
  uint8_t low[32], high[32];  // its offset from its window's start, in elements
};

// table[places[i]] of a table of 32 bytes; 0 or an entry where places[i] is 32 or more.
template <class V8>
HWY_INLINE V8 LookUp32(V8 first, V8 second, V8 places) {
#if HWY_ARCH_ARM_A64
  uint8x16x2_t table;
  table.val[0] = first.raw;
  table.val[1] = second.raw;
  return V8(vqtbl2q_u8(table, places.raw));
#else
  const hn::FixedTag<uint8_t, 16> d;
  const auto place = hn::And(places, hn::Set(d, 15));
  const auto in_first = hn::Eq(hn::And(places, hn::Set(d, 16)), hn::Zero(d));
  return hn::IfThenElse(in_first, LookUpBytes(first, place), LookUpBytes(second, place));
#endif
}

class PlaneOffsets {
  using D8 = hn::FixedTag<uint8_t, 16>;
  using D16 = hn::FixedTag<uint16_t, 8>;
  using V8 = hn::Vec<D8>;
  using V16 = hn::Vec<D16>;

 public:
  PlaneOffsets(const Problem& p, const PlaneTiles& t, const PlaneScratch& s, const uint8_t* routes)
      : p_(p),
        t_(t),
        s_(s),
        routes_(routes),
        routes_end_(routes + p.routes.bytes()),
        in_(p.width().in),
        out_(p.width().out) {
    if (t.listed) ListTaps();
    for (int64_t i = 0; i < 16 * t.groups; ++i) SetColumn(i);
  }

  // The offsets of output rows [oh, oh + count) of a plane, row after row and up to 15 more; whether all of them land
  // in input rows `rows`.
  bool Find(int64_t plane, Range rows, int64_t oh, int64_t count, uint16_t* to) const {
    if (t_.nibbles && t_.short_offsets) return FromNibbles<true>(plane, rows, oh, count, to);
    if (t_.nibbles) return FromNibbles<false>(plane, rows, oh, count, to);
    if (!t_.listed) return FromBytes<DividedTaps>(plane, rows, oh, count, to);
    if (t_.short_offsets) return FromBytes<ListedTaps<true>>(plane, rows, oh, count, to);
    return FromBytes<ListedTaps<false>>(plane, rows, oh, count, to);
  }

  const uint8_t* Line(int64_t plane, int64_t oh) const {
    return routes_ + LineOffset(p_.routes, plane * p_.height().out + oh);
  }

 private:
  void ListTaps() {
    const int64_t width = p_.width().kernel;
    if (t_.nibbles) FindTapBits(p_, lists_.bits);
    for (int64_t tap = 0; tap < 32; ++tap) {
      const bool exists = tap < p_.taps();
      const int64_t at = exists ? tap / width * p_.height().dilation * in_ + tap % width * p_.width().dilation : 0;
      lists_.row[tap] = static_cast<uint8_t>(exists ? tap / width * width : 255);
      lists_.low[tap] = static_cast<uint8_t>(at & 255);
      lists_.high[tap] = static_cast<uint8_t>(at >> 8);
    }
  }

  // What output i of a row allows; past its end, anything.
  void SetColumn(int64_t i) {
    const Axis& w = p_.width();
    const Range inside = i < out_ ? ColumnsInside(w, w.start(i)) : Range{0, w.kernel};
    if (t_.nibbles) {
      s_.columns[i] = i < out_ ? static_cast<uint8_t>(BitsOf(inside) << p_.height().kernel) : uint8_t{255};
    } else {  // no column of a window reaches its width
      s_.columns[i] = static_cast<uint8_t>(inside.size() == 0 ? w.kernel : inside.begin);
      s_.spans[i] = static_cast<uint8_t>(i >= out_ ? 255 : inside.size() == 0 ? 0 : inside.size() - 1);
    }
  }

  // The same codes, where more may be read behind them.
  HWY_NOINLINE const uint8_t* CopyLine(const uint8_t* line) const {
    std::memcpy(s_.line, line, static_cast<size_t>(p_.routes.line_bytes));
    return s_.line;
  }

  // Where the first eight windows of the block start.
  HWY_INLINE hn::Vec<D16> FirstOffsets() const {
    const D16 d;
    return hn::Mul(hn::Iota(d, 0), hn::Set(d, static_cast<uint16_t>(p_.width().stride)));
  }

  // kShort: the offset of a tap from its window's start is a byte.
  template <bool kShort>
  HWY_NOINLINE bool FromNibbles(int64_t plane, Range rows, int64_t oh, int64_t count, uint16_t* HWY_RESTRICT to) const {
    const D8 d8;
    const D16 d16;
    const hn::FixedTag<uint8_t, 8> d8h;
    const auto zero = hn::Zero(d8);
    const auto low_table = hn::LoadU(d8, lists_.low);
    const auto high_table = hn::LoadU(d8, lists_.high);
    const auto bits_table = hn::LoadU(d8, lists_.bits);
    const auto nibble = hn::Set(d8, 15);
    const auto step = hn::Set(d16, static_cast<uint16_t>(8 * p_.width().stride));
    const auto down = hn::Set(d16, static_cast<uint16_t>(p_.height().stride * in_));
    const uint8_t* HWY_RESTRICT columns = s_.columns;
    const uint8_t* next = Line(plane, oh);
    const uint8_t* const end = routes_end_;
    const int64_t next_step = p_.routes.line_bytes;
    const int64_t bytes = 8 * t_.groups;
    const int64_t out = out_;
    const int64_t stride = p_.height().stride;
    const int64_t least = rows.begin;  // where windows that are not clipped start
    const int64_t most = rows.end - p_.height().extent();
    const uint8_t all = BitsOf({0, p_.height().kernel});
    int64_t start = p_.height().start(oh);
    auto row_at = FirstOffsets();
    auto bad = zero;
    for (int64_t row = 0; row < count; ++row, to += out, next += next_step, start += stride) {
      const uint8_t* HWY_RESTRICT line = end - next >= bytes ? next : CopyLine(next);
      const bool whole = start >= least && start <= most;
      const auto allowed = hn::Set(d8, whole ? all : BitsOf(TapsInside(p_.height(), start, rows)));
      auto at = row_at;
      for (int64_t i = 0; i < out; i += 16) {
        const auto packed = hn::ZeroExtendVector(d8, hn::LoadU(d8h, line + i / 2));
        const auto codes = hn::InterleaveLower(d8, hn::And(packed, nibble), hn::ShiftRight<4>(packed));
        const auto low = LookUpBytes(low_table, codes);
        const auto high = kShort ? zero : LookUpBytes(high_table, codes);
        bad = hn::Or(bad, hn::AndNot(hn::Or(hn::LoadU(d8, columns + i), allowed), LookUpBytes(bits_table, codes)));
        hn::StoreU(hn::Add(at, hn::BitCast(d16, hn::InterleaveLower(d8, low, high))), d16, to + i);
        at = hn::Add(at, step);
        hn::StoreU(hn::Add(at, hn::BitCast(d16, hn::InterleaveUpper(d8, low, high))), d16, to + i + 8);
        at = hn::Add(at, step);
      }
      row_at = hn::Add(row_at, down);
    }
    return hn::AllTrue(d8, hn::Eq(bad, zero));
  }

  // Of 16 taps, the first tap of their row and their offsets from the start of their window. What is no tap gets a row
  // behind the last one, or (32 and more, listed) a column behind it.
  class DividedTaps {
   public:
    explicit DividedTaps(const PlaneOffsets& o)
        : multiplier_(Same(o.t_.division.multiplier)),
          width_(Same(o.p_.width().kernel)),
          across_(Same(o.p_.width().dilation)),
          row_step_(Same(o.p_.height().dilation * o.in_ - o.p_.width().dilation * o.p_.width().kernel)),
          shift_(o.t_.division.shift) {}

    HWY_INLINE void Find(V8 tap, V8& row_tap, V16& low, V16& high) const {
      const D8 d8;
      const D16 d;
      const auto tap_low = hn::BitCast(d, hn::InterleaveLower(d8, tap, hn::Zero(d8)));
      const auto tap_high = hn::BitCast(d, hn::InterleaveUpper(d8, tap, hn::Zero(d8)));
      const auto row_low = hn::ShiftRightSame(hn::Mul(tap_low, multiplier_), shift_);
      const auto row_high = hn::ShiftRightSame(hn::Mul(tap_high, multiplier_), shift_);
      row_tap =
          hn::ConcatEven(d8, hn::BitCast(d8, hn::Mul(row_high, width_)), hn::BitCast(d8, hn::Mul(row_low, width_)));
      low = hn::Add(hn::Mul(tap_low, across_), hn::Mul(row_low, row_step_));
      high = hn::Add(hn::Mul(tap_high, across_), hn::Mul(row_high, row_step_));
    }

   private:
    static V16 Same(int64_t value) { return hn::Set(D16(), static_cast<uint16_t>(value)); }
    const V16 multiplier_, width_, across_, row_step_;
    const int shift_;
  };

  template <bool kShort>
  class ListedTaps {
   public:
    explicit ListedTaps(const PlaneOffsets& o)
        : row0_(hn::LoadU(D8(), o.lists_.row)),
          row1_(hn::LoadU(D8(), o.lists_.row + 16)),
          low0_(hn::LoadU(D8(), o.lists_.low)),
          low1_(hn::LoadU(D8(), o.lists_.low + 16)),
          high0_(hn::LoadU(D8(), o.lists_.high)),
          high1_(hn::LoadU(D8(), o.lists_.high + 16)) {}

    HWY_INLINE void Find(V8 tap, V8& row_tap, V16& low, V16& high) const {
      const D8 d8;
      const D16 d;
      row_tap = LookUp32(row0_, row1_, tap);
      const auto lows = LookUp32(low0_, low1_, tap);
      const auto highs = kShort ? hn::Zero(d8) : LookUp32(high0_, high1_, tap);
      low = hn::BitCast(d, hn::InterleaveLower(d8, lows, highs));
      high = hn::BitCast(d, hn::InterleaveUpper(d8, lows, highs));
    }

   private:
    const V8 row0_, row1_, low0_, low1_, high0_, high1_;
  };

  template <class Taps>
  HWY_NOINLINE bool FromBytes(int64_t plane, Range rows, int64_t oh, int64_t count, uint16_t* HWY_RESTRICT to) const {
    const D8 d8;
    const D16 d;
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    const auto zero = hn::Zero(d8);
    const Taps taps(*this);
    const auto step = hn::Set(d, static_cast<uint16_t>(8 * w.stride));
    const auto down = hn::Set(d, static_cast<uint16_t>(h.stride * in_));
    const uint8_t* HWY_RESTRICT columns = s_.columns;
    const uint8_t* HWY_RESTRICT spans = s_.spans;
    const uint8_t* next = Line(plane, oh);
    const uint8_t* const end = routes_end_;
    const int64_t bytes = 16 * t_.groups;
    const bool unpacked = p_.routes.bits == 8;
    const int64_t next_step = p_.routes.line_bytes;
    const int64_t out = out_;
    const int64_t stride = h.stride;
    const int64_t least = rows.begin;  // where windows that are not clipped start
    const int64_t most = rows.end - h.extent();
    const uint8_t last_row = static_cast<uint8_t>((h.kernel - 1) * w.kernel);
    int64_t start = h.start(oh);
    const auto tail = hn::FirstN(d8, static_cast<size_t>((out - 1) % 16 + 1));
    auto row_at = FirstOffsets();
    auto bad = zero;
    for (int64_t row = 0; row < count; ++row, to += out, next += next_step, start += stride) {
      const uint8_t* HWY_RESTRICT line = unpacked && end - next >= bytes ? next : CodesAsBytes(next);
      auto first = zero;
      auto more = hn::Set(d8, last_row);
      if (start < least || start > most) {
        const Range inside = TapsInside(h, start, rows);
        if (inside.size() == 0) return false;
        first = hn::Set(d8, static_cast<uint8_t>(inside.begin * w.kernel));
        more = hn::Set(d8, static_cast<uint8_t>((inside.size() - 1) * w.kernel));
      }
      hwy::Prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(next) + 2048));  // maybe past the end
      auto outside = zero;
      auto at = row_at;
      for (int64_t i = 0; i < out; i += 16) {
        bad = hn::Or(bad, outside);
        const auto tap = hn::LoadU(d8, line + i);
        V8 row_tap;
        V16 low, high;
        taps.Find(tap, row_tap, low, high);
        const auto column = hn::Sub(hn::Sub(tap, row_tap), hn::LoadU(d8, columns + i));
        outside =
            hn::Or(hn::SaturatedSub(column, hn::LoadU(d8, spans + i)), hn::SaturatedSub(hn::Sub(row_tap, first), more));
        hn::StoreU(hn::Add(at, low), d, to + i);
        at = hn::Add(at, step);
        hn::StoreU(hn::Add(at, high), d, to + i + 8);
        at = hn::Add(at, step);
      }
      bad = hn::Or(bad, hn::IfThenElseZero(tail, outside));
      row_at = hn::Add(row_at, down);
    }
    return hn::AllTrue(d8, hn::Eq(bad, zero));
  }

  // A byte each, where more may be read behind them.
  HWY_NOINLINE const uint8_t* CodesAsBytes(const uint8_t* line) const {
    if (p_.routes.bits == 8) return CopyLine(line);
    SpreadCodes(p_.routes.bits, line, out_, s_.line);
    return s_.line;
  }

  const Problem& p_;
  const PlaneTiles& t_;
  const PlaneScratch& s_;
  const uint8_t* const routes_;
  const uint8_t* const routes_end_;
  const int64_t in_, out_;
  TapLists lists_ = {};
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_
