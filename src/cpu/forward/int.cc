// Forward kernels for i8, u8 and i32.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/int.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Kernel MakeInt(ForwardWay way, const Problem& p, bool routes) {
  switch (p.dtype) {
    case POOLGRAD_I8: return MakeForward<int8_t>(way, p, routes);
    case POOLGRAD_U8: return MakeForward<uint8_t>(way, p, routes);
    default: return MakeForward<int32_t>(way, p, routes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeInt);

Kernel MakeForwardInt(ForwardWay way, const Problem& problem, bool routes, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeInt, simd)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
