// What the forward kernels of each element type offer to forward.cc. One translation unit per group of types keeps the
// compiler's work in parallel pieces.
#pragma once

#include "spec/kernel.h"

namespace poolgrad {

// The ways to pool forward, one per name in ForwardAlgorithms.
enum class ForwardWay { kGlobal, kInterleaved, kWindows, kStream, kMiddles, kShared, kColumns, kSweep, kPlanes, kExact };

// A kernel for a problem that this way takes, for the best SIMD target; `run` is null where there is none, or where its vectors
// are too long for the problem. `routes`: keeps them.
Kernel MakeForwardF32(ForwardWay way, const Problem& problem, bool routes, int64_t simd);
Kernel MakeForwardF64(ForwardWay way, const Problem& problem, bool routes, int64_t simd);
Kernel MakeForwardHalf(ForwardWay way, const Problem& problem, bool routes, int64_t simd);  // f16 and bf16
Kernel MakeForwardHalfFmax(ForwardWay way, const Problem& problem, bool routes);  // the same, faster, if HasHalfFmax(); not every way
Kernel MakeForwardInt(ForwardWay way, const Problem& problem, bool routes, int64_t simd);   // i8, u8, i32

// The same for x that holds no negative value (spec/kernel.h, Shortcut). Every window must have a valid tap.
Kernel MakeForwardBits32(ForwardWay way, const Problem& problem, bool routes, int64_t simd);  // f32
Kernel MakeForwardBits16(ForwardWay way, const Problem& problem, bool routes, int64_t simd);  // f16 and bf16

// Whether the processor has maxima and comparisons of f16, and the environment does not say POOLGRAD_HALF_FMAX=0.
bool HasHalfFmax();

// Average pooling; `run` is null where there is no SIMD target, and for integers.
Kernel MakeForwardAverage(const Problem& problem, int64_t simd);

}  // namespace poolgrad
