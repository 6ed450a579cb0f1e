// The kernel of windows-inl.h once more, with the maximum instruction that passes NaN on; see forward_f32.cc.
//
// The same source in a namespace of its own: one program may not hold two definitions under one name.
#include "cpu/simd/targets.h"
#include "hwy/highway.h"

namespace hwy {
namespace N_WASM_PASSING = HWY_NAMESPACE;
}
#undef HWY_NAMESPACE
#define HWY_NAMESPACE N_WASM_PASSING
#define POOLGRAD_WASM_PASSES_NAN

#include "windows-inl.h"

namespace poolgrad {

const char* MakeWindowsPassing(const Problem& problem, Kernel* kernel) {
  return HWY_NAMESPACE::MakeWindows<float>(problem, kernel);
}

}  // namespace poolgrad
