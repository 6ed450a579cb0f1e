// Instances of the channels-first scatter, and when it refuses.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/planes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"
#include "cpu/backward/planes-inl.h"
#include "cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || defined(POOLGRAD_SMALL)  // WebAssembly keeps to one way of scattering

RunFn SelectPlaneScatter(const Problem&) { return nullptr; }

#else

template <class T>
void RunPlaneScatter(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  PlaneScatter<T>(p, args, scratch).Run(begin, end);
}

RunFn SelectPlaneScatter(const Problem& p) {
  return VisitDtype(p.dtype, [&](auto zero) -> RunFn {
    using T = decltype(zero);
    if constexpr (!std::is_integral_v<T>) return RunPlaneScatter<T>;
    return nullptr;
  });
}

#endif  // HWY_TARGET == HWY_SCALAR || defined(POOLGRAD_SMALL)

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(SelectPlaneScatter);

const char* RefusePlaneScatter(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseAllButBackward(p, op)) return reason;
  if (p.channels_last()) return "it needs channels first";
  if (p.disjoint()) return "no two windows share an input";
  if (p.depth().in != 1 || p.depth().out != 1 || p.depth().kernel != 1) return "there is more than one slice";
  if (p.x_elements() == 0 || p.y_elements() == 0) return "there is no output";
  if (p.width().out == 1) return "a row has a single window";
  if (p.taps() > kPlaneTaps || p.routes.bits > 8) return "the window has too many taps";
  for (const Axis* a : {&p.height(), &p.width()}) {
    if (a->extent() >= kPlaneReach || a->in >= kPlaneReach || a->stride >= kPlaneReach || a->out >= kPlaneReach)
      return "offsets do not fit 16 bits";
  }
  const PlaneTiles t = LayOutPlanes(p);
  if (t.at_once == 0) return "offsets do not fit 16 bits";
  if (!t.listed && t.division.multiplier == 0) return "dividing a code by the window's width takes more than 16 bits";
  if (!t.staged && t.pace > kPlanePace) return "an output brings so many inputs that zeroing them should go far ahead";
  if (t.kept * p.width().in * 4 > kPlaneSumBytes) return "the rows of sums do not stay in cache";
  if (!POOLGRAD_DISPATCH(SelectPlaneScatter, host.simd)(p)) return "this processor has no vector instructions we know";
  return nullptr;
}

Kernel MakePlaneScatter(const Problem& p, poolgrad_op, [[maybe_unused]] const Host& host) {
  const PlaneTiles t = LayOutPlanes(p);
  const int64_t units = p.batch * p.channels * t.bands;
  return {POOLGRAD_DISPATCH(SelectPlaneScatter, host.simd)(p), units, PlaneScratch(p, t, nullptr).bytes};
}

}  // namespace poolgrad
#endif  // HWY_ONCE
