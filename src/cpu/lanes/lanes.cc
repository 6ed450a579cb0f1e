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
#include "cpu/lanes/tables-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

LaneRuns RunsHere(poolgrad_dtype) { return {}; }

#else

template <class T>
LaneRuns RunsOf() {
  LaneRuns runs = {LaneCount<Wide<T> >(), sizeof(Wide<T>)};
  if constexpr (IsBuilt(ForwardWay::kAverage, kHeld<T>, kThisSet)) {
    runs.average = RunAverage<T>;
    runs.average_scratch = [](const Problem& p, const LaneLayout& l) { return Average<T>(p, l, {}, nullptr).bytes; };
  }
  if constexpr (IsBuilt(ForwardWay::kAveragePlanes, kHeld<T>, kThisSet)) runs.planes = RunAveragePlanes<T>;
  if constexpr (IsBuilt(ForwardWay::kTables, kHeld<T>, kThisSet)) {
    runs.tables = RunTables<T>;
    runs.tables_scratch = [](const Problem& p, const TablesLayout& l) { return Tables<T>(p, l, {}, nullptr).bytes; };
  }
  return runs;
}

LaneRuns RunsHere(poolgrad_dtype dtype) {
  if (dtype == POOLGRAD_F32) return RunsOf<float>();
  if (dtype == POOLGRAD_F64) return RunsOf<double>();
  if (dtype == POOLGRAD_F16) return RunsOf<F16>();
  if (dtype == POOLGRAD_BF16) return RunsOf<BF16>();
  return {};
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {
namespace {

// f64 has AVX2's on AVX-512 (forward/table.h).
LaneRuns RunsOn(const Problem& p, const Host& host) {
  return POOLGRAD_DISPATCH(RunsHere, p.dtype == POOLGRAD_F64 && host.simd == kAvx3 ? kAvx2 : host.simd)(p.dtype);
}

const char* NoRun(const Host& host) { return host.simd == kNoSimd ? kNoSimdHere : kNotBuilt; }

Made MadeOf(const Problem& p, Kernel kernel) {
  if (kernel.scratch_bytes > MostScratch(p)) return "its rows would take too much scratch";
  return kernel;
}

}  // namespace

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
  const LaneRuns runs = RunsOn(p, host);
  if (!runs.average) return NoRun(host);
  auto layout = std::make_shared<const LaneLayout>(LayOutLanes(p, back, runs.lanes, runs.size, back, true));
  Kernel kernel{runs.average, layout->units(runs.lanes), runs.average_scratch(p, *layout)};
  kernel.layout = std::move(layout);
  return MadeOf(p, std::move(kernel));
}

Made MakeAveragePlanes(const Problem& p, poolgrad_op op, const Host& host) {
  if (op != POOLGRAD_OP_FORWARD) return "it pools forward only";
  if (p.kind != POOLGRAD_AVERAGE) return "it does averages only";
  if (p.channels_last() && p.channels > 1) return "it is for channels first";
  for (const Axis& a : p.axis) {
    const bool whole = !a.table && a.out == 1 && a.kernel == a.in && a.pad_lo == 0 && a.dilation == 1;
    if (!whole) return "a plane is more than one window";
  }
  const LaneRuns runs = RunsOn(p, host);
  const int64_t planes = p.batch * p.channels;
  if (!runs.planes) return NoRun(host);
  if (planes < runs.lanes) return "there are fewer planes than lanes";
  if (p.x_bytes() < 16 * planes) return "the planes are too small";
  return Kernel{runs.planes, CeilDiv(planes, runs.lanes)};
}

Made MakeTables(const Problem& p, const Host& host, const Kernel& exact) {
  const LaneRuns runs = RunsOn(p, host);
  if (!runs.tables) return NoRun(host);
  auto layout = std::make_shared<TablesLayout>();
  layout->lanes = LayOutLanes(p, false, runs.lanes, runs.size, false, false);
  layout->exact = exact;
  Kernel kernel{runs.tables, layout->lanes.units(runs.lanes), runs.tables_scratch(p, *layout)};
  kernel.layout = std::move(layout);
  return MadeOf(p, std::move(kernel));
}

}  // namespace poolgrad
#endif  // HWY_ONCE
