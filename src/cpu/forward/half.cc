// Forward kernels for f16 and bf16: the general ways.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/half.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/ways-inl.h"

POOLGRAD_FORWARD(MakeForwardHalf, MakeGeneral<int16_t>)
