// The kernels whose lanes are planes or channels, for f32, f64, f16 and bf16.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/lanes/lanes.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward-inl.h"
#include "cpu/lanes/average-inl.h"
#include "cpu/lanes/lanes.h"
#include "cpu/lanes/tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

Made MakeAverageOf(const Problem&, bool) { return kNoSimdHere; }
Made MakeTablesOf(const Problem&, const Kernel&) { return kNoSimdHere; }

#else

// The kernel that `make` gives for T, where forward/table.h has it.
template <ForwardWay kWay, class T, class Make>
Made MakeOf([[maybe_unused]] const Make& make) {
  if constexpr (IsBuilt(kWay, kHeld<T>, kThisSet)) {
    return make(T());
  } else {
    return kNotBuilt;
  }
}

// And for the problem's type.
template <ForwardWay kWay, class Make>
Made MakeOfType(const Problem& p, const Make& make) {
  if (p.dtype == POOLGRAD_F32) return MakeOf<kWay, float>(make);
  if (p.dtype == POOLGRAD_F64) return MakeOf<kWay, double>(make);
  if (p.dtype == POOLGRAD_F16) return MakeOf<kWay, F16>(make);
  if (p.dtype == POOLGRAD_BF16) return MakeOf<kWay, BF16>(make);
  return kNotBuilt;
}

template <class Layout>
Made MadeOf(const Problem& p, RunFn run, int64_t units, int64_t bytes, std::shared_ptr<Layout> layout) {
  if (bytes > MostScratch(p)) return "its rows would take too much scratch";
  Kernel kernel{run, units, bytes};
  kernel.layout = std::move(layout);
  return kernel;
}

Made MakeAverageOf(const Problem& p, bool back) {
  return MakeOfType<ForwardWay::kAverage>(p, [&](auto type) {
    using T = decltype(type);
    const int64_t lanes = LaneCount<Wide<T> >();
    auto layout = std::make_shared<const LaneLayout>(LayOutLanes(p, back, lanes, sizeof(Wide<T>), back, true));
    return MadeOf(p, RunAverage<T>, layout->units(lanes), Average<T>(p, *layout, Args{}, nullptr).bytes, layout);
  });
}

Made MakeTablesOf(const Problem& p, [[maybe_unused]] const Kernel& exact) {
  return MakeOfType<ForwardWay::kTables>(p, [&](auto type) {
    using T = decltype(type);
    const int64_t lanes = LaneCount<Wide<T> >();
    auto layout = std::make_shared<TablesLayout>();
    layout->lanes = LayOutLanes(p, false, lanes, sizeof(Wide<T>), false, false);
    layout->exact = exact;
    return MadeOf(p, RunTables<T>, layout->lanes.units(lanes), Tables<T>(p, *layout, Args{}, nullptr).bytes, layout);
  });
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

// f64 has AVX2's on AVX-512 (forward/table.h).
static int64_t SetOf(const Problem& p, const Host& host) {
  return p.dtype == POOLGRAD_F64 && host.simd == kAvx3 ? kAvx2 : host.simd;
}

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
  return POOLGRAD_DISPATCH(MakeAverageOf, SetOf(p, host))(p, back);
}

Made MakeTables(const Problem& p, const Host& host, const Kernel& exact) {
  return POOLGRAD_DISPATCH(MakeTablesOf, SetOf(p, host))(p, exact);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
