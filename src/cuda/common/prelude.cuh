// What kernels compiled while the program runs find in place of the headers that only a full CUDA installation has: the
// names that geo.cuh and the files on top of it use, and no more.
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
using uintptr_t = unsigned long long;
using size_t = decltype(sizeof(0));
#define INT32_MIN (-2147483647 - 1)

namespace std {
template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_signed_v = T(-1) < T(0);
template <bool kFirst, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kFirst, class A, class B>
using conditional_t = typename conditional<kFirst, A, B>::type;
template <bool kThere, class T>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool kThere, class T>
using enable_if_t = typename enable_if<kThere, T>::type;
}  // namespace std

// ---- halves ----

struct __half {
  unsigned short bits;
};
struct __nv_bfloat16 {
  unsigned short bits;
};
struct __half2 {
  unsigned int bits;
};
struct __nv_bfloat162 {
  unsigned int bits;
};

__device__ inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
__device__ inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
__device__ inline float __half2float(__half v) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(v.bits));
  return out;
}
__device__ inline float __bfloat162float(__nv_bfloat16 v) { return __uint_as_float(unsigned(v.bits) << 16); }
__device__ inline __half __float2half_rn(float v) {
  __half out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(v));
  return out;
}
__device__ inline __half2 __floats2half2_rn(float low, float high) {
  return {unsigned(__float2half_rn(low).bits) | unsigned(__float2half_rn(high).bits) << 16};
}
__device__ inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  __nv_bfloat162 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out.bits) : "f"(high), "f"(low));
  return out;
}
__device__ inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  return {static_cast<unsigned short>(__floats2bfloat162_rn(v, v).bits)};
}
__device__ inline float2 __half22float2(__half2 v) {
  return {__half2float({static_cast<unsigned short>(v.bits)}),
          __half2float({static_cast<unsigned short>(v.bits >> 16)})};
}
__device__ inline unsigned __hgt2_mask(__half2 a, __half2 b) {
  unsigned out;
  asm("set.gt.u32.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a.bits), "r"(b.bits));
  return out;
}
__device__ inline unsigned __hgt2_mask(__nv_bfloat162 a, __nv_bfloat162 b) {
  unsigned out;
#if __CUDA_ARCH__ >= 900
  asm("set.gt.u32.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a.bits), "r"(b.bits));
#else
  const auto low = [](unsigned v) { return __uint_as_float(v << 16); };
  const auto high = [](unsigned v) { return __uint_as_float(v & 0xFFFF0000u); };
  out = (low(a.bits) > low(b.bits) ? 0xFFFFu : 0u) | (high(a.bits) > high(b.bits) ? 0xFFFF0000u : 0u);
#endif
  return out;
}
#define POOLGRAD_OF_TWO(name, type, instruction)                                 \
  __device__ inline type name(type a, type b) {                                  \
    type out;                                                                    \
    asm(instruction " %0, %1, %2;" : "=r"(out.bits) : "r"(a.bits), "r"(b.bits)); \
    return out;                                                                  \
  }
POOLGRAD_OF_TWO(__hmax2_nan, __half2, "max.NaN.f16x2")
POOLGRAD_OF_TWO(__hmax2_nan, __nv_bfloat162, "max.NaN.bf16x2")
POOLGRAD_OF_TWO(__hmax2, __half2, "max.f16x2")
POOLGRAD_OF_TWO(__hmax2, __nv_bfloat162, "max.bf16x2")
POOLGRAD_OF_TWO(__hmin2, __half2, "min.f16x2")
POOLGRAD_OF_TWO(__hmin2, __nv_bfloat162, "min.bf16x2")
#undef POOLGRAD_OF_TWO
