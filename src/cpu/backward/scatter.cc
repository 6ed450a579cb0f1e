// bwd_scatter: the general backward kernel (scatter-inl.h). Its copies, for unpool, are compiled in unpool.cc.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/scatter.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"
#include "cpu/backward/scatter-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

Selected SelectScatter(const Problem&, const SumsLayout&) { return {}; }

#else

Selected SelectScatter(const Problem& p, const SumsLayout& l) {
#ifdef POOLGRAD_SMALL
  return p.dtype == POOLGRAD_F32 ? ScatterOf<float, float, false>(p, l) : Selected{};
#else
  switch (p.dtype) {
    case POOLGRAD_F32:
      return ScatterOf<float, float, false>(p, l);
    case POOLGRAD_F64:
      return ScatterOf<double, double, false>(p, l);
    case POOLGRAD_F16:
      return ScatterOf<F16, float, false>(p, l);
    case POOLGRAD_BF16:
      return ScatterOf<BF16, float, false>(p, l);
    default:
      return {};
  }
#endif
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(SelectScatter);

namespace {

// Places and positions are numbers of 32 bits.
bool SpansTooMuch(const Problem& p, const SumsLayout& l) {
  constexpr double kMost = 1 << 30;
  double box = static_cast<double>(l.block * (l.whole ? l.group : 1));
  for (int i = 0; i < 3; ++i) {
    const Axis& a = p.axis[i];
    if (static_cast<double>(a.extent()) +
            static_cast<double>(a.stride) * static_cast<double>(std::min(a.out, l.piece)) >
        kMost)
      return true;
    box *= static_cast<double>(std::max(l.band[i], a.extent()));
  }
  return box > kMost;
}

}  // namespace

Made MakeScatter(const Problem& p, poolgrad_op op, const Host& host) {
  if (op != POOLGRAD_OP_BACKWARD && op != POOLGRAD_OP_UNPOOL) return "it does backward and unpool only";
  if (p.kind == POOLGRAD_AVERAGE) return "an average has no winners";
  if (p.x_elements() == 0 || p.y_elements() == 0) return "there is nothing to add";
  const bool half = SizeOf(p.dtype) == 2 && op == POOLGRAD_OP_BACKWARD;
  auto layout = std::make_shared<SumsLayout>(LayOutSums(p, host, !half, half ? 4 : SizeOf(p.dtype)));
  if (SpansTooMuch(p, *layout)) return "the windows span too much";
  const Selected selected =
      op == POOLGRAD_OP_UNPOOL ? UnpoolBy(p, *layout, host) : POOLGRAD_DISPATCH(SelectScatter, host.simd)(p, *layout);
  if (!selected.run) return kNoVectors;
  Kernel kernel{selected.run, layout->units(), selected.bytes};
  kernel.layout = std::move(layout);
  return kernel;
}

}  // namespace poolgrad
#endif  // HWY_ONCE
