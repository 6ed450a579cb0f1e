// What the forward kernels of each element type offer to forward.cc. One translation unit per type keeps the compiler's
// work in parallel pieces.
#pragma once

#include "cpu/forward/table.h"
#include "cpu/simd/targets.h"
#include "spec/kernel.h"

namespace poolgrad {

// A kernel of this way for instruction set `simd`, or why there is none. What is asked of every max pooling was asked
// before (forward.cc). `routes`: keeps them.
using MakeForward = const char*(ForwardWay way, const Problem& problem, bool routes, int64_t simd, Kernel* kernel);

// The general ways of f32, and the others without routes and with them.
MakeForward MakeForwardF32, MakeForwardF32Special, MakeForwardF32SpecialRoutes;
// The same of f16 and bf16; faster, if HasHalfFmax(), but not every way.
MakeForward MakeForwardHalf, MakeForwardHalfSpecial, MakeForwardHalfFmax;
// The general ways of f64 and i32, and of i8 and u8.
MakeForward MakeForwardF64, MakeForwardInt;
// For x of f32 and of halves that holds no negative value (spec/kernel.h, Shortcut). Every window must have a valid
// tap.
MakeForward MakeForwardBits32, MakeForwardBits16;

// Whether the processor has maxima and comparisons of f16, and the environment does not say POOLGRAD_HALF_FMAX=0.
bool HasHalfFmax();

// What adds the bias of a problem, and rectifies after it (Kernel::finish); null where it is not built.
Finisher MakeRectifier(const Problem& problem, int64_t simd);

// Whether windows have few taps for each input, so that it is best to take them tap by tap.
bool HasFewTaps(const Problem& problem);

// Of planes turned over, by the kernel of channels last that suits them; and of a signal in pieces, where its samples
// are fewer than the threads.
MakeKernel MakeForwardTransposed, MakeForwardCut;

}  // namespace poolgrad
