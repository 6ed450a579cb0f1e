// The ways that take any problem, or nearly.

// Per-target include guard
#if defined(POOLGRAD_CPU_GENERAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_GENERAL_INL_H_
#undef POOLGRAD_CPU_GENERAL_INL_H_
#else
#define POOLGRAD_CPU_GENERAL_INL_H_
#endif

#include "cpu/forward/any/routes-inl.h"
#include "cpu/forward/any/values-inl.h"
#include "cpu/forward/common/exact-inl.h"
#include "cpu/forward/forward-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

template <class S>
Made MakeExact(const Problem& p) {
  Kernel kernel;
  kernel.run = RunExact<S>;
  kernel.units = Rows<S>(p, Args{}).row_count();
  return kernel;
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

#endif  // HWY_TARGET != HWY_SCALAR

template <class S>
Made MakeGeneral([[maybe_unused]] ForwardWay way, [[maybe_unused]] const Problem& p, [[maybe_unused]] bool routes) {
#if HWY_TARGET == HWY_SCALAR
  return kNoSimdHere;
#else
  return routes ? MakeGeneralWith<S, true>(way, p) : MakeGeneralWith<S, false>(way, p);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
