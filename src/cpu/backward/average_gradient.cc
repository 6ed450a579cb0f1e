// bwd_average: averages (average_gradient-inl.h).
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/average_gradient.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/average_gradient-inl.h"
#include "cpu/backward/backward.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

Selected SelectAverageGradient(const Problem&, const SumsLayout&) { return {}; }

#else

template <class T>
void RunAverageGradient(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  AverageGradient<T> average(p, *static_cast<const SumsLayout*>(args.layout), scratch);
  Sums<T, Wide<T>, true>(p, args, average.sums).Run(begin, end, average);
}

template <class T>
Selected AverageGradientOf(const Problem& p, const SumsLayout& l) {
  return {RunAverageGradient<T>, AverageGradient<T>(p, l, nullptr).bytes};
}

Selected SelectAverageGradient(const Problem& p, const SumsLayout& l) {
#ifdef POOLGRAD_SMALL
  return p.dtype == POOLGRAD_F32 ? AverageGradientOf<float>(p, l) : Selected{};
#else
  switch (p.dtype) {
    case POOLGRAD_F32:
      return AverageGradientOf<float>(p, l);
    case POOLGRAD_F64:
      return AverageGradientOf<double>(p, l);
    case POOLGRAD_F16:
      return AverageGradientOf<F16>(p, l);
    case POOLGRAD_BF16:
      return AverageGradientOf<BF16>(p, l);
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

HWY_EXPORT(SelectAverageGradient);

Made MakeAverage(const Problem& p, poolgrad_op op, const Host& host) {
  if (op != POOLGRAD_OP_BACKWARD) return "it does backward only";
  if (p.kind != POOLGRAD_AVERAGE) return "it does averages only";
  if (p.x_elements() == 0 || p.y_elements() == 0) return "there is nothing to add";
  if (p.by_table()) return "it needs windows at regular distances";
  if (p.width().stride > 4 * p.width().in + 4096) return "the windows are much further apart than there are inputs";
  auto layout = std::make_shared<SumsLayout>(LayOutSums(p, host, false, true, std::max<int64_t>(4, SizeOf(p.dtype))));
  const Selected selected = POOLGRAD_DISPATCH(SelectAverageGradient, host.simd)(p, *layout);
  if (!selected.run) return kNoVectors;
  Kernel kernel{selected.run, layout->units(), selected.bytes};
  kernel.layout = std::move(layout);
  return kernel;
}

}  // namespace poolgrad
#endif  // HWY_ONCE
