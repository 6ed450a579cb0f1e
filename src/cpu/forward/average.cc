// Average pooling forward for f32, f64, f16 and bf16.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/average.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/average-inl.h"
#include "cpu/forward/forward.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

Kernel MakeAverageOf([[maybe_unused]] const Problem& p) {
#if HWY_TARGET != HWY_SCALAR
  switch (p.dtype) {
    case POOLGRAD_F32: return MakeAverage<float>(p);
#ifndef POOLGRAD_SMALL
    case POOLGRAD_F64: return MakeAverage<double>(p);
    case POOLGRAD_F16: return MakeAverage<F16>(p);
    case POOLGRAD_BF16: return MakeAverage<BF16>(p);
#endif
    default: break;
  }
#endif
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeAverageOf);

Kernel MakeForwardAverage(const Problem& problem, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeAverageOf, simd)(problem);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
