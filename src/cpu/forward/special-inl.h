// The ways that take some problems.

// Per-target include guard
#if defined(POOLGRAD_CPU_SPECIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_SPECIAL_INL_H_
#undef POOLGRAD_CPU_SPECIAL_INL_H_
#else
#define POOLGRAD_CPU_SPECIAL_INL_H_
#endif

#include "cpu/forward/channels_first/folded-inl.h"
#include "cpu/forward/channels_first/routes3x3-inl.h"
#include "cpu/forward/channels_first/tiled-inl.h"
#include "cpu/forward/channels_last/large-inl.h"
#include "cpu/forward/channels_last/rows-inl.h"
#include "cpu/forward/forward-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

template <class S, bool kRoutes>
Made MakeSpecialWith(ForwardWay way, const Problem& p) {
  POOLGRAD_IF_BUILT(ForwardWay::kFolded) return MakeFolded<S, kRoutes>(p);
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

#endif  // HWY_TARGET != HWY_SCALAR

template <class S>
Made MakeSpecial([[maybe_unused]] ForwardWay way, [[maybe_unused]] const Problem& p, [[maybe_unused]] bool routes) {
#if HWY_TARGET == HWY_SCALAR
  return kNoSimdHere;
#else
  return routes ? MakeSpecialWith<S, true>(way, p) : MakeSpecialWith<S, false>(way, p);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
