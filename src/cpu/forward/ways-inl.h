// The ways of max pooling of an element type: those that take any problem, or nearly, and those that take some.

// Per-target include guard
#if defined(POOLGRAD_CPU_WAYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_WAYS_INL_H_
#undef POOLGRAD_CPU_WAYS_INL_H_
#else
#define POOLGRAD_CPU_WAYS_INL_H_
#endif

#include "cpu/forward/forward-inl.h"
#include "hwy/highway.h"
#if HWY_TARGET != HWY_SCALAR
#include "cpu/forward/any/routes-inl.h"
#include "cpu/forward/any/values-inl.h"
#include "cpu/forward/channels_first/folded-inl.h"
#include "cpu/forward/channels_first/routes3x3-inl.h"
#include "cpu/forward/channels_first/tiled-inl.h"
#include "cpu/forward/channels_last/large-inl.h"
#include "cpu/forward/channels_last/rows-inl.h"
#include "cpu/forward/common/exact-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

template <class S>
Made MakeGeneral(ForwardWay, const Problem&, bool) {
  return kNoSimdHere;
}
template <class S, bool kRoutes>
Made MakeSpecialWith(ForwardWay, const Problem&, bool) {
  return kNoSimdHere;
}
template <class S>
Made MakeSpecial(ForwardWay, const Problem&, bool) {
  return kNoSimdHere;
}

#else

template <class S>
Made MakeExact(const Problem& p) {
  Kernel kernel;
  kernel.run = RunExact<S>;
  kernel.units = Rows<S>(p, Args{}).row_count();
  return kernel;
}

template <class S>
Made MakeGeneral(ForwardWay way, const Problem& p, bool) {
  POOLGRAD_IF_BUILT(ForwardWay::kExact) return MakeExact<S>(p);
  POOLGRAD_IF_BUILT(ForwardWay::kValues) return MakeValues<S>(p);
  if constexpr (!kByFmax<S>) {  // as fast with keys, which need no look at zeros
    POOLGRAD_IF_BUILT(ForwardWay::kRoutes) return MakeRoutes<S>(p);
  }
  return kNotBuilt;
}

template <class S, bool kRoutes>
Made MakeSpecialWith(ForwardWay way, const Problem& p, bool = kRoutes) {
  POOLGRAD_IF_BUILT(ForwardWay::kFolded) return MakeFolded<S, kRoutes>(p);
  POOLGRAD_IF_BUILT(ForwardWay::kTiled) return MakeTiled<S, kRoutes>(p);
  POOLGRAD_IF_BUILT(ForwardWay::kRows) return MakeRows<S, kRoutes>(p);
  POOLGRAD_IF_BUILT(ForwardWay::kLarge) return MakeLarge<S, kRoutes>(p);
  POOLGRAD_IF_BUILT(ForwardWay::kRoutes3x3) return MakeRoutes3x3<S>(p);
  return kNotBuilt;
}

template <class S>
Made MakeSpecial(ForwardWay way, const Problem& p, bool routes) {
  return routes ? MakeSpecialWith<S, true>(way, p) : MakeSpecialWith<S, false>(way, p);
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
