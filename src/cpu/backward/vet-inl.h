// Do all codes of a run name taps that land inside the input? Routes may hold anything, and what is added straight into
// dx must not land outside it. Valid routes pass, so one answer per run is enough; a run that fails is added one by
// one.
//
// Packed codes of small windows are looked up: a byte per tap with a bit for its row and a bit for its column, which
// must be among those allowed. Codes of a byte are divided by the window's width, in 16-bit lanes.
#if defined(POOLGRAD_CPU_BACKWARD_VET_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_VET_INL_H_
#undef POOLGRAD_CPU_BACKWARD_VET_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_VET_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "cpu/backward/lanes-inl.h"
#include "spec/problem.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// The tap columns of a window at column `start` that lie inside the input.
inline Range ColumnsInside(const Axis& w, int64_t start) {
  if (start >= 0 && start + w.extent() <= w.in) return {0, w.kernel};
  const int64_t begin = start >= 0 ? 0 : std::min(w.kernel, CeilDiv(-start, w.dilation));
  const int64_t end = start >= w.in ? begin : std::clamp(CeilDiv(w.in - start, w.dilation), begin, w.kernel);
  return {begin, end};
}

// ---- Packed codes, four bits each.

// Whether a bit per tap row and a bit per tap column fit a byte, with one to spare for codes that name no tap.
inline bool FitsTapBits(const Problem& p) {
  return p.routes.bits == 4 && p.depth().kernel == 1 &&
         (p.height().kernel + p.width().kernel < 8 || (p.taps() == 16 && p.width().kernel == 4));
}

// Bits [begin, end) of the rows: from bit 0. The columns follow them.
inline uint8_t BitsOf(Range r) { return static_cast<uint8_t>((1u << r.end) - (1u << std::min(r.begin, r.end))); }

inline void FindTapBits(const Problem& p, uint8_t (&bits)[16]) {
  const int64_t kh = p.height().kernel;
  const int64_t kw = p.width().kernel;
  for (int64_t tap = 0; tap < 16; ++tap) {
    bits[tap] = static_cast<uint8_t>(tap < kh * kw ? 1u << (tap / kw) | 1u << (kh + tap % kw) : 0x80u);
  }
}

// Of two packed codes, those that land outside are left in `bad`. `even` and `odd`: what elements 2i and 2i + 1 of the
// run allow by themselves (all where a run of odd length has no element); `allowed`: what all do.
template <class V8>
HWY_INLINE V8 PackedOutside(V8 tap_bits, V8 packed, const uint8_t* even, const uint8_t* odd, V8 allowed) {
  const hn::FixedTag<uint8_t, 16> d;
  const auto low = LookUpBytes(tap_bits, hn::And(packed, hn::Set(d, 15)));
  const auto high = LookUpBytes(tap_bits, hn::ShiftRight<4>(packed));
  return hn::Or(hn::AndNot(hn::Or(hn::LoadU(d, even), allowed), low),
                hn::AndNot(hn::Or(hn::LoadU(d, odd), allowed), high));
}

// `bytes` of packed codes.
HWY_INLINE bool PackedInside(const uint8_t (&tap_bits)[16], const uint8_t* HWY_RESTRICT codes, int64_t bytes,
                             const uint8_t* HWY_RESTRICT even, const uint8_t* HWY_RESTRICT odd, uint8_t allowed) {
  const hn::FixedTag<uint8_t, 16> d;
  const auto table = hn::LoadU(d, tap_bits);
  const auto all = hn::Set(d, allowed);
  auto bad = hn::Zero(d);
  int64_t i = 0;
  for (; i + 16 <= bytes; i += 16) {
    bad = hn::Or(bad, PackedOutside(table, hn::LoadU(d, codes + i), even + i, odd + i, all));
  }
  if (i < bytes && bytes >= 16) {  // the last ones, some of them again
    i = bytes - 16;
    bad = hn::Or(bad, PackedOutside(table, hn::LoadU(d, codes + i), even + i, odd + i, all));
  } else if (i < bytes) {
    HWY_ALIGN uint8_t few[16] = {};
    std::memcpy(few, codes, static_cast<size_t>(bytes));
    bad = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(bytes)),
                             PackedOutside(table, hn::Load(d, few), even, odd, all));
  }
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

// ---- Codes of a byte each.

// All below `taps`.
HWY_INLINE bool BytesBelow(const uint8_t* HWY_RESTRICT codes, int64_t n, int64_t taps) {
  const hn::FixedTag<uint8_t, 16> d;
  auto most = hn::Zero(d);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) most = hn::Max(most, hn::LoadU(d, codes + i));
  bool good = hn::AllTrue(d, hn::Lt(most, hn::Set(d, static_cast<uint8_t>(taps))));
  for (; i < n; ++i) good &= codes[i] < taps;
  return good;
}

// Every code's row of the window lies in `rows` and its column in [lo, lo + span], per element or the same for all.
template <bool kSame>
HWY_INLINE bool BytesInside(const uint8_t* HWY_RESTRICT codes, int64_t n, int64_t width, Range rows,
                            const uint16_t* HWY_RESTRICT lo, const uint16_t* HWY_RESTRICT span) {
  const hn::FixedTag<uint16_t, 8> d;
  const hn::FixedTag<uint8_t, 8> d8;
  const auto taps_per_row = hn::Set(d, static_cast<uint16_t>(width));
  const auto reciprocal = hn::Set(d, static_cast<uint16_t>(65535 / width + 1));  // n / width, for n < 256
  const auto first = hn::Set(d, static_cast<uint16_t>(rows.begin));
  const auto more = hn::Set(d, static_cast<uint16_t>(rows.size() - 1));
  auto bad = hn::Zero(d);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const auto tap = hn::PromoteTo(d, hn::LoadU(d8, codes + i));
    const auto row = width == 1 ? tap : hn::MulHigh(tap, reciprocal);
    const auto column = hn::Sub(tap, hn::Mul(row, taps_per_row));
    const auto from = kSame ? hn::Set(d, lo[0]) : hn::LoadU(d, lo + i);
    const auto most = kSame ? hn::Set(d, span[0]) : hn::LoadU(d, span + i);
    bad = hn::Or(bad, hn::SaturatedSub(hn::Sub(row, first), more));
    bad = hn::Or(bad, hn::SaturatedSub(hn::Sub(column, from), most));
  }
  bool good = hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
  for (; i < n; ++i) {
    const int64_t row = codes[i] / width;
    const uint16_t column = static_cast<uint16_t>(codes[i] % width - lo[kSame ? 0 : i]);
    good &= row >= rows.begin && row < rows.end && column <= span[kSame ? 0 : i];
  }
  return good;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_VET_INL_H_
