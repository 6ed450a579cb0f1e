// The same for bfloat16.
#pragma once

#include "cuda_fp16.h"

struct __nv_bfloat16 {
  unsigned short bits;
};
struct __nv_bfloat162 {
  unsigned bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
inline float __bfloat162float(__nv_bfloat16 v) { return __uint_as_float(unsigned{v.bits} << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  const unsigned bits = __float_as_uint(v), even = bits >> 16 & 1;
  return {static_cast<unsigned short>(v != v ? 0x7FFF : (bits + 0x7FFF + even) >> 16)};
}

struct soft_device_bfloat : soft_device_pairs<soft_device_bfloat> {
  static float Widen(unsigned short v) { return __bfloat162float({v}); }
  static unsigned short Narrow(float v) { return __float2bfloat16_rn(v).bits; }
};

inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) { return {soft_device_bfloat::Of(low, high)}; }
inline unsigned __hgt2_mask(__nv_bfloat162 a, __nv_bfloat162 b) { return soft_device_bfloat::Greater(a.bits, b.bits); }
inline __nv_bfloat162 __hmax2_nan(__nv_bfloat162 a, __nv_bfloat162 b) {
  return {soft_device_bfloat::MaxOrNaN(a.bits, b.bits)};
}
inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return {soft_device_bfloat::Each(a.bits, b.bits, soft_device_bfloat::Max)};
}
inline __nv_bfloat162 __hmin2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return {soft_device_bfloat::Each(a.bits, b.bits, soft_device_bfloat::Min)};
}
