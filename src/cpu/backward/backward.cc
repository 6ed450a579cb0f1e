// The backward side of the CPU kernels, fastest first. Which type has which kernel on which instruction set:
//
//                    f32 f16 bf16        f64               i8 u8 i32        what for
//   bwd_disjoint     all but SSE4        -                 i32 (unpool)     windows that share no input; f32 and i32
//                                                                           channels last only
//   bwd_scatter      all                 all               all (unpool)     any window, also sets of ties
//   bwd_average      all                 all               -                averages
//   bwd_from_x       all                 all               -                backward from x, in pieces
//   gather_winners   all                 all               all              gather (tangents)
//   bias_sums        all                 all               -                the gradient of a bias
//
// WebAssembly has f32 alone (POOLGRAD_SMALL).
#include "cpu/backward/backward.h"

#include "cpu/cpu.h"
#include "cpu/lanes/lanes.h"

namespace poolgrad {
namespace {

constexpr Algorithm kBackward[] = {
    {"bwd_disjoint", MakeDisjoint}, {"bwd_scatter", MakeScatter},    {"bwd_average", MakeAverage},
    {"bwd_from_x", MakeBackwardX},  {"gather_winners", MakeWinners}, {"bias_sums", MakeBias},
};

}  // namespace

std::span<const Algorithm> BackwardAlgorithms() { return kBackward; }

}  // namespace poolgrad
