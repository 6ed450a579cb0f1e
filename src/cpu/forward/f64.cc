// Forward kernels for f64.
#define POOLGRAD_WIDER HWY_AVX2  // AVX-512 is rare for f64, and 8 s of every build
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/f64.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Made MakeF64(ForwardWay way, const Problem& p, bool routes) { return MakeForward<double>(way, p, routes); }

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeF64);

Made MakeForwardF64(ForwardWay way, const Problem& problem, bool routes, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeF64, simd)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
