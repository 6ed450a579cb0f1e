// From a way and an element type to its kernel, if table.h has it.

#include <type_traits>

#include "cpu/forward/forward.h"
#include "hwy/highway.h"

namespace poolgrad::HWY_NAMESPACE {

inline constexpr Sets kThisSet = HWY_TARGET == HWY_AVX3   ? kOnAvx3
                                 : HWY_TARGET == HWY_AVX2 ? kOnAvx2
                                 : HWY_TARGET == HWY_SSE4 ? kOnSse4
                                 : HWY_TARGET == HWY_WASM ? kOnWasm
                                                          : kOnNeon;

template <class S>
inline constexpr Held kHeld = std::is_same_v<S, float>      ? Held::kF32
                              : std::is_same_v<S, uint32_t> ? Held::kBits32
                              : std::is_same_v<S, uint16_t> ? Held::kBits16
                              : sizeof(S) == 1              ? Held::kBytes
                              : sizeof(S) == 2              ? Held::kHalves
                                                            : Held::kWide;

#undef POOLGRAD_IF_BUILT
#define POOLGRAD_IF_BUILT(kWay)                    \
  if constexpr (IsBuilt(kWay, kHeld<S>, kThisSet)) \
    if (way == kWay)

}  // namespace poolgrad::HWY_NAMESPACE

// What a file of kernels for one type holds: NAME, which takes the instruction set's `make`, which may look at the
// problem `p`; on AVX-512 AVX2's, where table.h has no other.
#undef POOLGRAD_FORWARD
#if HWY_TARGET == HWY_SCALAR
#define POOLGRAD_FORWARD(NAME, make) POOLGRAD_FORWARD_ONCE(NAME)
#else
#define POOLGRAD_FORWARD(NAME, make)                                                               \
  HWY_BEFORE_NAMESPACE();                                                                          \
  namespace poolgrad::HWY_NAMESPACE {                                                              \
  const char* NAME##Here(ForwardWay way, const Problem& p, bool routes, int64_t, Kernel* kernel) { \
    return make(way, p, routes, kernel);                                                           \
  }                                                                                                \
  }                                                                                                \
  HWY_AFTER_NAMESPACE();                                                                           \
  POOLGRAD_FORWARD_ONCE(NAME)
#endif

#undef POOLGRAD_FORWARD_ONCE
#if HWY_ONCE
#define POOLGRAD_FORWARD_ONCE(NAME)                                                               \
  namespace poolgrad {                                                                            \
  const char* NAME(ForwardWay way, const Problem& p, bool routes, int64_t simd, Kernel* kernel) { \
    MakeForward* const make = POOLGRAD_DISPATCH(MakeForward, NAME##Here, simd);                   \
    const char* const reason = make ? make(way, p, routes, simd, kernel) : kNoSimdHere;           \
    const bool narrower = reason == kNotBuilt && simd == kAvx3;                                   \
    return narrower ? NAME(way, p, routes, kAvx2, kernel) : reason;                               \
  }                                                                                               \
  }
#else
#define POOLGRAD_FORWARD_ONCE(NAME)
#endif
