// From a way and an element type to its kernel, if table.h has it.

// Per-target include guard
#if defined(POOLGRAD_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_FORWARD_INL_H_
#undef POOLGRAD_CPU_FORWARD_INL_H_
#else
#define POOLGRAD_CPU_FORWARD_INL_H_
#endif

#include <type_traits>

#include "cpu/forward/any/routes-inl.h"
#include "cpu/forward/any/values-inl.h"
#include "cpu/forward/channels_first/global-inl.h"
#include "cpu/forward/channels_first/routes3x3-inl.h"
#include "cpu/forward/channels_first/tiled-inl.h"
#include "cpu/forward/channels_last/global-inl.h"
#include "cpu/forward/channels_last/large-inl.h"
#include "cpu/forward/channels_last/rows-inl.h"
#include "cpu/forward/forward.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

inline constexpr Sets kThisSet = HWY_TARGET == HWY_AVX3   ? kOnAvx3
                                 : HWY_TARGET == HWY_AVX2 ? kOnAvx2
                                 : HWY_TARGET == HWY_SSE4 ? kOnSse4
                                 : HWY_TARGET == HWY_WASM ? kOnWasm
                                                          : kOnNeon;

template <class S>
inline constexpr Held kHeld = std::is_same_v<S, float>      ? Held::kF32
                              : std::is_same_v<S, double>   ? Held::kF64
                              : std::is_same_v<S, int16_t>  ? Held::kHalves
                              : std::is_same_v<S, uint32_t> ? Held::kBits32
                              : std::is_same_v<S, uint16_t> ? Held::kBits16
                                                            : Held::kInt;

template <class S>
Made MakeExact(const Problem& p) {
  Kernel kernel;
  kernel.run = RunExact<S>;
  kernel.units = Rows<S>(p, Args{}).row_count();
  return kernel;
}

#define POOLGRAD_IF_BUILT(kWay)                    \
  if constexpr (IsBuilt(kWay, kHeld<S>, kThisSet)) \
    if (way == kWay)

template <class S, bool kRoutes>
Made MakeSpecialWith(ForwardWay way, const Problem& p) {
  POOLGRAD_IF_BUILT(ForwardWay::kGlobal) return MakeGlobal<S, kRoutes>(p);
  POOLGRAD_IF_BUILT(ForwardWay::kTiled) return MakeTiled<S, kRoutes>(p);
  POOLGRAD_IF_BUILT(ForwardWay::kRows) return MakeRows<S, kRoutes>(p);
  POOLGRAD_IF_BUILT(ForwardWay::kLarge) return MakeLarge<S, kRoutes>(p);
  if constexpr (kRoutes) {
    POOLGRAD_IF_BUILT(ForwardWay::kRoutes3x3) return MakeRoutes3x3<S>(p);
  } else if (way == ForwardWay::kRoutes3x3) {
    return "it is for routes";
  }
  return kNotBuilt;
}

template <class S, bool kRoutes>
Made MakeGeneralWith(ForwardWay way, const Problem& p) {
  POOLGRAD_IF_BUILT(ForwardWay::kExact) return MakeExact<S>(p);
  if constexpr (kRoutes) {
    if constexpr (!kByFmax<S>) {  // as fast with keys, which need no look at zeros
      POOLGRAD_IF_BUILT(ForwardWay::kRoutes) return MakeRoutes<S>(p);
    }
    if (way == ForwardWay::kValues) return "it keeps no routes";
  } else {
    POOLGRAD_IF_BUILT(ForwardWay::kValues) return MakeValues<S>(p);
    if (way == ForwardWay::kRoutes) return "it is for routes";
  }
  return kNotBuilt;
}

#undef POOLGRAD_IF_BUILT

#endif  // HWY_TARGET != HWY_SCALAR

// The ways that take some problems, and those that take any.
template <class S>
Made MakeSpecial([[maybe_unused]] ForwardWay way, [[maybe_unused]] const Problem& p, [[maybe_unused]] bool routes) {
#if HWY_TARGET == HWY_SCALAR
  return kNoSimdHere;
#else
  return routes ? MakeSpecialWith<S, true>(way, p) : MakeSpecialWith<S, false>(way, p);
#endif
}

template <class S>
Made MakeGeneral([[maybe_unused]] ForwardWay way, [[maybe_unused]] const Problem& p, [[maybe_unused]] bool routes) {
#if HWY_TARGET == HWY_SCALAR
  return kNoSimdHere;
#else
  return routes ? MakeGeneralWith<S, true>(way, p) : MakeGeneralWith<S, false>(way, p);
#endif
}

template <class S>
Made MakeForward(ForwardWay way, const Problem& p, bool routes) {
  return IsGeneral(way) ? MakeGeneral<S>(way, p, routes) : MakeSpecial<S>(way, p, routes);
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

// What a file of kernels for one type holds: NAME, which takes the instruction set's `make`.
#undef POOLGRAD_FORWARD
#define POOLGRAD_FORWARD(NAME, make)                                                              \
  HWY_BEFORE_NAMESPACE();                                                                         \
  namespace poolgrad {                                                                            \
  namespace HWY_NAMESPACE {                                                                       \
  Made NAME##Here(ForwardWay way, const Problem& p, bool routes) { return make(way, p, routes); } \
  }                                                                                               \
  }                                                                                               \
  HWY_AFTER_NAMESPACE();                                                                          \
  POOLGRAD_FORWARD_ONCE(NAME)

#undef POOLGRAD_FORWARD_ONCE
#if HWY_ONCE
#define POOLGRAD_FORWARD_ONCE(NAME)                                        \
  namespace poolgrad {                                                     \
  HWY_EXPORT(NAME##Here);                                                  \
  Made NAME(ForwardWay way, const Problem& p, bool routes, int64_t simd) { \
    return POOLGRAD_DISPATCH(NAME##Here, simd)(way, p, routes);            \
  }                                                                        \
  }
#else
#define POOLGRAD_FORWARD_ONCE(NAME)
#endif

#endif  // per-target include guard
