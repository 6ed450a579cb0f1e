// Instances of the channels-last backward kernel with a ring of sums, and when it refuses.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/ring.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"
#include "cpu/backward/ring-inl.h"
#include "cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || defined(POOLGRAD_SMALL)

RunFn SelectRing(const Problem&) { return nullptr; }

#else

template <class T>
void RunRing(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Ring<T>(p, args, scratch).Run(begin, end);
}

RunFn SelectRing(const Problem& p) {
  if (p.dtype == POOLGRAD_BF16) return RunRing<BF16>;
  if (p.dtype == POOLGRAD_F16) return RunRing<F16>;
#if HWY_ARCH_ARM_A64
  if (p.dtype == POOLGRAD_F32) return RunRing<float>;
#endif
  return nullptr;
}

#endif  // HWY_TARGET == HWY_SCALAR || defined(POOLGRAD_SMALL)

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(SelectRing);

const char* RefuseRing(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseAllButBackward(p, op)) return reason;
  if (p.dtype == POOLGRAD_F32) {  // a row of sums more to write and to read, against a look at every code
    if (p.routes.bits != 8 || p.x_elements() > 2 * p.y_elements()) return "sums are made faster in dx itself";
  } else if (p.dtype != POOLGRAD_BF16 && p.dtype != POOLGRAD_F16) {
    return "sums need no wider type";
  }
  if (!p.channels_last() || p.channels < 8) return "it needs channels last, and eight of them";
  if (p.y_elements() == 0) return "there is no output";
  if (p.disjoint()) return "no two windows share an input";
  if (p.depth().in != 1 || p.depth().kernel != 1) return "there is more than one slice";
  if (p.taps() > 255 || p.routes.bits > 8) return "the window has too many taps";
  const int64_t reach = int64_t{1} << 24;
  const auto small = [&](const Axis& a) { return a.extent() < reach && a.out < reach && a.out * a.stride < reach; };
  if (!small(p.height()) || !small(p.width())) return "the windows span too much";
  if (p.height().extent() > kMostRingRows) return "the windows span too many rows";
  if (LayOutRing(p).ring() > kMostRingBytes / 4) return "the rows of sums do not stay in cache";
  if (!POOLGRAD_DISPATCH(SelectRing, host.simd)(p)) return "this processor has no vector instructions we know";
  return nullptr;
}

Kernel MakeRing(const Problem& p, poolgrad_op, [[maybe_unused]] const Host& host) {
  const RingTiles t = LayOutRing(p);
  return {POOLGRAD_DISPATCH(SelectRing, host.simd)(p), p.batch * t.blocks * t.bands, RingScratch(p, t, nullptr).bytes};
}

}  // namespace poolgrad
#endif  // HWY_ONCE
