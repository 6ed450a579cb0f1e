// fwd_tables (tables-inl.h) for f32, f64, f16 and bf16.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/lanes/tables.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/forward.h"
#include "cpu/lanes/tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

Made MakeTablesOf(const Problem&, const Kernel&) { return kNoSimdHere; }

#else

template <class T>
Made MakeTablesWith(const Problem& p, const Kernel& exact) {
  const int64_t lanes = LaneCount<Wide<T> >();
  auto layout = std::make_shared<TablesLayout>();
  layout->lanes = LayOutLanes(p, false, lanes, sizeof(Wide<T>), false, false);
  layout->exact = exact;
  const int64_t bytes = Tables<T>(p, *layout, Args{}, nullptr).bytes;
  if (bytes > MostScratch(p)) return "its rows would take too much scratch";
  Kernel kernel{RunTables<T>, layout->lanes.units(lanes), bytes};
  kernel.layout = std::move(layout);
  return kernel;
}

Made MakeTablesOf([[maybe_unused]] const Problem& p, [[maybe_unused]] const Kernel& exact) {
#ifndef POOLGRAD_SMALL
  if (p.dtype == POOLGRAD_F32) return MakeTablesWith<float>(p, exact);
  if (p.dtype == POOLGRAD_F64) return MakeTablesWith<double>(p, exact);
  if (p.dtype == POOLGRAD_F16) return MakeTablesWith<F16>(p, exact);
  if (p.dtype == POOLGRAD_BF16) return MakeTablesWith<BF16>(p, exact);
#endif
  return kNotBuilt;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeTablesOf);

Made MakeTables(const Problem& p, const Host& host, const Kernel& exact) {
  return POOLGRAD_DISPATCH(MakeTablesOf, host.simd)(p, exact);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
