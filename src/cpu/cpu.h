// SIMD kernels over Highway: what the plan may choose from on a CPU. The instruction set is picked at run time, when `make` is
// called; a kernel made once keeps its target.
#pragma once

#include <span>

#include "spec/kernel.h"

namespace poolgrad {

// Forward and forward with routes, max and average; fastest first.
std::span<const Algorithm> ForwardAlgorithms();

// Backward, backward from x, gather and unpool; fastest first.
std::span<const Algorithm> BackwardAlgorithms();

// The SIMD target that kernels made now would use, as Highway names it: "NEON", "AVX2", "AVX3", ...
const char* SimdTarget();

}  // namespace poolgrad
