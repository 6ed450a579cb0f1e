// Forward kernels for i8, u8 and i32.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/ints.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Made MakeInt(ForwardWay way, const Problem& p, bool routes) {
  return p.dtype == POOLGRAD_I32 ? MakeForward<int32_t>(way, p, routes) : MakeForward<int8_t>(way, p, routes);
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

POOLGRAD_FORWARD(MakeForwardInt, MakeInt)
