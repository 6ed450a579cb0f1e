// Forward kernels for f16 and bf16 values that are not negative, by their bits.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/bits16.cc"
#include "hwy/foreach_target.h"

#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Made MakeBits16(ForwardWay way, const Problem& p, bool routes) { return MakeForward<uint16_t>(way, p, routes); }

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeBits16);

Made MakeForwardBits16(ForwardWay way, const Problem& problem, bool routes, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeBits16, simd)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
