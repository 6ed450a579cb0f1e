// Forward kernels for f32: the general ways.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/f32.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/ways-inl.h"

POOLGRAD_FORWARD(MakeForwardF32, MakeGeneral<float>)
