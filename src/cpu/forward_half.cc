// Forward kernels for f16 and bf16, whose bits are ordered as integers.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_half.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Kernel MakeHalf(ForwardWay way, const Problem& p, bool routes) {
  return MakeForward<int16_t>(way, p, routes);
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeHalf);

Kernel MakeForwardHalf(ForwardWay way, const Problem& problem, bool routes) {
  ChooseSimdTarget();
  return HWY_DYNAMIC_DISPATCH(MakeHalf)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
