// The forward kernels that this module does not have; see f32_only.h.
#include "cpu/forward/forward.h"

namespace poolgrad {

const char* MakeForwardF64(ForwardWay, const Problem&, bool, int64_t, Kernel*) { return kNotBuilt; }
const char* MakeForwardHalf(ForwardWay, const Problem&, bool, int64_t, Kernel*) { return kNotBuilt; }
const char* MakeForwardHalfSpecial(ForwardWay, const Problem&, bool, int64_t, Kernel*) { return kNotBuilt; }
const char* MakeForwardHalfFmax(ForwardWay, const Problem&, bool, int64_t, Kernel*) { return kNotBuilt; }
bool HasHalfFmax() { return false; }
const char* MakeForwardCut(const Problem&, poolgrad_op, const Host&, Kernel*) { return "there is one thread"; }
const char* MakeForwardInt(ForwardWay, const Problem&, bool, int64_t, Kernel*) { return kNotBuilt; }
const char* MakeForwardBits32(ForwardWay, const Problem&, bool, int64_t, Kernel*) { return kNotBuilt; }
const char* MakeForwardBits16(ForwardWay, const Problem&, bool, int64_t, Kernel*) { return kNotBuilt; }

}  // namespace poolgrad
