// Forward kernels for f64.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_f64.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Kernel MakeF64(ForwardWay way, const Problem& p, bool routes) {
  return MakeForward<double>(way, p, routes);
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeF64);

Kernel MakeForwardF64(ForwardWay way, const Problem& problem, bool routes) {
  ChooseSimdTarget();
  return HWY_DYNAMIC_DISPATCH(MakeF64)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
