// Forward kernels for f64.
#define POOLGRAD_WIDER HWY_AVX2  // AVX-512 is rare for f64, and 8 s of every build
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/f64.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward-inl.h"

POOLGRAD_FORWARD(MakeForwardF64, MakeForward<double>)
