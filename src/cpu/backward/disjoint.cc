// bwd_disjoint on every instruction set: a file of its own, so that none takes long to compile.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/disjoint.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"

#if HWY_TARGET != HWY_SCALAR
#include "cpu/backward/disjoint-inl.h"
#else
namespace poolgrad::HWY_NAMESPACE {

const char* MakeDisjoint(const Problem&, poolgrad_op, const Host&, Kernel*) { return kNoVectors; }

}  // namespace poolgrad::HWY_NAMESPACE
#endif  // HWY_TARGET != HWY_SCALAR

#if HWY_ONCE
namespace poolgrad {

const char* MakeDisjoint(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  return POOLGRAD_DISPATCH(MakeDisjoint, host.simd)(p, op, host, kernel);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
