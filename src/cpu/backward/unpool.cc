// bwd_scatter that copies instead of adding: unpool of every type, by the size of its elements.
#define POOLGRAD_WIDER HWY_AVX2  // one by one
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward/unpool.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/backward/backward.h"
#include "cpu/backward/scatter-inl.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || defined(POOLGRAD_SMALL)

Selected SelectUnpool(const Problem&, const SumsLayout&) { return {}; }

#else

Selected SelectUnpool(const Problem& p, const SumsLayout& l) {
  switch (SizeOf(p.dtype)) {
    case 1:
      return ScatterOf<uint8_t, uint8_t, true>(p, l);
    case 2:
      return ScatterOf<uint16_t, uint16_t, true>(p, l);
    case 4:
      return ScatterOf<uint32_t, uint32_t, true>(p, l);
    default:
      return ScatterOf<uint64_t, uint64_t, true>(p, l);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace poolgrad {

HWY_EXPORT(SelectUnpool);

Selected UnpoolBy(const Problem& p, const SumsLayout& l, [[maybe_unused]] const Host& host) {
  return POOLGRAD_DISPATCH(SelectUnpool, host.simd)(p, l);
}

}  // namespace poolgrad
#endif  // HWY_ONCE
