// Which instruction sets are compiled, and the choice among them at run time. Included before any Highway header.
//
// Left out: SSSE3 (every such processor still in use has SSE4), and the scalable SVE sets, which we cannot test; on Arm that
// leaves NEON. Where the compiler's baseline has no SIMD at all (plain x86-64 with old compilers) Highway adds its scalar
// target; the kernels do not exist for it, and every algorithm refuses there.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

namespace poolgrad {

// Points Highway's dispatch at the best target this processor supports, or at the one that the environment variable
// POOLGRAD_SIMD names (NEON, SSE4, AVX2, AVX3, WASM) if it is supported here. Call before any HWY_DYNAMIC_DISPATCH.
void ChooseSimdTarget();

}  // namespace poolgrad
