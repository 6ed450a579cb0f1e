// The part of CUDA C++ that poolgrad's kernels are written in, for a device in software (device.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__  // nothing: the standard library asks for it as an attribute
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local  // blocks run on the thread that launches them

struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim;

inline void __syncthreads() { soft_device::SyncBlock(); }
inline int __syncthreads_or(int mine) { return soft_device::SyncBlockOr(mine != 0); }
inline void __syncwarp(unsigned mask = ~0u) { soft_device::SyncWarp(mask); }
inline int __any_sync(unsigned mask, int mine) { return soft_device::Any(mask, mine != 0); }
template <class T>
T __shfl_down_sync(unsigned mask, T mine, unsigned delta, int width = 32) {
  uint64_t bits = 0;
  std::memcpy(&bits, &mine, sizeof mine);
  bits = soft_device::ShuffleDown(mask, bits, delta, width);
  std::memcpy(&mine, &bits, sizeof mine);
  return mine;
}

template <class To, class From>
To soft_device_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned v) { return soft_device_cast<float>(v); }
inline float __int_as_float(int v) { return soft_device_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return soft_device_cast<unsigned>(v); }
inline double __longlong_as_double(long long v) { return soft_device_cast<double>(v); }
inline double __hiloint2double(int high, int low) {
  return soft_device_cast<double>(uint64_t{static_cast<unsigned>(high)} << 32 | static_cast<unsigned>(low));
}
extern "C" float fminf(float, float) noexcept, fmaxf(float, float) noexcept;  // all that is wanted of <cmath>
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __ddiv_rn(double a, double b) { return a / b; }

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (by & 31));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t both = uint64_t{b} << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 0xF;
    unsigned byte = static_cast<unsigned>(both >> (8 * (choice & 7))) & 0xFF;
    if (choice & 8) byte = byte & 0x80 ? 0xFF : 0;  // its sign
    out |= byte << (8 * i);
  }
  return out;
}
inline unsigned __vmaxu2(unsigned a, unsigned b) {
  const auto greater = [](unsigned u, unsigned v) { return u > v ? u : v; };
  return greater(a & 0xFFFF, b & 0xFFFF) | greater(a >> 16, b >> 16) << 16;
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}
inline size_t __cvta_generic_to_shared(const void* at) { return soft_device::SharedAddress(at); }
inline void* __cvta_shared_to_generic(uint32_t at) { return soft_device::AtShared(at, 0); }

// As CUDA has them: of two types the wider, of equally wide ones the unsigned.
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
constexpr std::common_type_t<A, B> min(A a, B b) {
  const std::common_type_t<A, B> u = a, v = b;
  return v < u ? v : u;
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
constexpr std::common_type_t<A, B> max(A a, B b) {
  const std::common_type_t<A, B> u = a, v = b;
  return u < v ? v : u;
}
