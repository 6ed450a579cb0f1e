// Element types: their sizes, names, the half types' exact conversions, and the type sums are made in.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "poolgrad/poolgrad.h"

namespace poolgrad {

// IEEE binary16 and bfloat16 as bits. Conversions to f32 are exact; back, they round to nearest even once.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline float ToF32(BF16 h) { return std::bit_cast<float>(uint32_t{h.bits} << 16); }

inline float ToF32(F16 h) {
  const uint32_t sign = uint32_t{h.bits & 0x8000u} << 16;
  const uint32_t magnitude = h.bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float tiny = static_cast<float>(magnitude) * 0x1p-24f;  // zero or subnormal: exact in f32
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(tiny));
}

inline BF16 ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // a NaN stays one
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

inline F16 ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu))};
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal or zero: let f32 addition round at the right place
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u))};
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

// Wide<T>: what values of T are compared and summed in. Widen is exact; Narrow<T> rounds once.
template <class T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<F16> {
  using Type = float;
};
template <>
struct WideOf<BF16> {
  using Type = float;
};
template <class T>
using Wide = typename WideOf<T>::Type;

template <class T>
Wide<T> Widen(T value) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return value;
  } else {
    return ToF32(value);
  }
}

template <class T>
T Narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, F16>) {
    return ToF16(value);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return ToBF16(value);
  } else {
    return value;
  }
}

inline int64_t SizeOf(poolgrad_dtype dtype) {
  switch (dtype) {
    case POOLGRAD_F64:
      return 8;
    case POOLGRAD_F32:
    case POOLGRAD_I32:
      return 4;
    case POOLGRAD_F16:
    case POOLGRAD_BF16:
      return 2;
    case POOLGRAD_I8:
    case POOLGRAD_U8:
      return 1;
  }
  return 0;
}

inline bool IsInteger(poolgrad_dtype dtype) {
  return dtype == POOLGRAD_I8 || dtype == POOLGRAD_U8 || dtype == POOLGRAD_I32;
}

// Calls f with a value of the C++ type of `dtype`: VisitDtype(dtype, [&](auto zero) { using T = decltype(zero); ... }).
template <class F>
auto VisitDtype(poolgrad_dtype dtype, F&& f) {
  switch (dtype) {
    case POOLGRAD_F64:
      return f(double{});
    case POOLGRAD_F16:
      return f(F16{});
    case POOLGRAD_BF16:
      return f(BF16{});
    case POOLGRAD_I8:
      return f(int8_t{});
    case POOLGRAD_U8:
      return f(uint8_t{});
    case POOLGRAD_I32:
      return f(int32_t{});
    case POOLGRAD_F32:
      break;
  }
  return f(float{});
}

}  // namespace poolgrad
