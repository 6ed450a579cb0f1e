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
#include "cpu/fold.h"
#include "cpu/lanes/lanes.h"

#if HWY_TARGET != HWY_SCALAR
#include "cpu/backward/bias-inl.h"
#include "cpu/backward/disjoint-inl.h"
#include "cpu/backward/scatter-inl.h"
#else
namespace poolgrad {
namespace HWY_NAMESPACE {

Made MakeBias(const Problem&, poolgrad_op, const Host&) { return kNoVectors; }
Made MakeDisjoint(const Problem&, poolgrad_op, const Host&) { return kNoVectors; }
Made MakeScatter(const Problem&, poolgrad_op, const Host&) { return kNoVectors; }
Made MakeWinners(const Problem&, poolgrad_op, const Host&) { return kNoVectors; }

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
#endif  // HWY_TARGET != HWY_SCALAR

#if HWY_ONCE
namespace poolgrad {
namespace {

#define POOLGRAD_BACKWARD(MAKE)                                     \
  AsFolded<[](const Problem& p, poolgrad_op op, const Host& host) { \
    return POOLGRAD_DISPATCH(MAKE, host.simd)(p, op, host);         \
  }>

// clang-format off
constexpr Algorithm kBackward[] = {
    {"bwd_disjoint", POOLGRAD_BACKWARD(MakeDisjoint)},
    {"bwd_scatter", POOLGRAD_BACKWARD(MakeScatter)},
#ifndef POOLGRAD_SMALL
    {"bwd_average_apart", AsFolded<MakeAverageApart>},
#endif
    {"bwd_average", AsFolded<MakeAverage>},
    {"bwd_from_x", AsFolded<MakeBackwardX>},
    {"gather_winners", POOLGRAD_BACKWARD(MakeWinners)},
    {"bias_sums", POOLGRAD_BACKWARD(MakeBias)},
};
// clang-format on

}  // namespace

std::span<const Algorithm> BackwardAlgorithms() { return kBackward; }

}  // namespace poolgrad
#endif  // HWY_ONCE
