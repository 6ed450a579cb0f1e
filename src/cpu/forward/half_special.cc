// Forward kernels for f16 and bf16: the ways that take some problems.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/half_special.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/ways-inl.h"

POOLGRAD_FORWARD(MakeForwardHalfSpecial, MakeSpecial<int16_t>)
