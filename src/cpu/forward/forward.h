// What the forward kernels of each element type offer to forward.cc. One translation unit per type keeps the compiler's
// work in parallel pieces.
#pragma once

#include "cpu/forward/table.h"
#include "spec/kernel.h"

namespace poolgrad {

// A kernel of this way for instruction set `simd`, or why there is none. What is asked of every max pooling was asked
// before (forward.cc). `routes`: keeps them. The general ways of f32, and the others without routes and with them:
const char* MakeForwardF32(ForwardWay way, const Problem& problem, bool routes, int64_t simd, Kernel* kernel);
const char* MakeForwardF32Special(ForwardWay way, const Problem& problem, bool routes, int64_t simd, Kernel* kernel);
const char* MakeForwardF32SpecialRoutes(ForwardWay way, const Problem& problem, bool routes, int64_t simd,
                                        Kernel* kernel);
// The same of f16 and bf16; faster, if HasHalfFmax(), but not every way.
const char* MakeForwardHalf(ForwardWay way, const Problem& problem, bool routes, int64_t simd, Kernel* kernel);
const char* MakeForwardHalfSpecial(ForwardWay way, const Problem& problem, bool routes, int64_t simd, Kernel* kernel);
const char* MakeForwardHalfFmax(ForwardWay way, const Problem& problem, bool routes, Kernel* kernel);
// The general ways of f64 and i32, and of i8 and u8.
const char* MakeForwardF64(ForwardWay way, const Problem& problem, bool routes, int64_t simd, Kernel* kernel);
const char* MakeForwardInt(ForwardWay way, const Problem& problem, bool routes, int64_t simd, Kernel* kernel);

// The same for x that holds no negative value (spec/kernel.h, Shortcut), f32 and halves. Every window must have a valid
// tap.
const char* MakeForwardBits32(ForwardWay way, const Problem& problem, bool routes, Kernel* kernel);
const char* MakeForwardBits16(ForwardWay way, const Problem& problem, bool routes, Kernel* kernel);

// Whether the processor has maxima and comparisons of f16, and the environment does not say POOLGRAD_HALF_FMAX=0.
bool HasHalfFmax();

// What adds the bias of a problem, and rectifies after it (Kernel::finish); null where it is not built.
Finisher MakeRectifier(const Problem& problem, int64_t simd);

// Whether windows have few taps for each input, so that it is best to take them tap by tap.
bool HasFewTaps(const Problem& problem);

// Of planes turned over, by the kernel of channels last that suits them.
const char* MakeForwardTransposed(const Problem& problem, poolgrad_op op, const Host& host, Kernel* kernel);

// Of a signal in pieces, where its samples are fewer than the threads.
const char* MakeForwardCut(const Problem& problem, poolgrad_op op, const Host& host, Kernel* kernel);

inline constexpr const char* kNoSimdHere = "this processor has none of the SIMD instruction sets that were built";
inline constexpr char kNotBuilt[] = "it is not built for this type and instruction set";  // one address for all

}  // namespace poolgrad
