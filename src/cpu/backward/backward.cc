// The backward side of the CPU kernels, fastest first. Which type has which kernel on which instruction set:
//
//                     f32 f16 bf16        f64               i8 u8 i32        what for
//   bwd_disjoint      all but SSE4        -                 halves (unpool)  windows that share no input
//   bwd_scatter       all                 all               all (unpool)     any window, also sets of ties
//   bwd_average_apart all                 all               -                averages, windows that share no input
//   bwd_average       all; SSE4 f32 alone but SSE4          -                averages (forward/table.h)
//   bwd_from_x        all                 all               -                backward from x, in pieces
//   gather_winners    all                 all               all              gather (tangents)
//   bias_sums         all                 all               -                the gradient of a bias
//
// WebAssembly has f32 alone, and no bwd_average_apart (POOLGRAD_SMALL).
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"
#include "cpu/cpu.h"
#include "cpu/lanes/lanes.h"

#if HWY_TARGET != HWY_SCALAR
#include "cpu/backward/bias-inl.h"
#include "cpu/backward/scatter-inl.h"
#endif

#if HWY_ONCE
namespace poolgrad {
namespace {

#define POOLGRAD_BACKWARD(MAKE)                                              \
  [](const Problem& p, poolgrad_op op, const Host& host, Kernel* kernel) {   \
    MakeKernel* const make = POOLGRAD_DISPATCH(MakeKernel, MAKE, host.simd); \
    return make ? make(p, op, host, kernel) : kNoSimdHere;                   \
  }

constexpr Does kRouted = OfMax(POOLGRAD_OP_BACKWARD) | OfMax(POOLGRAD_OP_UNPOOL);
constexpr Does kOfAverages = OfAverages(POOLGRAD_OP_BACKWARD);

// clang-format off
constexpr Algorithm kBackward[] = {
    {"bwd_disjoint",      kRouted,                            Seen::kFolded, MakeDisjoint},
    {"bwd_scatter",       kRouted,                            Seen::kFolded, POOLGRAD_BACKWARD(MakeScatter)},
#ifndef POOLGRAD_SMALL
    {"bwd_average_apart", kOfAverages,                        Seen::kFolded, MakeAverageApart},
#endif
    {"bwd_average",       kOfAverages,                        Seen::kFolded, MakeAverage},
    {"bwd_from_x",        OfMax(POOLGRAD_OP_BACKWARD_X),      Seen::kFolded, MakeBackwardX},
    {"gather_winners",    OfMax(POOLGRAD_OP_GATHER),          Seen::kFolded, POOLGRAD_BACKWARD(MakeWinners)},
    {"bias_sums",         OfMax(POOLGRAD_OP_BIAS_GRADIENT),   Seen::kFolded, POOLGRAD_BACKWARD(MakeBias)},
};
// clang-format on

}  // namespace

std::span<const Algorithm> BackwardAlgorithms() { return kBackward; }

}  // namespace poolgrad
#endif  // HWY_ONCE
