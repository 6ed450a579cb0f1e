// Forward kernels for f16 and bf16 on Arm processors that compare f16 (order-inl.h says how): one operation per input
// instead of four.
//
// The same source as for half.cc in a namespace of its own: one program may not hold two definitions under one
// name.
#include "cpu/simd/targets.h"
// After targets.h
#include "cpu/forward/forward.h"
#include "hwy/highway.h"

#if HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64 && defined(__linux__)
#include <sys/auxv.h>

#include <cstdlib>

namespace hwy {
namespace N_NEON_FMAX = HWY_NAMESPACE;
}
#undef HWY_NAMESPACE
#define HWY_NAMESPACE N_NEON_FMAX
#define POOLGRAD_HALVES_BY_FMAX

#include "cpu/forward/ways-inl.h"

namespace poolgrad {

bool HasHalfFmax() {
  constexpr unsigned long kAsimdHp = 1ul << 10;  // HWCAP_ASIMDHP, which old headers lack
  static const bool has = (getauxval(AT_HWCAP) & kAsimdHp) != 0;
  const char* wish = std::getenv("POOLGRAD_HALF_FMAX");
  return has && !(wish && *wish == '0');
}

const char* MakeForwardHalfFmax(ForwardWay way, const Problem& problem, bool routes, int64_t, Kernel* kernel) {
  return HWY_NAMESPACE::MakeAny<int16_t>(way, problem, routes, kernel);
}

}  // namespace poolgrad

#else

namespace poolgrad {

bool HasHalfFmax() { return false; }
const char* MakeForwardHalfFmax(ForwardWay, const Problem&, bool, int64_t, Kernel*) { return kNotBuilt; }

}  // namespace poolgrad

#endif
