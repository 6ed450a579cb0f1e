// Forward kernels for floats none of which is negative, by their bits: f32 as uint32_t, f16 and bf16 as uint16_t.
#define POOLGRAD_WIDER 0  // Arm alone has them (table.h)
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/bits.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/ways-inl.h"

POOLGRAD_FORWARD(MakeForwardBits32, MakeAny<uint32_t>)
POOLGRAD_FORWARD(MakeForwardBits16, MakeAny<uint16_t>)
