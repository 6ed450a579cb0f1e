// The kernels whose lanes are planes or channels, for f32, f64, f16 and bf16.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/lanes/lanes.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward-inl.h"
#include "cpu/lanes/lanes.h"
#if HWY_TARGET != HWY_SCALAR
#include "cpu/lanes/average-inl.h"
#include "cpu/lanes/planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

template <class T>
LaneRuns RunsOf() {
  LaneRuns runs = {LaneCount<Wide<T> >(), sizeof(Wide<T>)};
  if constexpr (IsBuilt(ForwardWay::kAverage, kHeld<T>, kThisSet)) {
    runs.average = RunAs<Average<T> >;
    runs.average_scratch = ScratchOf<Average<T> >;
  }
  if constexpr (IsBuilt(ForwardWay::kAveragePlanes, kHeld<T>, kThisSet)) runs.planes = RunAveragePlanes<T>;
  return runs;
}

LaneRuns RunsHere(poolgrad_dtype dtype) {
  if (dtype == POOLGRAD_F32) return RunsOf<float>();
  if (dtype == POOLGRAD_F64) return RunsOf<double>();
  if (dtype == POOLGRAD_F16) return RunsOf<F16>();
  if (dtype == POOLGRAD_BF16) return RunsOf<BF16>();
  return {};
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR

#if HWY_ONCE
namespace poolgrad {

// f64 has AVX2's on AVX-512 (forward/table.h).
LaneRuns RunsOn(const Problem& p, const Host& host) {
  const int64_t simd = p.dtype == POOLGRAD_F64 && host.simd == kAvx3 ? kAvx2 : host.simd;
  const auto here = POOLGRAD_DISPATCH(LaneRuns(poolgrad_dtype), RunsHere, simd);
  return here ? here(p.dtype) : LaneRuns{};
}

}  // namespace poolgrad
#endif  // HWY_ONCE
