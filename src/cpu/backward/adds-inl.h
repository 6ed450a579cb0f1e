// Runs of scalar adds: to[winner of window i] += values[i]. The inner loops of backward_scatter-inl.h.
//
// `to` is where the first element's window starts, which may lie before the memory that its taps lie in. `offsets`
// gives a tap's distance from its window's start; windows start `step` apart. The codes have been vetted.
#if defined(POOLGRAD_CPU_BACKWARD_ADDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_ADDS_INL_H_
#undef POOLGRAD_CPU_BACKWARD_ADDS_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_ADDS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "cpu/backward/scatter.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

template <class V>
HWY_INLINE void AddBytes(V* to, const V* HWY_RESTRICT values, const uint8_t* HWY_RESTRICT codes, int64_t n,
                         const uint32_t* HWY_RESTRICT offsets, int64_t step) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4, to += 4 * step) {
    uint32_t four;
    std::memcpy(&four, codes + i, sizeof(four));
    to[offsets[four & 255]] += values[i];
    (to + step)[offsets[four >> 8 & 255]] += values[i + 1];
    (to + 2 * step)[offsets[four >> 16 & 255]] += values[i + 2];
    (to + 3 * step)[offsets[four >> 24]] += values[i + 3];
  }
  for (; i < n; ++i, to += step) to[offsets[codes[i]]] += values[i];
}

template <class V>
HWY_INLINE void AddPair(V* to, const V* HWY_RESTRICT values, uint64_t both) {
  to[static_cast<uint32_t>(both)] += values[0];
  to[both >> 32] += values[1];
}

// The offsets of eight packed codes.
struct FourPairs {
  uint64_t a, b, c, d;
};

HWY_INLINE FourPairs LookUpPairs(const uint8_t* HWY_RESTRICT codes, const uint64_t* HWY_RESTRICT pairs) {
  uint32_t four;
  std::memcpy(&four, codes, sizeof(four));
  return {pairs[four & 255], pairs[four >> 8 & 255], pairs[four >> 16 & 255], pairs[four >> 24]};
}

template <class V>
HWY_INLINE void AddFourPairs(V* to, const V* HWY_RESTRICT values, FourPairs at, int64_t step) {
  AddPair(to, values, at.a);
  AddPair(to + 2 * step, values + 2, at.b);
  AddPair(to + 4 * step, values + 4, at.c);
  AddPair(to + 6 * step, values + 6, at.d);
}

// Codes of four bits; `pairs` by byte, the second offset already a step further. Offsets are looked up eight outputs
// before they are used: the core does not look far enough ahead by itself (1.38 cycles per output, 1.25 this way).
template <class V>
HWY_INLINE void AddPairs(V* to, const V* HWY_RESTRICT values, const uint8_t* HWY_RESTRICT codes, int64_t n,
                         const uint64_t* HWY_RESTRICT pairs, int64_t step) {
  int64_t i = 0;
  if (n >= 8) {
    FourPairs at = LookUpPairs(codes, pairs);
    for (; i + 16 <= n; i += 8, to += 8 * step) {
      codes += 4;
      const FourPairs next = LookUpPairs(codes, pairs);
      AddFourPairs(to, values + i, at, step);
      at = next;
    }
    AddFourPairs(to, values + i, at, step);
    i += 8;
    to += 8 * step;
    codes += 4;
  }
  for (; i + 2 <= n; i += 2, to += 2 * step, ++codes) AddPair(to, values + i, pairs[*codes]);
  if (i < n) to[static_cast<uint32_t>(pairs[*codes & 15])] += values[i];
}

// kScatterTogether planes in step: neighbouring windows share winners, and a sum waits for the store before it.
template <class V>
HWY_INLINE void AddTogether(V* const (&to)[kScatterTogether], const V* const (&values)[kScatterTogether],
                            const uint8_t* const (&codes)[kScatterTogether], int64_t n,
                            const uint32_t* HWY_RESTRICT offsets, int64_t step) {
  static_assert(kScatterTogether == 4);
  V *t0 = to[0], *t1 = to[1], *t2 = to[2], *t3 = to[3];
  const V *HWY_RESTRICT v0 = values[0], *HWY_RESTRICT v1 = values[1], *HWY_RESTRICT v2 = values[2],
                        *HWY_RESTRICT v3 = values[3];
  const uint8_t *HWY_RESTRICT c0 = codes[0], *HWY_RESTRICT c1 = codes[1], *HWY_RESTRICT c2 = codes[2],
                              *HWY_RESTRICT c3 = codes[3];
  for (int64_t i = 0; i < n; ++i, t0 += step, t1 += step, t2 += step, t3 += step) {
    t0[offsets[c0[i]]] += v0[i];
    t1[offsets[c1[i]]] += v1[i];
    t2[offsets[c2[i]]] += v2[i];
    t3[offsets[c3[i]]] += v3[i];
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_ADDS_INL_H_
