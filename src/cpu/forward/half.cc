// Forward kernels for f16 and bf16: the general ways.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/half.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Made MakeHalf(ForwardWay way, const Problem& p, bool routes) { return MakeGeneral<int16_t>(way, p, routes); }

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeHalf);

Made MakeForwardHalf(ForwardWay way, const Problem& problem, bool routes, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeHalf, simd)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
