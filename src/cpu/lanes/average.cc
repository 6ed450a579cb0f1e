// fwd_average and bwd_average (average-inl.h) for f32, f64, f16 and bf16.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/lanes/average.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward.h"
#include "cpu/lanes/average-inl.h"
#include "cpu/lanes/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

Made MakeAverageOf(const Problem&, bool) { return kNoSimdHere; }

#else

template <class T>
Made MakeAverageWith(const Problem& p, bool back) {
  const int64_t lanes = LaneCount<Wide<T> >();
  auto layout = std::make_shared<const LaneLayout>(LayOutLanes(p, back, lanes, sizeof(Wide<T>), back, true));
  const int64_t bytes = Average<T>(p, *layout, Args{}, nullptr).bytes;
  if (bytes > MostScratch(p)) return "its rows would take too much scratch";
  Kernel kernel{RunAverage<T>, layout->units(lanes), bytes};
  kernel.layout = std::move(layout);
  return kernel;
}

Made MakeAverageOf(const Problem& p, bool back) {
  if (p.dtype == POOLGRAD_F32) return MakeAverageWith<float>(p, back);
#ifndef POOLGRAD_SMALL
  if (p.dtype == POOLGRAD_F64) return MakeAverageWith<double>(p, back);
  if (p.dtype == POOLGRAD_F16) return MakeAverageWith<F16>(p, back);
  if (p.dtype == POOLGRAD_BF16) return MakeAverageWith<BF16>(p, back);
#endif
  return kNotBuilt;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeAverageOf);

Made MakeAverage(const Problem& p, poolgrad_op op, const Host& host) {
  const bool back = op == POOLGRAD_OP_BACKWARD;
  if (!back && op != POOLGRAD_OP_FORWARD) return "it pools forward and backward only";
  if (p.kind != POOLGRAD_AVERAGE) return "it does averages only";
  if (p.x_elements() == 0 || p.y_elements() == 0) return "there is nothing to add";
  constexpr int64_t kExact = 1 << 24;  // counts that f32 holds
  if (p.depth().kernel * p.height().kernel > kExact || p.width().kernel > kExact) return "a window has too many taps";
  for (const Axis& a : p.axis) {
    if (back && !EndsInOrder(a)) return "a window ends before an earlier one does";
  }
  return POOLGRAD_DISPATCH(MakeAverageOf, host.simd)(p, back);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
