// The forward kernels that this module does not have; see f32_only.h.
#include "cpu/forward/forward.h"

namespace poolgrad {

Kernel MakeForwardF64(ForwardWay, const Problem&, bool) { return {}; }
Kernel MakeForwardHalf(ForwardWay, const Problem&, bool) { return {}; }
Kernel MakeForwardHalfFmax(ForwardWay, const Problem&, bool) { return {}; }
bool HasHalfFmax() { return false; }
Kernel MakeForwardInt(ForwardWay, const Problem&, bool) { return {}; }
Kernel MakeForwardBits32(ForwardWay, const Problem&, bool) { return {}; }
Kernel MakeForwardBits16(ForwardWay, const Problem&, bool) { return {}; }

}  // namespace poolgrad
