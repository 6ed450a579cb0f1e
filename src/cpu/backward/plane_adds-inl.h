// Runs of scalar adds, to[offsets[i]] += values[i], of one plane or of four in step: the inner loops of
// backward_planes-inl.h.
//
// Where windows are large, neighbours mostly have the same winner, and a sum that was just stored is not there yet when
// it is loaded again. Four planes in step put three other adds in between (13x13 in L1: 3.1 to 1.7 cycles per output).
// Small windows gain less (3x3 1.31 to 1.25) than four streams of dx and dy cost them from memory.
//
// `to` may lie before the memory that is added to; the offsets have been vetted. dx may be zeroed meanwhile, a little
// ahead of the adds: a block's worth at once would leave the cache again.
#if defined(POOLGRAD_CPU_BACKWARD_PLANE_ADDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_PLANE_ADDS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_PLANE_ADDS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_PLANE_ADDS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/backward/planes.h"
#include "cpu/backward/zero-inl.h"
#include "cpu/simd/types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// What is added where, in planes that are so many elements apart.
template <class T>
struct PlaneAdds {
  Wide<T>* to;
  int64_t to_step;
  const T* values;
  int64_t value_step;
  const uint16_t* offsets;
  int64_t offset_step;
};

// What is zeroed meanwhile, by a zeroer per plane: `pace` bytes more before each kPacedOutputs, from `from` on.
struct PlaneZeros {
  Zeroer* zeroers;
  uintptr_t from;
  uintptr_t step;  // bytes from plane to plane
  uintptr_t pace;
};

#if HWY_ARCH_ARM_A64
// Eight values as two vectors of f32.
template <class T>
HWY_INLINE void LoadEight(const T* from, hn::Vec<hn::FixedTag<float, 4>>& first,
                          hn::Vec<hn::FixedTag<float, 4>>& second) {
  const hn::FixedTag<float, 4> d;
  if constexpr (std::is_same_v<T, BF16>) {
    const hn::FixedTag<uint16_t, 8> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    first = hn::BitCast(d, hn::InterleaveLower(d16, hn::Zero(d16), bits));
    second = hn::BitCast(d, hn::InterleaveUpper(d16, hn::Zero(d16), bits));
  } else {
    first = LoadWide(d, from);
    second = LoadWide(d, from + 4);
  }
}
#endif

// Eight outputs: to[offsets[i]] += values[i], one after the other.
template <class T>
HWY_INLINE void AddEight(Wide<T>* to, const T* values, const uint16_t* offsets) {
  uint64_t low, high;
  std::memcpy(&low, offsets, 8);
  std::memcpy(&high, offsets + 4, 8);
#if HWY_ARCH_ARM_A64
  if constexpr (sizeof(Wide<T>) == 4) {  // taking lanes out of a vector leaves the load pipes to dx
    hn::Vec<hn::FixedTag<float, 4>> first, second;
    LoadEight(values, first, second);
    asm("" : "+w"(first.raw), "+w"(second.raw));  // or the compiler loads the lanes one by one after all
    to[low & 0xFFFF] += hn::ExtractLane(first, 0);
    to[low >> 16 & 0xFFFF] += hn::ExtractLane(first, 1);
    to[low >> 32 & 0xFFFF] += hn::ExtractLane(first, 2);
    to[low >> 48] += hn::ExtractLane(first, 3);
    to[high & 0xFFFF] += hn::ExtractLane(second, 0);
    to[high >> 16 & 0xFFFF] += hn::ExtractLane(second, 1);
    to[high >> 32 & 0xFFFF] += hn::ExtractLane(second, 2);
    to[high >> 48] += hn::ExtractLane(second, 3);
    return;
  }
#endif
  Wide<T> widened[8];
  const Wide<T>* wide;
  if constexpr (std::is_same_v<T, Wide<T>>) {
    wide = values;
  } else {
    const hn::CappedTag<Wide<T>, 8> d;
    for (size_t i = 0; i < 8; i += hn::Lanes(d)) hn::StoreU(LoadWide(d, values + i), d, widened + i);
    wide = widened;
  }
  to[low & 0xFFFF] += wide[0];
  to[low >> 16 & 0xFFFF] += wide[1];
  to[low >> 32 & 0xFFFF] += wide[2];
  to[low >> 48] += wide[3];
  to[high & 0xFFFF] += wide[4];
  to[high >> 16 & 0xFFFF] += wide[5];
  to[high >> 32 & 0xFFFF] += wide[6];
  to[high >> 48] += wide[7];
}

// Asks for dy `kBytes` behind `at`, which may lie past its end.
template <uintptr_t kBytes>
HWY_INLINE void AskAhead(const void* at) {
  hwy::Prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(at) + kBytes));
}

// ---- One plane.

template <bool kZero, class T>
HWY_NOINLINE void AddOne(const PlaneAdds<T>& a, int64_t n, const PlaneZeros& zeros) {
  Wide<T>* const to = a.to;
  const T* const values = a.values;
  const uint16_t* const offsets = a.offsets;
  const uintptr_t pace = zeros.pace;
  uintptr_t zeroed = zeros.from;
  Zeroer zeroer;
  if constexpr (kZero) zeroer = *zeros.zeroers;
  int64_t i = 0;
  for (; i + kPacedOutputs <= n; i += kPacedOutputs) {
    if constexpr (kZero) {
      zeroed += pace;
      zeroer.UpTo(zeroed);
    }
    AskAhead<2048>(values + i);
    AddEight(to, values + i, offsets + i);
  }
  if constexpr (kZero) {
    zeroer.UpTo(zeroed + pace);
    *zeros.zeroers = zeroer;
  }
  for (; i < n; ++i) to[offsets[i]] += Widen(values[i]);
}

// ---- Four planes in step.

// Four values: a vector of f32 on Arm, elsewhere where they are.
template <class T>
HWY_INLINE auto FourValues(const T* from) {
#if HWY_ARCH_ARM_A64
  if constexpr (sizeof(Wide<T>) == 4) {
    auto lanes = LoadWide(hn::FixedTag<float, 4>(), from);
    asm("" : "+w"(lanes.raw));  // or the compiler loads the lanes one by one after all
    return lanes;
  } else {
    return from;
  }
#else
  return from;
#endif
}

HWY_INLINE uint64_t FourOffsets(const uint16_t* offsets) {
  uint64_t four;
  std::memcpy(&four, offsets, 8);
  return four;
}

template <int kLane, class V, class Four>
HWY_INLINE void AddLane(V* to, uint64_t offsets, Four values) {
  V& sum = to[offsets >> (16 * kLane) & 0xFFFF];
  if constexpr (std::is_pointer_v<Four>) {
    sum += Widen(values[kLane]);
  } else {
    sum += hn::ExtractLane(values, kLane);
  }
}

template <bool kZero, class T>
HWY_NOINLINE void AddFour(const PlaneAdds<T>& a, int64_t n, const PlaneZeros& zeros) {
  static_assert(kPlanesTogether == 4);
  Wide<T>* const to0 = a.to;
  Wide<T>* const to1 = to0 + a.to_step;
  Wide<T>* const to2 = to1 + a.to_step;
  Wide<T>* const to3 = to2 + a.to_step;
  const T* v0 = a.values;
  const T* v1 = v0 + a.value_step;
  const T* v2 = v1 + a.value_step;
  const T* v3 = v2 + a.value_step;
  const uint16_t* const o0 = a.offsets;
  const int64_t offset_step = a.offset_step;
  Zeroer* const zeroers = zeros.zeroers;
  constexpr int64_t kChunk = 2 * kPacedOutputs;
  uintptr_t zeroed = zeros.from;
  int64_t i = 0;
  for (int64_t chunk = 0; i + 4 <= n; chunk += kChunk) {
    const int64_t end = std::min(n, chunk + kChunk);
    if constexpr (kZero) {
      zeroed += 2 * zeros.pace;
      for (uintptr_t plane = 0; plane < 4; ++plane) zeroers[plane].UpTo(zeroed + plane * zeros.step);
    }
    AskAhead<2048>(v0 + i);
    AskAhead<2048>(v1 + i);
    AskAhead<2048>(v2 + i);
    AskAhead<2048>(v3 + i);
    for (; i + 4 <= end; i += 4) {
      const uint16_t* const o = o0 + i;
      const uint64_t p0 = FourOffsets(o);
      const uint64_t p1 = FourOffsets(o + offset_step);
      const uint64_t p2 = FourOffsets(o + 2 * offset_step);
      const uint64_t p3 = FourOffsets(o + 3 * offset_step);
      const auto f0 = FourValues(v0 + i);
      const auto f1 = FourValues(v1 + i);
      const auto f2 = FourValues(v2 + i);
      const auto f3 = FourValues(v3 + i);
      AddLane<0>(to0, p0, f0);
      AddLane<0>(to1, p1, f1);
      AddLane<0>(to2, p2, f2);
      AddLane<0>(to3, p3, f3);
      AddLane<1>(to0, p0, f0);
      AddLane<1>(to1, p1, f1);
      AddLane<1>(to2, p2, f2);
      AddLane<1>(to3, p3, f3);
      AddLane<2>(to0, p0, f0);
      AddLane<2>(to1, p1, f1);
      AddLane<2>(to2, p2, f2);
      AddLane<2>(to3, p3, f3);
      AddLane<3>(to0, p0, f0);
      AddLane<3>(to1, p1, f1);
      AddLane<3>(to2, p2, f2);
      AddLane<3>(to3, p3, f3);
    }
  }
  for (; i < n; ++i) {
    const uint16_t* const o = o0 + i;
    to0[o[0]] += Widen(v0[i]);
    to1[o[offset_step]] += Widen(v1[i]);
    to2[o[2 * offset_step]] += Widen(v2[i]);
    to3[o[3 * offset_step]] += Widen(v3[i]);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_PLANE_ADDS_INL_H_
