// What the forward kernels of each element type offer to forward.cc. One translation unit per type keeps the compiler's
// work in parallel pieces.
#pragma once

#include "cpu/forward/table.h"
#include "spec/kernel.h"

namespace poolgrad {

// A kernel of this way for instruction set `simd`, or why there is none. What is asked of every max pooling was asked
// before (forward.cc). `routes`: keeps them.
Made MakeForwardF32(ForwardWay way, const Problem& problem, bool routes, int64_t simd);         // general ways
Made MakeForwardF32Special(ForwardWay way, const Problem& problem, bool routes, int64_t simd);  // the others: values
Made MakeForwardF32SpecialRoutes(ForwardWay way, const Problem& problem, bool routes, int64_t simd);  // with routes
Made MakeForwardHalf(ForwardWay way, const Problem& problem, bool routes, int64_t simd);              // f16 and bf16
Made MakeForwardHalfSpecial(ForwardWay way, const Problem& problem, bool routes, int64_t simd);
Made MakeForwardHalfFmax(ForwardWay way, const Problem& problem,
                         bool routes);  // the same, faster, if HasHalfFmax(); not every way
Made MakeForwardF64(ForwardWay way, const Problem& problem, bool routes, int64_t simd);  // f64 and i32: general ways
Made MakeForwardInt(ForwardWay way, const Problem& problem, bool routes, int64_t simd);  // i8 and u8: the same

// The same for x that holds no negative value (spec/kernel.h, Shortcut). Every window must have a valid tap.
Made MakeForwardBits32(ForwardWay way, const Problem& problem, bool routes);  // f32
Made MakeForwardBits16(ForwardWay way, const Problem& problem, bool routes);  // f16 and bf16

// Whether the processor has maxima and comparisons of f16, and the environment does not say POOLGRAD_HALF_FMAX=0.
bool HasHalfFmax();

// What adds the bias of a problem, and rectifies after it (Kernel::finish); null where it is not built.
Finisher MakeRectifier(const Problem& problem, int64_t simd);

// Of planes turned over, by the kernel of channels last that suits them.
Made MakeForwardTransposed(const Problem& problem, poolgrad_op op, const Host& host);

// Of a signal in pieces, where its samples are fewer than the threads.
Made MakeForwardCut(const Problem& problem, poolgrad_op op, const Host& host);

inline constexpr const char* kNoSimdHere = "this processor has none of the SIMD instruction sets that were built";
inline constexpr char kNotBuilt[] = "it is not built for this type and instruction set";  // one address for all

}  // namespace poolgrad
