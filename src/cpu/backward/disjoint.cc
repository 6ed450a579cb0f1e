// bwd_disjoint on every instruction set: a file of its own, so that none takes long to compile.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/disjoint.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"

#if HWY_TARGET != HWY_SCALAR
#include "cpu/backward/disjoint-inl.h"
#endif

#if HWY_ONCE
namespace poolgrad {

const char* MakeDisjoint(const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {
  MakeKernel* const make = POOLGRAD_DISPATCH(MakeKernel, MakeDisjoint, host.simd);
  return make ? make(p, op, host, kernel) : kNoSimdHere;
}

}  // namespace poolgrad
#endif  // HWY_ONCE
