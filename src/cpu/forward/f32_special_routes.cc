// Forward kernels for f32: the ways that take some problems, with routes.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/f32_special_routes.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/ways-inl.h"

POOLGRAD_FORWARD(MakeForwardF32SpecialRoutes, (MakeSpecialWith<float, true>))
