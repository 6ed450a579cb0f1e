// Average pooling forward for f32, f64, f16 and bf16.
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward/average.cc"
#include "hwy/foreach_target.h"
// After foreach_target
#include "cpu/forward/any/average-inl.h"
#include "cpu/forward/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
template <class T, Held kHeldAs>
Made MakeAverageIfBuilt(const Problem& p) {
  if constexpr (IsBuilt(ForwardWay::kAverage, kHeldAs, kThisSet)) return MakeAverage<T>(p);
  return kNotBuilt;
}
#endif

Made MakeAverageOf([[maybe_unused]] const Problem& p) {
#if HWY_TARGET == HWY_SCALAR
  return kNoSimdHere;
#else
  switch (p.dtype) {
    case POOLGRAD_F32:
      return MakeAverageIfBuilt<float, Held::kF32>(p);
    case POOLGRAD_F64:
      return MakeAverageIfBuilt<double, Held::kF64>(p);
    case POOLGRAD_F16:
      return MakeAverageIfBuilt<F16, Held::kHalves>(p);
    case POOLGRAD_BF16:
      return MakeAverageIfBuilt<BF16, Held::kHalves>(p);
    default:
      return kNotBuilt;
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(MakeAverageOf);

Made MakeForwardAverage(const Problem& problem, int64_t simd) {
  return POOLGRAD_DISPATCH(MakeAverageOf, simd)(problem);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
