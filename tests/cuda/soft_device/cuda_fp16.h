// Halves as CUDA has them, the part that poolgrad uses: NaNs that are made have the bits 0x7FFF.
#pragma once

#include "cuda_runtime.h"

struct __half {
  unsigned short bits;
};
struct __half2 {
  unsigned bits;
};

#ifdef __aarch64__
using soft_device_float16 = __fp16;
#else
using soft_device_float16 = _Float16;
#endif

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline float __half2float(__half v) { return static_cast<float>(soft_device_cast<soft_device_float16>(v.bits)); }
inline __half __float2half_rn(float v) {
  return {v != v ? static_cast<unsigned short>(0x7FFF)
                 : soft_device_cast<unsigned short>(static_cast<soft_device_float16>(v))};
}

// Both halves of a pair by a function of floats; `Half` has Widen and Narrow.
template <class Half>
struct soft_device_pairs {
  static float Low(unsigned pair) { return Half::Widen(static_cast<unsigned short>(pair)); }
  static float High(unsigned pair) { return Half::Widen(static_cast<unsigned short>(pair >> 16)); }
  static unsigned Of(float low, float high) { return Half::Narrow(low) | unsigned{Half::Narrow(high)} << 16; }
  template <class Function>
  static unsigned Each(unsigned a, unsigned b, Function&& of) {
    return Of(of(Low(a), Low(b)), of(High(a), High(b)));
  }
  static unsigned Greater(unsigned a, unsigned b) {
    return (Low(a) > Low(b) ? 0xFFFFu : 0u) | (High(a) > High(b) ? 0xFFFF0000u : 0u);
  }
  // NaN where one is; else, and of numbers and NaN, the number; +0 is above -0.
  static unsigned MaxOrNaN(unsigned a, unsigned b) {
    return Each(a, b, [](float u, float v) { return u != u ? u : v != v ? v : Max(u, v); });
  }
  static float Max(float u, float v) {
    return u != u ? v : v != v ? u : u > v || (u == v && !__builtin_signbit(u)) ? u : v;
  }
  static float Min(float u, float v) {
    return u != u ? v : v != v ? u : u < v || (u == v && __builtin_signbit(u)) ? u : v;
  }
};
struct soft_device_half : soft_device_pairs<soft_device_half> {
  static float Widen(unsigned short v) { return __half2float({v}); }
  static unsigned short Narrow(float v) { return __float2half_rn(v).bits; }
};

inline __half2 __floats2half2_rn(float low, float high) { return {soft_device_half::Of(low, high)}; }
inline float2 __half22float2(__half2 v) { return {soft_device_half::Low(v.bits), soft_device_half::High(v.bits)}; }
inline unsigned __hgt2_mask(__half2 a, __half2 b) { return soft_device_half::Greater(a.bits, b.bits); }
inline __half2 __hmax2_nan(__half2 a, __half2 b) { return {soft_device_half::MaxOrNaN(a.bits, b.bits)}; }
inline __half2 __hmax2(__half2 a, __half2 b) { return {soft_device_half::Each(a.bits, b.bits, soft_device_half::Max)}; }
inline __half2 __hmin2(__half2 a, __half2 b) { return {soft_device_half::Each(a.bits, b.bits, soft_device_half::Min)}; }
