// Forward kernels for f32 values that are not negative, by their bits.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/bits32.cc"
#include "hwy/foreach_target.h"

#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Made MakeBits32(ForwardWay way, const Problem& p, bool routes) { return MakeForward<uint32_t>(way, p, routes); }

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeBits32);

Made MakeForwardBits32(ForwardWay way, const Problem& problem, bool routes, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeBits32, simd)(way, problem, routes);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
