// Loads and stores of every element type as vectors of the type that sums are made in: f32 for the halves, else itself.
// Widening is exact and narrowing rounds to nearest even once, bit for bit as base/dtype.h does, on every target: where
// Highway emulates half precision (SSE4, WebAssembly) it neither keeps infinities nor rounds, so we do it ourselves
// there.

// Per-target include guard
#if defined(POOLGRAD_CPU_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_TYPES_INL_H_
#undef POOLGRAD_CPU_TYPES_INL_H_
#else
#define POOLGRAD_CPU_TYPES_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr bool kNativeF16 = true;
#else
inline constexpr bool kNativeF16 = false;
#endif

// The exact f32 values of f16 bits, one per u32 lane.
template <class DF, class VU = hn::Vec<hn::RebindToUnsigned<DF>>>
HWY_INLINE hn::Vec<DF> F32FromF16Bits(DF df, VU half) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const VU sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  const VU magnitude = hn::And(half, hn::Set(du, 0x7FFFu));
  const VU normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x38000000u));
  const VU special = hn::Add(normal, hn::Set(du, 0x38000000u));  // infinity and NaN: exponent 31 becomes 255
  const auto tiny = hn::Mul(hn::ConvertTo(df, hn::BitCast(di, magnitude)), hn::Set(df, 0x1p-24f));
  const auto is_special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF));
  const auto is_tiny = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 0x0400));
  VU bits = hn::IfThenElse(hn::RebindMask(du, is_special), special, normal);
  bits = hn::IfThenElse(hn::RebindMask(du, is_tiny), hn::BitCast(du, tiny), bits);
  return hn::BitCast(df, hn::Or(bits, sign));
}

// f32 rounded to f16 bits, one per u32 lane.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> F16BitsFromF32(DF df, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  using VU = hn::Vec<decltype(du)>;
  const VU bits = hn::BitCast(du, value);
  const VU sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const VU even = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const VU rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0xFFFu)), even);
  const VU normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du, 0x38000000u)));
  const VU shifted = hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f)));
  const VU tiny = hn::Sub(shifted, hn::Set(du, 0x3F000000u));
  const VU nan = hn::Or(hn::Set(du, 0x7E00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3FFu)));
  VU half = hn::IfThenElse(hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, 0x38800000))), tiny, normal);
  half =
      hn::IfThenElse(hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x477FEFFF))), hn::Set(du, 0x7C00u), half);
  half = hn::IfThenElse(hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7F800000))), nan, half);
  return hn::Or(half, sign);
}

// f32 rounded to bf16 bits, one per u32 lane.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> BF16BitsFromF32(DF /*df*/, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, value);
  const auto top = hn::ShiftRight<16>(bits);
  const auto even = hn::And(top, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), even));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  return hn::IfThenElse(is_nan, hn::Or(top, hn::Set(du, 0x40u)), rounded);
}

// Lanes(d) elements from `from`, widened. D's lanes are Wide<T>.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadWide(D d, const T* from) {
  if constexpr (std::is_same_v<T, F16>) {
    if constexpr (kNativeF16) {
      const hn::Rebind<hwy::float16_t, D> dh;
      return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
    } else {
      const hn::Rebind<uint16_t, D> dh;
      return F32FromF16Bits(
          d, hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(dh, reinterpret_cast<const uint16_t*>(from))));
    }
  } else if constexpr (std::is_same_v<T, BF16>) {
    const hn::Rebind<uint16_t, D> dh;
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(from)));
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  } else {
    return hn::LoadU(d, from);
  }
}

// Rounds `value` to T once and stores Lanes(d) elements.
template <class D, class T>
HWY_INLINE void StoreNarrow(D d, hn::Vec<D> value, T* to) {
  if constexpr (std::is_same_v<T, F16>) {
    if constexpr (kNativeF16) {
      const hn::Rebind<hwy::float16_t, D> dh;
      hn::StoreU(hn::DemoteTo(dh, value), dh, reinterpret_cast<hwy::float16_t*>(to));
    } else {
      const hn::Rebind<uint16_t, D> dh;
      hn::StoreU(hn::TruncateTo(dh, F16BitsFromF32(d, value)), dh, reinterpret_cast<uint16_t*>(to));
    }
  } else if constexpr (std::is_same_v<T, BF16>) {
    const hn::Rebind<uint16_t, D> dh;
    hn::StoreU(hn::TruncateTo(dh, BF16BitsFromF32(d, value)), dh, reinterpret_cast<uint16_t*>(to));
  } else {
    hn::StoreU(value, d, to);
  }
}

// What makes of a half's bits what 0 + value, rounded back, would have: -0 becomes +0 and a NaN becomes quiet.
struct HalfRule {
  int16_t infinity;
  uint16_t quiet, zero;  // the bit that makes a NaN quiet; the magnitude that becomes +0
};
template <class T>
inline constexpr HalfRule kHalfSum =
    std::is_same_v<T, BF16> ? HalfRule{0x7F80, 0x0040, 0} : HalfRule{0x7C00, 0x0200, 0};

template <class D>
HWY_INLINE hn::Vec<D> HalfAsSum(D d, hn::Vec<D> bits, HalfRule rule) {
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFF));
  const auto nan = hn::RebindMask(d, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, rule.infinity)));
  const auto quiet = hn::Or(bits, hn::IfThenElseZero(nan, hn::Set(d, rule.quiet)));
  return hn::IfThenZeroElse(hn::Eq(magnitude, hn::Set(d, rule.zero)), quiet);
}
template <class T, class D>
HWY_INLINE hn::Vec<D> HalfAsSum(D d, hn::Vec<D> bits) {
  return HalfAsSum(d, bits, kHalfSum<T>);
}

// The first n elements, others 0; nothing beyond them is touched. Vectors of 16 bytes are made of two words.
template <class D>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const hn::TFromD<D>* from, int64_t n) {
  if (n >= static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, from);
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, from);  // faults in masked lanes do not happen
#else
  constexpr int64_t kBytes = sizeof(hn::TFromD<D>) * hn::MaxLanes(D());
  if constexpr (kBytes > 16) {
    const hn::Half<D> half;
    const int64_t middle = static_cast<int64_t>(hn::Lanes(half));
    if (n < middle) return hn::ZeroExtendVector(d, LoadFirst(half, from, n));
    return hn::Combine(d, LoadFirst(half, from + middle, n - middle), hn::LoadU(half, from));
  } else {
    const hn::Repartition<uint64_t, D> d64;
    const auto* bytes = reinterpret_cast<const uint8_t*>(from);
    const auto count = n * static_cast<int64_t>(sizeof(*from));
    uint64_t low = 0, high = 0;
    if (count >= 8) {
      std::memcpy(&low, bytes, 8);
      std::memcpy(&high, bytes + count - 8, 8);
      high = high >> (8 * (15 - count)) >> 8;
    } else if (count >= 4) {
      uint32_t begin, end;
      std::memcpy(&begin, bytes, 4);
      std::memcpy(&end, bytes + count - 4, 4);
      low = begin | uint64_t{end} << (8 * (count - 4));
    } else {
      for (int64_t i = 0; i < count; ++i) low |= uint64_t{bytes[i]} << (8 * i);
    }
    return hn::BitCast(d, hn::InsertLane(hn::Set(d64, low), 1, high));
  }
#endif
}

template <class D>
HWY_INLINE void StoreFirst(D d, hn::Vec<D> v, hn::TFromD<D>* to, int64_t n) {
  if (n >= static_cast<int64_t>(hn::Lanes(d))) return hn::StoreU(v, d, to);
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, to);
#else
  constexpr int64_t kBytes = sizeof(hn::TFromD<D>) * hn::MaxLanes(D());
  if constexpr (kBytes > 16) {
    const hn::Half<D> half;
    const int64_t middle = static_cast<int64_t>(hn::Lanes(half));
    if (n < middle) return StoreFirst(half, hn::LowerHalf(half, v), to, n);
    hn::StoreU(hn::LowerHalf(half, v), half, to);
    StoreFirst(half, hn::UpperHalf(half, v), to + middle, n - middle);
  } else {
    const hn::Repartition<uint64_t, D> d64;
    auto* bytes = reinterpret_cast<uint8_t*>(to);
    const auto count = n * static_cast<int64_t>(sizeof(*to));
    const uint64_t low = hn::GetLane(hn::BitCast(d64, v));
    const uint64_t high = hn::ExtractLane(hn::BitCast(d64, v), 1);
    if (count >= 8) {
      const uint64_t end = low >> (8 * (count - 8)) | high << (8 * (15 - count)) << 8;
      std::memcpy(bytes, &low, 8);
      std::memcpy(bytes + count - 8, &end, 8);
    } else if (count >= 4) {
      const auto end = static_cast<uint32_t>(low >> (8 * (count - 4)));
      std::memcpy(bytes, &low, 4);
      std::memcpy(bytes + count - 4, &end, 4);
    } else {
      for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(low >> (8 * i));
    }
  }
#endif
}

// LoadWide and StoreNarrow of the first n lanes, if there are more: nothing beyond them is read or written. Other lanes
// load as 0.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadSome(D d, const T* from, int64_t n) {
  if (n >= static_cast<int64_t>(hn::Lanes(d))) return LoadWide(d, from);
  HWY_ALIGN T buffer[hn::MaxLanes(D())] = {};
  std::memcpy(buffer, from, static_cast<size_t>(n) * sizeof(T));
  return LoadWide(d, buffer);
}

template <class D, class T>
HWY_INLINE void StoreSome(D d, hn::Vec<D> value, T* to, int64_t n) {
  if (n >= static_cast<int64_t>(hn::Lanes(d))) return StoreNarrow(d, value, to);
  HWY_ALIGN T buffer[hn::MaxLanes(D())];
  StoreNarrow(d, value, buffer);
  std::memcpy(to, buffer, static_cast<size_t>(n) * sizeof(T));
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
