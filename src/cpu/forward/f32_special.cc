// Forward kernels for f32: the ways that take some problems, without routes.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/f32_special.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/ways-inl.h"

POOLGRAD_FORWARD(MakeForwardF32Special, (MakeSpecialWith<float, false>))
