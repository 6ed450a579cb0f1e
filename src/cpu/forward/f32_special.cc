// Forward kernels for f32: the ways that take some problems.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/f32_special.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Made MakeF32Special(ForwardWay way, const Problem& p, bool routes) { return MakeSpecial<float>(way, p, routes); }

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeF32Special);

Made MakeForwardF32Special(ForwardWay way, const Problem& problem, bool routes, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeF32Special, simd)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
