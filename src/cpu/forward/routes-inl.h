// Route codes between lanes in memory and the packed lines of spec/routes.h: 2, 4, 8, 16 or 32 bits per output.
//
// The lanes are unsigned integers of any width (u8, u16, u32, u64), one per output; kernels keep them in a small buffer that
// stays in L1, and convert a line, or a piece of one that starts at a byte, at a time.

// Per-target include guard
#if defined(POOLGRAD_CPU_ROUTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_ROUTES_INL_H_
#undef POOLGRAD_CPU_ROUTES_INL_H_
#else
#define POOLGRAD_CPU_ROUTES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "spec/routes.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

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

// The inverse: a vector of u8 codes from Lanes * kBits / 8 bytes.
template <int kBits>
HWY_INLINE hn::Vec<hn::ScalableTag<uint8_t>> LoadPacked(const uint8_t* from) {
  const hn::ScalableTag<uint8_t> d8;
  if constexpr (kBits == 8) {
    return hn::LoadU(d8, from);
  } else if constexpr (kBits == 4) {
    const hn::ScalableTag<uint16_t> d16;
    const hn::Rebind<uint8_t, decltype(d16)> half;
    const auto v = hn::PromoteTo(d16, hn::LoadU(half, from));
    return hn::And(hn::BitCast(d8, hn::Or(v, hn::ShiftLeft<4>(v))), hn::Set(d8, 15));
  } else {
    const hn::ScalableTag<uint32_t> d32;
    const hn::Rebind<uint8_t, decltype(d32)> quarter;
    const auto v = hn::PromoteTo(d32, hn::LoadU(quarter, from));
    const auto pairs = hn::Or(v, hn::ShiftLeft<12>(v));
    return hn::And(hn::BitCast(d8, hn::Or(pairs, hn::ShiftLeft<6>(pairs))), hn::Set(d8, 3));
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

// Packs n codes into the line (or the piece of one) that begins at `line`. Only the low `bits` of each are kept; where the line's
// codes are wider than the lanes, all ones (no route) stays all ones.
template <class L>
void PackCodes(const L* codes, int64_t n, int32_t bits, uint8_t* line) {
  switch (bits) {
    case 2: return PackNarrow<2>(codes, n, line);
    case 4: return PackNarrow<4>(codes, n, line);
    case 8: return PackNarrow<8>(codes, n, line);
    case 16: return PackWide<uint16_t>(codes, n, line);
    default: return PackWide<uint32_t>(codes, n, line);
  }
}

// Stores a vector of u8 codes as Lanes(u8) lanes of L at `to`.
template <class L>
HWY_INLINE void StoreWidened(hn::Vec<hn::ScalableTag<uint8_t>> codes, L* to) {
  const hn::ScalableTag<uint8_t> d8;
  if constexpr (sizeof(L) == 1) {
    hn::StoreU(codes, d8, to);
  } else {
    HWY_ALIGN uint8_t buffer[hn::MaxLanes(hn::ScalableTag<uint8_t>())];
    hn::Store(codes, d8, buffer);
    using Step = std::conditional_t<sizeof(L) == 8, uint32_t, L>;
    const hn::ScalableTag<Step> d;
    const hn::Rebind<uint8_t, decltype(d)> d_part;
    for (size_t i = 0; i < hn::Lanes(d8); i += hn::Lanes(d)) {
      const auto v = hn::PromoteTo(d, hn::LoadU(d_part, buffer + i));
      if constexpr (sizeof(L) == 8) {
        const hn::ScalableTag<uint64_t> d64;
        const hn::Half<decltype(d)> d_half;
        hn::StoreU(hn::PromoteTo(d64, hn::LowerHalf(d_half, v)), d64, to + i);
        hn::StoreU(hn::PromoteTo(d64, hn::UpperHalf(d_half, v)), d64, to + i + hn::Lanes(d64));
      } else {
        hn::StoreU(v, d, to + i);
      }
    }
  }
}

template <int kBits, class L>
void UnpackNarrow(const uint8_t* line, int64_t n, L* codes) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<uint8_t>()));
  constexpr int64_t kPerByte = 8 / kBits;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreWidened(LoadPacked<kBits>(line + i / kPerByte), codes + i);
  for (; i < n; ++i) {
    codes[i] = static_cast<L>((line[i / kPerByte] >> (i % kPerByte * kBits)) & ((1u << kBits) - 1u));
  }
}

// Unpacks n codes from the line (or the piece of one) that begins at `line`, zero-extended. L must hold `bits` bits.
template <class L>
void UnpackCodes(const uint8_t* line, int64_t n, int32_t bits, L* codes) {
  switch (bits) {
    case 2: return UnpackNarrow<2>(line, n, codes);
    case 4: return UnpackNarrow<4>(line, n, codes);
    case 8: return UnpackNarrow<8>(line, n, codes);
    case 16:
      for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<L>(line[2 * i] | line[2 * i + 1] << 8);
      return;
    default:
      for (int64_t i = 0; i < n; ++i) {
        uint32_t code;
        std::memcpy(&code, line + 4 * i, sizeof(code));
        codes[i] = static_cast<L>(code);
      }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
