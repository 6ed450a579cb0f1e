// The run-time choice of the instruction set, made in one place for all kernels.
#include "cpu/targets.h"

#include <cstdlib>
#include <cstring>

#include "cpu/cpu.h"
#include "hwy/highway.h"

namespace poolgrad {

#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0  // one target: nothing to choose, and no need of Highway's library

void ChooseSimdTarget() {}

const char* SimdTarget() { return hwy::TargetName(HWY_STATIC_TARGET); }

#else

namespace {

int64_t AllowedTargets() {
  const int64_t supported = hwy::SupportedTargets();
  const char* wanted = std::getenv("POOLGRAD_SIMD");
  if (wanted == nullptr) return supported;
  for (int64_t bits = supported & HWY_TARGETS; bits != 0; bits &= bits - 1) {
    const int64_t target = bits & -bits;
    if (std::strcmp(hwy::TargetName(target), wanted) == 0) return target;
  }
  return supported;
}

}  // namespace

void ChooseSimdTarget() { hwy::GetChosenTarget().Update(AllowedTargets()); }

const char* SimdTarget() {
  const int64_t usable = AllowedTargets() & HWY_TARGETS;  // Highway numbers better targets lower
  return hwy::TargetName(usable == 0 ? HWY_STATIC_TARGET : usable & -usable);
}

#endif

}  // namespace poolgrad
