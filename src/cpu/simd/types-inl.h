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
namespace poolgrad {
namespace HWY_NAMESPACE {
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
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> BF16BitsFromF32(DF df, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, value);
  const auto top = hn::ShiftRight<16>(bits);
  const auto even = hn::And(top, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), even));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  (void)df;
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

// The bits of a half that 0 + value, rounded back, would have: -0 becomes +0 and a NaN becomes quiet.
template <class T, class D>
HWY_INLINE hn::Vec<D> HalfAsSum(D d, hn::Vec<D> bits) {
  constexpr int16_t kInfinity = std::is_same_v<T, BF16> ? 0x7F80 : 0x7C00;
  constexpr uint16_t kQuiet = std::is_same_v<T, BF16> ? 0x0040 : 0x0200;
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFF));
  const auto nan = hn::RebindMask(d, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, kInfinity)));
  const auto quiet = hn::Or(bits, hn::IfThenElseZero(nan, hn::Set(d, kQuiet)));
  return hn::IfThenZeroElse(hn::Eq(magnitude, hn::Zero(d)), quiet);
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

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
