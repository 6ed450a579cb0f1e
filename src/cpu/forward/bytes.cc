// Forward kernels for i8 and u8.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/bytes.cc"
#include "hwy/foreach_target.h"

#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Made MakeBytes(ForwardWay way, const Problem& p, bool routes) { return MakeForward<int8_t>(way, p, routes); }

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeBytes);

Made MakeForwardBytes(ForwardWay way, const Problem& problem, bool routes, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeBytes, simd)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
