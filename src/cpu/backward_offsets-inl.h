// The codes of a block of output rows become 16-bit offsets: where each output's dy goes, in elements from the block's
// first window. They are vetted meanwhile: a code that names no tap, or a tap outside the input or the band, makes the
// whole block bad.
//
// Packed codes of small windows are looked up: a tap's offset, and a byte with a bit for its row and one for its column,
// which must be among those allowed. Codes of a byte are divided by the window's width: a multiplication and a shift in
// 16-bit lanes, exact for every tap (FindDivision).
#if defined(POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward_lanes-inl.h"
#include "cpu/backward_planes.h"
#include "cpu/backward_vet-inl.h"
#include "spec/problem.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// The tap rows of a window from row `start` on that lie in `rows`.
inline Range TapsInside(const Axis& h, int64_t start, Range rows) {
  const int64_t begin = start >= rows.begin ? 0 : std::min(h.kernel, CeilDiv(rows.begin - start, h.dilation));
  const int64_t end = start >= rows.end ? begin : std::clamp(CeilDiv(rows.end - start, h.dilation), begin, h.kernel);
  return {begin, end};
}

class PlaneOffsets {
  using D8 = hn::FixedTag<uint8_t, 16>;
  using D16 = hn::FixedTag<uint16_t, 8>;

 public:
  PlaneOffsets(const Problem& p, const PlaneTiles& t, const PlaneScratch& s, const uint8_t* routes)
      : p_(p),
        t_(t),
        s_(s),
        routes_(routes),
        routes_end_(routes + p.routes.bytes()),
        in_(p.width().in),
        out_(p.width().out) {
    if (t.nibbles) FindTaps();
    for (int64_t i = 0; i < 16 * t.groups; ++i) SetColumn(i);
  }

  // The offsets of output rows [oh, oh + count) of a plane, row after row and up to 15 more; whether all of them land
  // in input rows `rows`.
  bool Find(int64_t plane, Range rows, int64_t oh, int64_t count, uint16_t* to) const {
    return !t_.nibbles         ? FromBytes(plane, rows, oh, count, to)
           : t_.short_offsets ? FromNibbles<true>(plane, rows, oh, count, to)
                               : FromNibbles<false>(plane, rows, oh, count, to);
  }

  const uint8_t* Line(int64_t plane, int64_t oh) const {
    return routes_ + LineOffset(p_.routes, plane * p_.height().out + oh);
  }

 private:
  void FindTaps() {
    FindTapBits(p_, tap_bits_);
    for (int64_t tap = 0; tap < p_.taps(); ++tap) {
      const int64_t at =
          tap / p_.width().kernel * p_.height().dilation * in_ + tap % p_.width().kernel * p_.width().dilation;
      tap_low_[tap] = static_cast<uint8_t>(at & 255);
      tap_high_[tap] = static_cast<uint8_t>(at >> 8);
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
    const auto low_table = hn::LoadU(d8, tap_low_);
    const auto high_table = hn::LoadU(d8, tap_high_);
    const auto bits_table = hn::LoadU(d8, tap_bits_);
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

  // A tap's row and, as bytes, the first tap of that row: subtracted, it leaves the column.
  HWY_NOINLINE bool FromBytes(int64_t plane, Range rows, int64_t oh, int64_t count, uint16_t* HWY_RESTRICT to) const {
    const D8 d8;
    const D16 d;
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    const auto zero = hn::Zero(d8);
    const auto multiplier = hn::Set(d, static_cast<uint16_t>(t_.division.multiplier));
    const int shift = t_.division.shift;
    const auto width = hn::Set(d, static_cast<uint16_t>(w.kernel));
    const auto across = hn::Set(d, static_cast<uint16_t>(w.dilation));
    const auto row_step = hn::Set(d, static_cast<uint16_t>(h.dilation * in_ - w.dilation * w.kernel));
    const auto step = hn::Set(d, static_cast<uint16_t>(8 * w.stride));
    const auto down = hn::Set(d, static_cast<uint16_t>(h.stride * in_));
    const uint8_t* HWY_RESTRICT columns = s_.columns;
    const uint8_t* HWY_RESTRICT spans = s_.spans;
    const int64_t out = out_;
    const auto tail = hn::FirstN(d8, static_cast<size_t>((out - 1) % 16 + 1));
    auto row_at = FirstOffsets();
    auto bad = zero;
    for (int64_t row = 0; row < count; ++row, to += out) {
      const Range taps = TapsInside(h, h.start(oh + row), rows);
      if (taps.size() == 0) return false;
      const uint8_t* HWY_RESTRICT line = CodesAsBytes(Line(plane, oh + row));
      const auto first = hn::Set(d8, static_cast<uint8_t>(taps.begin * w.kernel));
      const auto more = hn::Set(d8, static_cast<uint8_t>((taps.size() - 1) * w.kernel));
      auto outside = zero;
      auto at = row_at;
      for (int64_t i = 0; i < out; i += 16) {
        bad = hn::Or(bad, outside);
        const auto tap = hn::LoadU(d8, line + i);
        const auto tap_low = hn::BitCast(d, hn::InterleaveLower(d8, tap, zero));
        const auto tap_high = hn::BitCast(d, hn::InterleaveUpper(d8, tap, zero));
        const auto row_low = hn::ShiftRightSame(hn::Mul(tap_low, multiplier), shift);
        const auto row_high = hn::ShiftRightSame(hn::Mul(tap_high, multiplier), shift);
        const auto row_tap = hn::ConcatEven(d8, hn::BitCast(d8, hn::Mul(row_high, width)),
                                            hn::BitCast(d8, hn::Mul(row_low, width)));
        const auto column = hn::Sub(hn::Sub(tap, row_tap), hn::LoadU(d8, columns + i));
        outside = hn::Or(hn::SaturatedSub(column, hn::LoadU(d8, spans + i)),
                         hn::SaturatedSub(hn::Sub(row_tap, first), more));
        hn::StoreU(hn::Add(hn::Add(at, hn::Mul(tap_low, across)), hn::Mul(row_low, row_step)), d, to + i);
        at = hn::Add(at, step);
        hn::StoreU(hn::Add(hn::Add(at, hn::Mul(tap_high, across)), hn::Mul(row_high, row_step)), d, to + i + 8);
        at = hn::Add(at, step);
      }
      bad = hn::Or(bad, hn::IfThenElseZero(tail, outside));
      row_at = hn::Add(row_at, down);
    }
    return hn::AllTrue(d8, hn::Eq(bad, zero));
  }

  HWY_INLINE const uint8_t* CodesAsBytes(const uint8_t* line) const {
    if (p_.routes.bits == 8) return routes_end_ - line >= 16 * t_.groups ? line : CopyLine(line);
    SpreadCodes(p_.routes.bits, line, out_, s_.line);
    return s_.line;
  }

  const Problem& p_;
  const PlaneTiles& t_;
  const PlaneScratch& s_;
  const uint8_t* const routes_;
  const uint8_t* const routes_end_;
  const int64_t in_, out_;
  uint8_t tap_bits_[16] = {}, tap_low_[16] = {}, tap_high_[16] = {};  // nibbles: by tap, its bits and its offset
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_OFFSETS_INL_H_
