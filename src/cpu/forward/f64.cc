// Forward kernels for f64 and i32.
#define POOLGRAD_WIDER HWY_AVX2  // table.h says why
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/f64.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/ways-inl.h"

POOLGRAD_FORWARD(MakeForwardF64, (p.dtype == POOLGRAD_I32 ? MakeGeneral<int32_t> : MakeGeneral<double>))
