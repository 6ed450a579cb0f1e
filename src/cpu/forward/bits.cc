// Forward kernels for floats none of which is negative, by their bits: f32 as uint32_t, f16 and bf16 as uint16_t. Arm
// alone has them (table.h), and one instruction set.
#include "cpu/simd/targets.h"
// After targets.h
#include "cpu/forward/forward.h"
#include "hwy/highway.h"

#if HWY_TARGET == HWY_NEON
#include "cpu/forward/ways-inl.h"

namespace poolgrad {

const char* MakeForwardBits32(ForwardWay way, const Problem& problem, bool routes, Kernel* kernel) {
  return IsGeneral(way) ? HWY_NAMESPACE::MakeGeneral<uint32_t>(way, problem, routes, kernel)
                        : HWY_NAMESPACE::MakeSpecial<uint32_t>(way, problem, routes, kernel);
}
const char* MakeForwardBits16(ForwardWay way, const Problem& problem, bool routes, Kernel* kernel) {
  return IsGeneral(way) ? HWY_NAMESPACE::MakeGeneral<uint16_t>(way, problem, routes, kernel)
                        : HWY_NAMESPACE::MakeSpecial<uint16_t>(way, problem, routes, kernel);
}

}  // namespace poolgrad

#else

namespace poolgrad {

const char* MakeForwardBits32(ForwardWay, const Problem&, bool, Kernel*) { return kNotBuilt; }
const char* MakeForwardBits16(ForwardWay, const Problem&, bool, Kernel*) { return kNotBuilt; }

}  // namespace poolgrad

#endif
