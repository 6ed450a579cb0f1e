// Route codes from lanes in memory to the packed lines of spec/routes.h: 2, 4, 8, 16 or 32 bits per output.
//
// The lanes are unsigned integers of any width (u8, u16, u32, u64), one per output; kernels keep them in a small buffer
// that stays in L1, and convert a line, or a piece of one that starts at a byte, at a time. Where codes lie beside
// keys, a Group holds both.

// Per-target include guard
#if defined(POOLGRAD_CPU_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_CODES_INL_H_
#undef POOLGRAD_CPU_CODES_INL_H_
#else
#define POOLGRAD_CPU_CODES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cpu/simd/order-inl.h"
#include "spec/problem.h"
#include "spec/routes.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// A full vector of To lanes, truncated from that many L lanes at `from`, in order.
template <class To, class L>
HWY_INLINE hn::Vec<hn::ScalableTag<To>> LoadTruncated(const L* from) {
  const hn::ScalableTag<To> to;
  if constexpr (sizeof(To) == sizeof(L)) {
    return hn::LoadU(to, from);
  } else {
    using Middle = hwy::MakeUnsigned<hn::TFromD<hn::RepartitionToWide<hn::ScalableTag<To>>>>;
    const size_t step = hn::Lanes(hn::ScalableTag<Middle>());
    const auto low = LoadTruncated<Middle>(from);
    const auto high = LoadTruncated<Middle>(from + step);
    return hn::ConcatEven(to, hn::BitCast(to, high), hn::BitCast(to, low));
  }
}

// Packs a vector of u8 codes to kBits (2, 4 or 8) each and stores Lanes * kBits / 8 bytes.
template <int kBits>
HWY_INLINE void StorePacked(hn::Vec<hn::ScalableTag<uint8_t>> codes, uint8_t* to) {
  const hn::ScalableTag<uint8_t> d8;
  if constexpr (kBits == 8) {
    hn::StoreU(codes, d8, to);
  } else if constexpr (kBits == 4) {
    const hn::ScalableTag<uint16_t> d16;
    const auto v = hn::BitCast(d16, hn::And(codes, hn::Set(d8, 15)));
    const hn::Rebind<uint8_t, decltype(d16)> half;
    hn::StoreU(hn::TruncateTo(half, hn::Or(v, hn::ShiftRight<4>(v))), half, to);
  } else {
    const hn::ScalableTag<uint32_t> d32;
    const auto v = hn::BitCast(d32, hn::And(codes, hn::Set(d8, 3)));
    const auto pairs = hn::Or(v, hn::ShiftRight<6>(v));
    const auto quads = hn::Or(pairs, hn::ShiftRight<12>(pairs));
    const hn::Rebind<uint8_t, decltype(d32)> quarter;
    hn::StoreU(hn::TruncateTo(quarter, quads), quarter, to);
  }
}

template <int kBits, class L>
void PackNarrow(const L* codes, int64_t n, uint8_t* line) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<uint8_t>()));
  constexpr int64_t kPerByte = 8 / kBits;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StorePacked<kBits>(LoadTruncated<uint8_t>(codes + i), line + i / kPerByte);
  if (i == n) return;
  if (i > 0 && (n - lanes) % kPerByte == 0) {  // the last vector, over the one before it
    StorePacked<kBits>(LoadTruncated<uint8_t>(codes + n - lanes), line + (n - lanes) / kPerByte);
    return;
  }
  if (n - i <= 8) {  // short lines are many: no detour through buffers
    for (; i < n; i += kPerByte) {
      uint32_t byte = 0;
      for (int64_t k = 0; k < kPerByte && i + k < n; ++k) {
        byte |= (static_cast<uint32_t>(codes[i + k]) & ((1u << kBits) - 1u)) << (k * kBits);
      }
      line[i / kPerByte] = static_cast<uint8_t>(byte);
    }
    return;
  }
  HWY_ALIGN L last[hn::MaxLanes(hn::ScalableTag<uint8_t>())] = {};
  HWY_ALIGN uint8_t packed[hn::MaxLanes(hn::ScalableTag<uint8_t>())];
  std::memcpy(last, codes + i, static_cast<size_t>(n - i) * sizeof(L));
  StorePacked<kBits>(LoadTruncated<uint8_t>(last), packed);
  std::memcpy(line + i / kPerByte, packed, static_cast<size_t>((n - i + kPerByte - 1) / kPerByte));
}

// U is uint16_t or uint32_t: codes of 16 and 32 bits, little-endian as every target is.
template <class U, class L>
void PackWide(const L* codes, int64_t n, uint8_t* line) {
  int64_t i = 0;
  if constexpr (sizeof(L) >= sizeof(U)) {
    const hn::ScalableTag<U> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const hn::Repartition<uint8_t, decltype(d)> d8;
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::BitCast(d8, LoadTruncated<U>(codes + i)), d8, line + i * static_cast<int64_t>(sizeof(U)));
    }
  }
  for (; i < n; ++i) {
    const U code = codes[i] == static_cast<L>(~L{0}) ? static_cast<U>(~U{0}) : static_cast<U>(codes[i]);
    std::memcpy(line + i * static_cast<int64_t>(sizeof(U)), &code, sizeof(U));
  }
}

// Packs n codes into the line (or the piece of one) that begins at `line`. Only the low `bits` of each are kept; where
// the line's codes are wider than the lanes, all ones (no route) stays all ones.
template <class L>
void PackCodes(const L* codes, int64_t n, int32_t bits, uint8_t* line) {
  switch (bits) {
    case 2:
      return PackNarrow<2>(codes, n, line);
    case 4:
      return PackNarrow<4>(codes, n, line);
    case 8:
      return PackNarrow<8>(codes, n, line);
    case 16:
      return PackWide<uint16_t>(codes, n, line);
    default:
      return PackWide<uint32_t>(codes, n, line);
  }
}

// Several vectors of codes as one of bytes, in order.
template <class U>
HWY_INLINE hn::Vec<hn::ScalableTag<uint8_t>> BytesOf(const hn::Vec<hn::ScalableTag<U>>* codes) {
  if constexpr (sizeof(U) == 1) {
    return codes[0];
  } else {
    using Narrower =
        std::conditional_t<sizeof(U) == 2, uint8_t, std::conditional_t<sizeof(U) == 4, uint16_t, uint32_t>>;
    const hn::ScalableTag<Narrower> d;
    hn::Vec<decltype(d)> narrowed[sizeof(Narrower)];
    _Pragma("GCC unroll 16") for (size_t i = 0; i < sizeof(Narrower); ++i) {
      narrowed[i] = hn::ConcatEven(d, hn::BitCast(d, codes[2 * i + 1]), hn::BitCast(d, codes[2 * i]));
    }
    return BytesOf<Narrower>(narrowed);
  }
}

// As many vectors of keys as fill one vector of codes.
template <class S, class C = uint8_t>
inline constexpr int kGroup = sizeof(S) / sizeof(C);

// kVectors (1 or kGroup) vectors of neighbouring outputs, and their codes: bytes, or twice as wide.
template <class S, bool kRoutes, int kVectors, class C = uint8_t>
struct Group {
  using OfOne = hn::Rebind<C, hn::ScalableTag<S>>;
  using D8 = std::conditional_t<kVectors == kGroup<S, C>, hn::ScalableTag<C>, OfOne>;
  using Codes = hn::Vec<D8>;
  VecOf<S> key[kVectors];
  Codes code;

  HWY_INLINE Group() {}  // GCC compiles implicit constructors without the target's instructions

  // All ones in the codes of true lanes.
  static HWY_INLINE Codes Bytes(const CodeVec<S>* masks) {
    if constexpr (sizeof(C) == sizeof(S)) {
      return masks[0];
    } else if constexpr (kVectors == kGroup<S, C> && sizeof(C) == 1) {
      return BytesOf<Code<S>>(masks);
    } else if constexpr (kVectors == kGroup<S, C>) {
      static_assert(kVectors == 2);
      return hn::ConcatEven(D8(), hn::BitCast(D8(), masks[1]), hn::BitCast(D8(), masks[0]));
    } else {
      return hn::TruncateTo(D8(), masks[0]);
    }
  }

  // a's codes where the masks of all vectors are true, else b's. AVX-512 joins masks as they are: that takes half as
  // long as vectors made of them and narrowed.
  static HWY_INLINE Codes Select(const hn::Mask<hn::ScalableTag<S>>* masks, Codes a, Codes b) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (sizeof(S) <= 4) {
      using Bits = decltype(hn::Mask<D8>::raw);
      if constexpr (kVectors == 1) {
        return hn::IfThenElse(hn::Mask<D8>{static_cast<Bits>(masks[0].raw)}, a, b);
      } else if constexpr (sizeof(S) == 2) {
        return hn::IfThenElse(hn::Mask<D8>{_mm512_kunpackd(masks[1].raw, masks[0].raw)}, a, b);
      } else {
        const __mmask32 low = _mm512_kunpackw(masks[1].raw, masks[0].raw);
        if constexpr (kVectors == 2) {
          return hn::IfThenElse(hn::Mask<D8>{low}, a, b);
        } else {
          const __mmask32 high = _mm512_kunpackw(masks[3].raw, masks[2].raw);
          return hn::IfThenElse(hn::Mask<D8>{_mm512_kunpackd(high, low)}, a, b);
        }
      }
    }
#endif
    if constexpr (sizeof(C) == sizeof(S)) {
      return hn::IfThenElse(hn::RebindMask(D8(), masks[0]), a, b);
    } else {
      CodeVec<S> all_ones[kVectors];
      POOLGRAD_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        all_ones[v] = hn::BitCast(hn::ScalableTag<Code<S>>(), hn::VecFromMask(hn::ScalableTag<S>(), masks[v]));
      }
      return hn::IfVecThenElse(Bytes(all_ones), a, b);
    }
  }

  // The better of this and `other`, which comes later.
  HWY_INLINE void Meet(const VecOf<S>* other, Codes other_code) {
    if constexpr (kRoutes) {
      hn::Mask<hn::ScalableTag<S>> beats[kVectors];
      POOLGRAD_UNROLL
      for (int v = 0; v < kVectors; ++v) beats[v] = Above<S>(other[v], key[v]);
      code = Select(beats, other_code, code);
    }
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) key[v] = Greatest<S>(other[v], key[v]);
  }

  // Shows the keys to the watch, as those that reach y.
  HWY_INLINE void SeenBy(Watch<S>& watch) const {
    [&]<int... kV>(std::integer_sequence<int, kV...>) POOLGRAD_LAMBDA { (watch.template SeeWinner<kV>(key[kV]), ...); }
    (std::make_integer_sequence<int, kVectors>());
  }

  // No code where the rectifier drops the winner.
  HWY_INLINE void Drop(const Watch<S>& watch) {
    CodeVec<S> dropped[kVectors];
    POOLGRAD_UNROLL
    for (int v = 0; v < kVectors; ++v) dropped[v] = watch.Dropped(key[v]);
    code = hn::Or(code, Bytes(dropped));
  }

  HWY_INLINE void MeetLater(const Group& other) { Meet(other.key, other.code); }
  HWY_INLINE void MeetEarlier(Group other) {
    other.Meet(key, code);
    *this = other;
  }
};

// One vector with codes as wide.
template <class S, bool kRoutes>
using Best = Group<S, kRoutes, 1, Code<S>>;

// Calls step(j, vectors) for groups and single vectors that cover `run` elements. The last ones overlap those before
// them; only in a run shorter than a vector do they go beyond its end.
template <class S, class C = uint8_t, class Step>
HWY_INLINE void ForGroups(int64_t run, const Step& step) {
  const int64_t lanes = LaneCount<S>();
  constexpr int kVectors = kGroup<S, C>;
  const int64_t group = kVectors * lanes;
  int64_t j = 0;
  for (; j + group <= run; j += group) step(j, std::integral_constant<int, kVectors>());
  if (kVectors > 1 && j > 0 && j + lanes < run) {
    step(run - group, std::integral_constant<int, kVectors>());
    return;
  }
  for (; j < run; j += lanes) step(run < lanes ? 0 : std::min(j, run - lanes), std::integral_constant<int, 1>());
}

// n lines of kLine codes, each less than a byte.
template <int kLine, class U>
void PackBytes(const U* codes, int64_t n, const RouteFormat& f, uint8_t* to) {
  const auto mask = static_cast<uint32_t>(f.none());
  for (int64_t i = 0; i < n; ++i, codes += kLine) {
    uint32_t byte = 0;
    for (int c = 0; c < kLine; ++c) byte |= (static_cast<uint32_t>(codes[c]) & mask) << (c * f.bits);
    to[i] = static_cast<uint8_t>(byte);
  }
}

// At most 128 bytes, of which the compiler need not know how many.
HWY_INLINE void CopyFew(const void* source, int64_t bytes, void* result) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(result);
  if (bytes >= 8) {
    for (int64_t i = 0; i + 8 <= bytes; i += 8) std::memcpy(to + i, from + i, 8);
    std::memcpy(to + bytes - 8, from + bytes - 8, 8);
  } else if (bytes >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + bytes - 4, from + bytes - 4, 4);
  } else {
    for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

// n lines whose last bytes are not full. Where short ones are many, they are packed as one, with zeros between them.
template <class U>
void PackRagged(const U* codes, int64_t n, const RouteFormat& f, uint8_t* to) {
  constexpr int64_t kMost = 1024;
  const int64_t pitch = f.line_bytes * 8 / f.bits, bytes = f.line * static_cast<int64_t>(sizeof(U));
  if (bytes > 128 || n < 8) {
    for (int64_t i = 0; i < n; ++i) PackCodes(codes + i * f.line, f.line, f.bits, to + i * f.line_bytes);
    return;
  }
  const int64_t together = std::min(n, kMost / pitch);
  HWY_ALIGN U apart[kMost];
  std::memset(apart, 0, static_cast<size_t>(together * pitch) * sizeof(U));
  for (; n > 0; n -= together) {
    const int64_t some = std::min(n, together);
    for (int64_t i = 0; i < some; ++i, codes += f.line) CopyFew(codes, bytes, apart + i * pitch);
    PackCodes(apart, some * pitch, f.bits, to);
    to += some * f.line_bytes;
  }
}

// Codes of outputs `ow` of a row, from scratch to the row's lines: one line where channels come first, one per ow where
// last.
template <class U>
void PackRow(const Problem& p, const U* codes, Range ow, uint8_t* routes) {
  const RouteFormat& f = p.routes;
  if (!p.channels_last()) {
    PackCodes(codes, ow.size(), f.bits, routes + ow.begin * f.bits / 8);
  } else if (f.line * f.bits % 8 == 0) {
    PackCodes(codes, ow.size() * f.line, f.bits, routes + LineOffset(f, ow.begin));
  } else if (f.line * f.bits < 8) {
    uint8_t* const to = routes + ow.begin;
    if (f.line == 1) return PackBytes<1>(codes, ow.size(), f, to);
    return f.line == 2 ? PackBytes<2>(codes, ow.size(), f, to) : PackBytes<3>(codes, ow.size(), f, to);
  } else {
    PackRagged(codes, ow.size(), f, routes + LineOffset(f, ow.begin));
  }
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
