// Instances of the channels-last backward kernel, and when it refuses.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/pixels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"
#include "cpu/backward/pixels-inl.h"
#include "cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || defined(POOLGRAD_SMALL)  // WebAssembly's vectors are too short for it

RunFn SelectPixels(const Problem&) { return nullptr; }

#else

template <class T, class A, int kBits, int kWidth, bool kAssign>
void RunPixels(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  Pixels<T, A, kBits, kWidth, kAssign>(p, args, scratch).Run(begin, end);
}

template <class T, class A, int kBits, bool kAssign>
RunFn OfWidth(int64_t width) {
  switch (width) {
    case 1:
      return RunPixels<T, A, kBits, 1, kAssign>;
    case 2:
      return RunPixels<T, A, kBits, 2, kAssign>;
    case 3:
      return RunPixels<T, A, kBits, 3, kAssign>;
    case 4:
      return RunPixels<T, A, kBits, 4, kAssign>;
    case 5:
      return RunPixels<T, A, kBits, 5, kAssign>;
    default:
      return nullptr;
  }
}

template <class T, class A, bool kAssign>
RunFn OfBits(const Problem& p) {
  switch (p.routes.bits) {
    case 2:
      return OfWidth<T, A, 2, kAssign>(p.width().kernel);
    case 4:
      return OfWidth<T, A, 4, kAssign>(p.width().kernel);
    case 8:
      return OfWidth<T, A, 8, kAssign>(p.width().kernel);
    default:
      return nullptr;
  }
}

RunFn SelectPixels(const Problem& p) {
  if (hn::MaxLanes(hn::ScalableTag<float>()) < 8) return nullptr;
  const bool assign = LayOutPixels(p).tiles_exactly;
  return VisitDtype(p.dtype, [&](auto zero) -> RunFn {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) {
      return nullptr;
    } else {
      using Once = std::conditional_t<sizeof(T) == 2, uint16_t, T>;
      return assign ? OfBits<T, Once, true>(p) : OfBits<T, Wide<T>, false>(p);
    }
  });
}

#endif  // HWY_TARGET == HWY_SCALAR || defined(POOLGRAD_SMALL)

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(SelectPixels);

const char* RefusePixels(const Problem& p, poolgrad_op op, [[maybe_unused]] const Host& host) {
  if (const char* reason = RefuseAllButBackward(p, op)) return reason;
  if (!p.channels_last()) return "it needs channels last";
  if (p.channels < 8) return "there are too few channels to fill a vector";
  if (p.y_elements() == 0) return "there is no output";
  if (!p.depth().disjoint()) return "windows overlap along the depth";
  if (p.width().kernel > kMostPixelWidth) return "the window is too wide to unroll";
  if (p.taps() > kMostPixelTaps) return "the window has too many taps to visit them all";
  if (p.routes.bits > 8) return "its routes are wider than a byte";
  const PixelTiles t = LayOutPixels(p);
  if (t.slots * t.row * p.depth().kernel * 4 > (int64_t{4} << 20)) return "the rows of sums do not stay in cache";
  if (!POOLGRAD_DISPATCH(SelectPixels, host.simd)(p)) return "vectors are short here: accumulating by winner visits less";
  return nullptr;
}

Kernel MakePixels(const Problem& p, poolgrad_op, [[maybe_unused]] const Host& host) {
  const PixelTiles t = LayOutPixels(p);
  return {POOLGRAD_DISPATCH(SelectPixels, host.simd)(p), p.batch * t.groups * t.bands, t.slots * t.row * p.depth().kernel * 4};
}

}  // namespace poolgrad
#endif  // HWY_ONCE
