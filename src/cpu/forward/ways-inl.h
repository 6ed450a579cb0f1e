// The ways of max pooling of an element type: those that take any problem, or nearly, and those that take some.

#include "cpu/forward/forward-inl.h"
#include "hwy/highway.h"
#if HWY_TARGET != HWY_SCALAR
#include "cpu/forward/any/large-inl.h"
#include "cpu/forward/any/routes-inl.h"
#include "cpu/forward/any/values-inl.h"
#include "cpu/forward/channels_first/folded-inl.h"
#include "cpu/forward/channels_first/routes3x3-inl.h"
#include "cpu/forward/channels_first/tiled-inl.h"
#include "cpu/forward/channels_last/rows-inl.h"
#include "cpu/forward/common/picked-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

template <class S>
const char* MakeExact(const Problem& p, Kernel* kernel) {
  const Range sizes = PickedRows<S>::Sizes(p);
  if (kByFmax<S> && sizes.size() > 0) return kNotBuilt;  // which are picked by their keys
  kernel->run = RunExact<S>;
  ScratchTaker take(nullptr);
  if (sizes.size() > 0) PickedRows<S>(p, sizes, take);
  kernel->scratch_bytes = take.used();
  kernel->units = Rows<S>(p, Args{}).row_count();
  return nullptr;
}

template <class S>
const char* MakeGeneral(ForwardWay way, const Problem& p, bool, Kernel* kernel) {
  POOLGRAD_IF_BUILT(ForwardWay::kExact) return MakeExact<S>(p, kernel);
  POOLGRAD_IF_BUILT(ForwardWay::kValues) return MakeValues<S>(p, kernel);
  if constexpr (!kByFmax<S>) {  // as fast with keys, which need no look at zeros
    POOLGRAD_IF_BUILT(ForwardWay::kRoutes) return MakeRoutes<S>(p, kernel);
  }
  return kNotBuilt;
}

template <class S, bool kRoutes>
const char* MakeSpecialWith(ForwardWay way, const Problem& p, bool, Kernel* kernel) {
  POOLGRAD_IF_BUILT(ForwardWay::kFolded) return MakeFolded<S, kRoutes>(p, kernel);
  POOLGRAD_IF_BUILT(ForwardWay::kTiled) return MakeTiled<S, kRoutes>(p, kernel);
  POOLGRAD_IF_BUILT(ForwardWay::kRows) return MakeRows<S, kRoutes>(p, kernel);
  POOLGRAD_IF_BUILT(ForwardWay::kLarge) return MakeLarge<S, kRoutes>(p, kernel);
  POOLGRAD_IF_BUILT(ForwardWay::kRoutes3x3) return MakeRoutes3x3<S>(p, kernel);
  return kNotBuilt;
}

template <class S>
const char* MakeSpecial(ForwardWay way, const Problem& p, bool routes, Kernel* kernel) {
  return (routes ? MakeSpecialWith<S, true> : MakeSpecialWith<S, false>)(way, p, routes, kernel);
}

// As one file has them all.
template <class S>
const char* MakeAny(ForwardWay way, const Problem& p, bool routes, Kernel* kernel) {
  return (IsGeneral(way) ? MakeGeneral<S> : MakeSpecial<S>)(way, p, routes, kernel);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
