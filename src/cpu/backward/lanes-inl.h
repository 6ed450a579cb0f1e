// The vector side of reading dy and routes and of writing dx: values widened to the type sums are made in, codes
// unpacked to one per lane, sums rounded once. Everything is spread into rows of scratch once, so that the kernels'
// inner loops read plain arrays whatever the element type and the width of the codes.
//
// Assumes little-endian memory (as the route format does). Rows of codes are overwritten past their end, by less than
// kRowSlack.
#if defined(POOLGRAD_CPU_BACKWARD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_LANES_INL_H_
#undef POOLGRAD_CPU_BACKWARD_LANES_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/dtype.h"
#include "cpu/simd/types-inl.h"
#include "spec/problem.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

inline constexpr int64_t kRowLead = 64;   // elements a row of codes may be written before its start
inline constexpr int64_t kRowSlack = 64;  // and after its end

// ---- Values of one row, spread to lanes.

// As a sum starts: 0 + value, in the wide type.
template <class T>
void SpreadSum(const void* from, int64_t count, void* to) {
  using V = Wide<T>;
  const hn::ScalableTag<V> d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  const T* source = static_cast<const T*>(from);
  V* out = static_cast<V*>(to);
  const auto zero = hn::Zero(d);
  int64_t i = 0;
  for (; i + n <= count; i += n) hn::StoreU(hn::Add(LoadWide(d, source + i), zero), d, out + i);
  for (; i < count; ++i) out[i] = Widen(source[i]) + V{0};
}

// ---- Sums to dx, each rounded once.

// Two vectors of f32 to one of bf16; wrong for NaN.
template <class DF>
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, DF>> BF16FromOrdinary(DF /*d*/, hn::Vec<DF> low, hn::Vec<DF> high) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Repartition<uint16_t, DF> d16;
  const auto half = hn::Set(du, 0x7FFFu);
  const auto last = hn::Set(du, 0x10000u);  // the last bit kept: half of it is rounded to even
  const auto l = hn::BitCast(du, low);
  const auto h = hn::BitCast(du, high);
  const auto rounded_l = hn::Add(l, hn::Sub(half, hn::VecFromMask(du, hn::TestBit(l, last))));
  const auto rounded_h = hn::Add(h, hn::Sub(half, hn::VecFromMask(du, hn::TestBit(h, last))));
  return hn::ConcatOdd(d16, hn::BitCast(d16, rounded_h), hn::BitCast(d16, rounded_l));
}

// n sums; the type of each is Wide<T>.
template <class T>
void RoundRun(const Wide<T>* HWY_RESTRICT from, int64_t n, T* HWY_RESTRICT to) {
  const hn::ScalableTag<Wide<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if constexpr (std::is_same_v<T, BF16>) {
    const hn::Repartition<uint16_t, decltype(d)> d16;
    const auto zero = hn::Zero(d);
    auto watch_low = zero;  // NaN once a sum is not finite
    auto watch_high = zero;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto low = hn::LoadU(d, from + i);
      const auto high = hn::LoadU(d, from + i + lanes);
      watch_low = hn::MulAdd(low, zero, watch_low);
      watch_high = hn::MulAdd(high, zero, watch_high);
      hn::StoreU(BF16FromOrdinary(d, low, high), d16, reinterpret_cast<uint16_t*>(to) + i);
    }
    if (!hn::AllFalse(d, hn::IsNaN(hn::Add(watch_low, watch_high)))) i = 0;  // once more, slowly
  }
  for (; i + lanes <= n; i += lanes) StoreNarrow(d, hn::LoadU(d, from + i), to + i);
  for (; i < n; ++i) to[i] = Narrow<T>(from[i]);
}

// ---- Codes of one line, one per lane.

// A vector of codes, a byte each, of as many packed ones of kBits (2 or 4). A byte's codes are moved to the bytes of a
// lane that is as wide as they are many.
template <int kBits, class D8 = hn::ScalableTag<uint8_t>>
HWY_INLINE hn::Vec<D8> Unpacked(const uint8_t* from) {
  using Lane = std::conditional_t<kBits == 4, uint16_t, uint32_t>;
  const hn::Repartition<Lane, D8> d;
  auto v = hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint8_t, decltype(d)>(), from));
  if constexpr (kBits == 2) v = hn::Or(v, hn::ShiftLeft<12>(v));
  v = hn::Or(v, hn::ShiftLeft<8 - kBits>(v));
  return hn::And(hn::BitCast(D8(), v), hn::Set(D8(), uint8_t{(1 << kBits) - 1}));
}

template <int kBits, class Code>
void SpreadPacked(const uint8_t* from, int64_t count, Code* to) {
  const hn::ScalableTag<uint8_t> d8;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d8));
  const auto spread = [&](const uint8_t* packed, int64_t i) HWY_ATTR {
    if constexpr (sizeof(Code) == 1) {
      hn::StoreU(Unpacked<kBits>(packed), d8, to + i);
    } else {
      HWY_ALIGN uint8_t bytes[hn::MaxLanes(d8)];
      hn::Store(Unpacked<kBits>(packed), d8, bytes);
      std::copy_n(bytes, n, to + i);
    }
  };
  int64_t i = 0;
  for (; i + n <= count; i += n) spread(from + i * kBits / 8, i);
  if (i < count) {
    uint8_t last[hn::MaxLanes(d8)] = {};
    std::memcpy(last, from + i * kBits / 8, static_cast<size_t>((count - i) * kBits + 7) / 8);
    spread(last, i);
  }
}

// A code too wide for its lane names no tap (the kernels take no more taps than a lane can tell apart).
template <class Code, class Wider>
void SpreadWide(const uint8_t* from, int64_t count, Code* to) {
  if constexpr (sizeof(Code) == sizeof(Wider)) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(Wider));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    Wider code;
    std::memcpy(&code, from + i * static_cast<int64_t>(sizeof(Wider)), sizeof(Wider));
    to[i] = static_cast<Code>(sizeof(Code) < sizeof(Wider) && code > std::numeric_limits<Code>::max()
                                  ? std::numeric_limits<Code>::max()
                                  : code);
  }
}

// Codes [0, count) of the packed codes at `from`, a byte boundary. Writes up to kRowSlack codes more.
template <class Code>
void SpreadCodes(int bits, const uint8_t* from, int64_t count, Code* to) {
  switch (bits) {
    case 2:
      return SpreadPacked<2>(from, count, to);
    case 4:
      return SpreadPacked<4>(from, count, to);
    case 8:
      std::copy_n(from, count, to);
      return;
    case 16:
      return SpreadWide<Code, uint16_t>(from, count, to);
    default:
      return SpreadWide<Code, uint32_t>(from, count, to);
  }
}

// Codes of `lines` whole lines that follow each other. `spare` has room for twice as many codes and kRowSlack: where
// lines do not fill their bytes, the bytes are spread there first and the gaps are closed then.
template <class Code>
void ReadLines(const RouteFormat& f, const uint8_t* first, int64_t lines, Code* to, Code* spare) {
  if (f.line * f.bits % 8 == 0) return SpreadCodes(f.bits, first, lines * f.line, to);
  if (f.line == 1) {  // a byte each
    SpreadCodes(8, first, lines, to);
    const Code mask = static_cast<Code>(f.none());
    for (int64_t i = 0; i < lines; ++i) to[i] = static_cast<Code>(to[i] & mask);
    return;
  }
  const int64_t filled = f.line_bytes * 8 / f.bits;  // codes that a line's bytes could hold
  SpreadCodes(f.bits, first, lines * filled, spare);
  const hn::FixedTag<uint8_t, 16> d8;
  const int64_t together = 16 / static_cast<int64_t>(sizeof(Code)) / filled;  // lines of one vector
  if (sizeof(Code) == 1 && together > 0) {
    HWY_ALIGN uint8_t kept[16] = {};
    for (int64_t k = 0; k < together * f.line; ++k) kept[k] = static_cast<uint8_t>(k / f.line * filled + k % f.line);
    const auto close = hn::Load(d8, kept);
    const int64_t step = together * f.line;
    for (int64_t i = 0; i < lines; i += together, spare += together * filled, to += step) {
      hn::StoreU(hn::TableLookupBytes(hn::LoadU(d8, reinterpret_cast<const uint8_t*>(spare)), close), d8,
                 reinterpret_cast<uint8_t*>(to));
    }
    return;
  }
  for (int64_t i = 0; i < lines; ++i, spare += filled, to += f.line) {
    constexpr int64_t kWord = 8 / sizeof(Code);
    for (int64_t k = 0; k < f.line; k += kWord) std::memcpy(to + k, spare + k, 8);
  }
}

// The codes of `count` positions of outputs from position `ow` of row `row` on (rows in the order of y), of `lanes` of
// their lanes from `lane` on. Where it begins inside a byte, up to 7 codes are written before `to`; behind, up to
// kRowSlack.
template <class Code>
void ReadCodes(const Problem& p, const uint8_t* routes, int64_t row, int64_t ow, int64_t count, int64_t lane,
               int64_t lanes, Code* to, Code* spare) {
  const RouteFormat& f = p.routes;
  if (!p.channels_last()) {
    const int64_t before = ow % 8;
    return SpreadCodes(f.bits, routes + LineOffset(f, row) + (ow - before) * f.bits / 8, before + count, to - before);
  }
  const uint8_t* line = routes + LineOffset(f, row * p.width().out + ow) + lane * f.bits / 8;
  if (lanes == p.channels) return ReadLines(f, line, count, to, spare);
  for (int64_t i = 0; i < count; ++i, line += f.line_bytes, to += lanes) SpreadCodes(f.bits, line, lanes, to);
}

// The same of `rows` rows, which are whole, or one.
template <class Code>
void ReadRows(const Problem& p, const uint8_t* routes, int64_t row, int64_t rows, Range ow, int64_t lane, int64_t lanes,
              Code* to, Code* spare) {
  const int64_t lines = p.channels_last() ? p.width().out : 1;
  const bool whole = ow.size() == p.width().out && (lanes == p.channels || !p.channels_last());
  if (!whole) return ReadCodes(p, routes, row, ow.begin, ow.size(), lane, lanes, to, spare);
  ReadLines(p.routes, routes + LineOffset(p.routes, row * lines), rows * lines, to, spare);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_LANES_INL_H_
