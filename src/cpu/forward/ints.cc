// Forward kernels for i8 and u8. (i32 is in f64.cc.)
#define POOLGRAD_WIDER HWY_AVX2  // table.h says why
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/ints.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/ways-inl.h"

POOLGRAD_FORWARD(MakeForwardInt, MakeGeneral<int8_t>)
